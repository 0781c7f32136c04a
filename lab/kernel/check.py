#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One guest of lab-kernel, looked at from the network namespace that has the other end of its wire: parity, containers, faults. Ends with RESULT lines."""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import containers
import faults
import guest
from guest import ADDRESS, BOOTSTRAP_PORT, EXPORTER_PORT, Agent, Failed, run, until

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.join(HERE, "../../bench")
CONTROLLER_PORT = 7190
# As bench/parity has it.
EXPORTER = f"""mkdir -p /tmp/textfiles; prometheus-node-exporter --collector.netdev.device-exclude='^$' --collector.netclass.ignored-devices='^$' \
  --collector.diskstats.device-exclude='^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme\\d+n\\d+p)\\d+$' \
  --collector.filesystem.mount-points-exclude='^/(dev|proc|run/credentials/.+|sys|var/lib/docker/.+|var/lib/containers/storage/.+)($|/)' \
  --web.listen-address={ADDRESS}:{EXPORTER_PORT} --log.level=error --collector.textfile.directory=/tmp/textfiles --collector.processes --collector.tcpstat \
  --collector.interrupts --collector.systemd >/tmp/exporter.log 2>&1 &"""
# So that values move: the disk, page cache, processes, sockets, packets.
MOTION = f"""/bin/sh -c 'renice -n 19 -p $$; while :; do dd if=/dev/vda of=/dev/null bs=64k count=16 iflag=direct; dd if=/dev/zero of=/dev/vda bs=64k count=16 seek=64; sync
ping -q -c 2 {guest.READER}; ls -R /sys/class >/dev/null; sleep 1; done' >/dev/null 2>&1 &"""



class Results:
    """RESULT lines, shown and kept in a file."""

    def __init__(self, path):
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (as long as the program)
        self.failed = False

    def keep(self, line):
        self.failed |= line.endswith("fail")
        self.file.write(line + "\n")
        self.file.flush()

    def put(self, name, value, unit, bound):
        line = f"RESULT {name} {value} {unit} (expected = {bound}) {'pass' if value == bound else 'fail'}"
        print(line, flush=True)
        self.keep(line)


class Watched:
    """A controller that reads the guest, and node_exporter in it."""

    def __init__(self, options, agent, results):
        self.options, self.agent, self.results = options, agent, results
        self.directory = tempfile.TemporaryDirectory()
        run(EXPORTER)
        run(MOTION)

    def series(self, figures):
        """Whether `onlooker read`, the controller and node_exporter have the same series, but for what has its reason."""
        command = [sys.executable, os.path.join(BENCH, "series.py"), "--figures", f"{figures}_series", f"http://127.0.0.1:{CONTROLLER_PORT}",
                   f"http://{ADDRESS}:{EXPORTER_PORT}/metrics", *self.agent.command("--prometheus")]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="", flush=True)
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                self.results.keep(line)
        return done.returncode

    def parity(self, which, seconds):
        """Whether every name is there or has its reason, and equals node_exporter's."""
        path = os.path.join(self.directory.name, "controller.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"""[http]
listen = "127.0.0.1:{CONTROLLER_PORT}"
[read]
interval = "500ms"
[store]
dir = "{self.directory.name}/store"
hot_file = "{self.directory.name}/hot"
hot_bytes = "64MiB"
[[targets]]
name = "host"
address = "{ADDRESS}:{BOOTSTRAP_PORT}"
token_file = "{self.agent.token}"
via = "kernel"
""")
        figures = f"kernel_{self.options.kernel}_{which}"
        with open(os.path.join(self.directory.name, "controller.log"), "w+", encoding="utf-8") as log:
            controller = subprocess.Popen([self.agent.onlooker, "controller", "--config", path], stdout=log, stderr=log)
            try:
                def answers():
                    for url in (f"http://127.0.0.1:{CONTROLLER_PORT}/api/onlooker/v1/hosts", f"http://{ADDRESS}:{EXPORTER_PORT}/metrics"):
                        urllib.request.urlopen(url, timeout=10).close()
                    return True
                until("the controller and node_exporter", answers)
                names = os.path.join(BENCH, "parity.names")
                command = [sys.executable, os.path.join(BENCH, "parity.py"), str(seconds), f"http://127.0.0.1:{CONTROLLER_PORT}", f"http://{ADDRESS}:{EXPORTER_PORT}/metrics",
                           names, "--figures", figures, "--guest"]
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as comparison:
                    for line in comparison.stdout:
                        print(line, end="", flush=True)
                        if line.startswith("RESULT "):
                            self.results.keep(line.strip())
                code = comparison.returncode
                code = max(code, self.series(figures))
                if code > 1:
                    self.results.put(f"{figures}_compared", 0, "hosts", 1)
                    log.seek(0)
                    print(log.read())
            finally:
                controller.terminate()
                controller.wait()
        return code == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kernel", help="series, for the figures' names")
    parser.add_argument("programs", help="directory with onlooker")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--series", action="store_true", help="only the comparison with node_exporter")
    parser.add_argument("--lockdown", action="store_true", help="the guest was started with lockdown=confidentiality")
    parser.add_argument("--results", default=os.devnull, help="file for the RESULT lines")
    options = parser.parse_args()
    # Ended from outside, it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = Results(options.results)
    agent = Agent(os.path.join(options.programs, "onlooker"))
    begin = time.time()
    try:
        until("a shell in the guest", lambda: run("uname -r").strip(), timeout_s=180)
        print(f"=== {run('uname -r').strip()}, {run('nproc').strip()} CPUs", flush=True)
        agent.start()
        watched = Watched(options, agent, results)
        short, long = (40, 40) if options.quick else (40, 100)
        if options.series:
            watched.parity("series", short)
        elif options.lockdown:
            verdict = faults.check_lockdown(agent, lambda which: watched.parity(which, short))
            results.put(f"kernel_{options.kernel}_lockdown_failed", len(verdict.wrong), "checks", 0)
        else:
            watched.parity("parity", long)
            verdict = containers.check(agent, options.quick)
            print(f"containers: {verdict.looked} values compared")
            results.put(f"kernel_{options.kernel}_containers_wrong", len(verdict.wrong), "values", 0)
            verdict = faults.check(agent, options.quick, lambda which: watched.parity(which, short))
            print(f"faults: {verdict.looked} checks")
            results.put(f"kernel_{options.kernel}_faults_failed", len(verdict.wrong), "checks", 0)
        print("the agent's log:\n" + agent.log(), flush=True)
    except (Failed, OSError) as error:
        print(f"lab-kernel: {error}", flush=True)
        try:
            print(agent.log())
        except (Failed, OSError):
            print("lab-kernel: the agent's log cannot be had")
        results.put(f"kernel_{options.kernel}_ran", 0, "guests", 1)
    finally:
        agent.close()
    print(f"{options.kernel}: {time.time() - begin:.0f} s", flush=True)
    sys.exit(1 if results.failed else 0)


main()
