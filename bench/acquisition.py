# SPDX-License-Identifier: Apache-2.0
"""The axes of the study of acquisition systems against one controller: what it and the watched hosts take; for bench/bench-acquisition.

Usage: acquisition.py DIRECTORY HOT_DIRECTORY MODULES full|quick AGENT... ; AGENT is NUMBER:PID, an agent of bench/fleet.sh.

h hosts (a few agents stand for them, each under many names) have p programs of m metrics, which are read every so often. One controller lives through all of it, so that its own
history has all loads. Prints a table on standard error, lines `figure NAME VALUE`, and leaves what `onlooker capacity` fits in DIRECTORY/points.json.
"""

import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from controller import Controller, get

directory, hot = map(pathlib.Path, sys.argv[1:3])
modules, is_quick = sys.argv[3], sys.argv[4] == "quick"
agents = [tuple(int(number) for number in agent.split(":")) for agent in sys.argv[5:]]
ADDRESS, NAME = "127.0.0.1:7180", "acquisition"
CPUS = os.cpu_count()
# What the published machines had.
MEMORY_BYTES, LINK_BYTES = 2e9, 125e6
# (Windows of whole seconds have as many readings in them as seconds, or one more.)
SETTLE_S, MEASURE_S = (1.5, 2) if is_quick else (4, 8)
# m, h, p: one at a time, then 32 programs on more and more hosts.
AXES = [(1, 1, 1), (15, 16, 1), (15, 1, 256)] if is_quick else [
    *((m, 1, 1) for m in (1, 5, 10, 15)), *((15, h, 1) for h in (4, 16, 64)), *((15, 1, p) for p in (16, 32, 64, 128, 256)), *((15, h, 32) for h in (4, 8, 16))]
INTERVALS_MS = [1000] if is_quick else [1000, 100]
# Fitted, then the one that is left out; every 10 ms.
LOADS = [1, 2, 4, 6] if is_quick else [1, 2, 3, 4, 6, 8, 12]


def configure(hosts, interval_ms):
    text = f'[http]\nlisten = "{ADDRESS}"\n[store]\ndir = "{directory}/store"\nhot_file = "{hot}/rows"\n[joined]\nfile = "{directory}/joined.json"\n'
    # What is there anyway is not of the study.
    text += '[read]\nskip = ["beacon", "beacon_counters", "onlooker_agent", "onlooker_responder"]\n'
    for host in range(hosts):
        agent, _ = agents[host % len(agents)]
        text += f'[[targets]]\naddress = "198.18.77.{agent + 10}:7177"\nname = "host-{host}"\ntoken_file = "{directory}/{agent}/token"\nvia = "kernel"\ninterval = "{interval_ms}ms"\n'
    (directory / f"{NAME}.toml").write_text(text)


class Programs:
    """Those of all watched hosts."""

    def __init__(self):
        self.running, self.what = [], None

    def be(self, programs, metrics, every_ms, on):
        if self.what == (programs, metrics, every_ms, on):
            return
        self.end()
        self.what = programs, metrics, every_ms, on
        for number, _ in agents[:on]:
            environment = {**os.environ, "ONLOOKER_SOCKET": str(directory / str(number) / "agent.sock")}
            self.running.append(subprocess.Popen([modules, str(programs), str(metrics), str(every_ms)], env=environment, stdout=subprocess.PIPE))
        for process in self.running:
            assert process.stdout.readline() == b"published\n", "programs are registered"

    def end(self):
        for process in self.running:
            process.kill()
            process.wait()
        self.running = []


def cpu_s(pid):
    """CPU time of a process, of threads that have ended, too: its CPU clock (clock_getcpuclockid(3))."""
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e9


def thread_times(pid):
    """CPU time by thread name."""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
            times[name] = times.get(name, 0) + int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            pass
    return times


def rss(pid, *kinds):
    lines = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(lines[kind].split()[0]) * 1024 for kind in kinds)


def program(path):
    """A pinned BPF program, opened (BPF_OBJ_GET)."""
    name = ctypes.create_string_buffer(str(path).encode())
    attributes = ctypes.create_string_buffer(ctypes.addressof(name).to_bytes(8, "little") + bytes(56))
    fd = ctypes.CDLL(None, use_errno=True).syscall({"x86_64": 321, "aarch64": 280}[os.uname().machine], 7, attributes, 16)
    assert fd >= 0, f"{path}: {os.strerror(ctypes.get_errno())}"
    return fd


def softirq_s():
    """CPU time of the watched hosts' responders, while kernel.bpf_stats_enabled is 1."""
    lines = [line for fd in responders for line in pathlib.Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("run_time_ns:")) / 1e9


def wire_bytes():
    """What went to and from the watched hosts."""
    lines = [line.split(":") for line in pathlib.Path("/proc/self/net/dev").read_text().splitlines() if line.strip().startswith("host")]
    numbers = [[int(number) for number in numbers.split()] for _, numbers in lines]
    return sum(line[0] for line in numbers), sum(line[8] for line in numbers)


class Look:
    def __init__(self):
        self.values = get(ADDRESS, "/api/onlooker/v1/status")["store"]["values"]
        self.at, self.cpu_s, self.threads = time.monotonic(), cpu_s(controller.pid), thread_times(controller.pid)
        self.softirq_s, self.wire = softirq_s(), wire_bytes()
        self.watched_s = sum(map(cpu_s, watched()))


def watched():
    return [pid for _, pid in agents[:len(programs.running)]] + [process.pid for process in programs.running]


def shares(before, after, hosts):
    """Of the controller's machine, and of one host; CPU of the latter of one core, memory and network of what the published machines had."""
    passed_s = after.at - before.at
    thread = {name: (time_s - before.threads.get(name, 0)) / passed_s for name, time_s in after.threads.items()}
    received, sent = (now - then for then, now in zip(before.wire, after.wire))
    memory = rss(controller.pid, "RssAnon", "RssShmem") / (os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    controllers = {"cpu": (after.cpu_s - before.cpu_s) / passed_s / CPUS, "memory": memory, "network": received / passed_s / LINK_BYTES,
                   **{name: thread[name] for name in ("engine", "store", "own") if name in thread},
                   "processor": max(share for name, share in thread.items() if name.startswith("processor"))}
    # Agents and programs are there once for many hosts; their responders answer for each.
    standing = min(hosts, len(agents))
    kept = sum(rss(pid, "VmRSS") for pid in watched()) / standing
    hosts_own = {"cpu": (after.watched_s - before.watched_s) / passed_s / standing + (after.softirq_s - before.softirq_s) / passed_s / hosts,
                 "memory": kept / MEMORY_BYTES, "network": max(received, sent) / passed_s / LINK_BYTES / hosts}
    return (after.values - before.values) / passed_s, controllers, hosts_own


def point(metrics, hosts, count, interval_ms, looks=2):
    """Goes there, and gives what it takes: between each two looks."""
    programs.be(count, metrics, max(interval_ms // 4, 2), min(hosts, len(agents)))
    configure(hosts, interval_ms)
    controller.process.send_signal(signal.SIGHUP)

    def is_there():
        states = get(ADDRESS, "/api/onlooker/v1/status")["hosts"]
        return states["reading"] == hosts == sum(states.values())

    controller.wait_for(f"{hosts} hosts are read", 60, is_there)
    time.sleep(SETTLE_S + interval_ms / 1e3)
    before, found = Look(), []
    for _ in range(looks - 1):
        time.sleep(MEASURE_S / (looks - 1))
        after = Look()
        found.append(shares(before, after, hosts))
        before = after
    rate, controllers, hosts_own = found[-1]
    due = hosts * count * metrics * 1000 / interval_ms
    print(f"{metrics:4} {hosts:5} {count:5} {interval_ms:5} ms {due:10,.0f} {rate:10,.0f} "
          + " ".join(f"{controllers.get(name, 0):8.4f}" for name in ("cpu", "memory", "network", "engine", "processor")) + "  "
          + " ".join(f"{hosts_own[name]:8.4f}" for name in ("cpu", "memory", "network")), file=sys.stderr, flush=True)
    return due, found


def axes():
    most, least_stored = {}, 1.0
    for interval_ms in INTERVALS_MS:
        for metrics, hosts, count in AXES:
            due, [(rate, controllers, hosts_own)] = point(metrics, hosts, count, interval_ms)
            least_stored = min(least_stored, rate / due)
            for name, share in hosts_own.items():
                most[name] = max(most.get(name, 0), share)
            if due == 7680:
                figure("7680_cpu", round(controllers["cpu"], 4))
    figure("stored", round(least_stored, 4))
    for name, share in most.items():
        figure(f"watched_{name}", round(share, 4))


def centre():
    """A medium data centre: 100 hosts of 100 applications and themselves, 5 indexes each, every second."""
    due, [(rate, controllers, hosts_own)] = point(5, 100, 101, 1000)
    assert due == 50500
    figure("50500_stored", round(rate / due, 4))
    for name in ("cpu", "memory", "network"):
        figure(f"50500_{name}", round(controllers[name], 4))
        figure(f"50500_watched_{name}", round(hosts_own[name], 4))


def loads():
    """Loads to fit, and one to predict: all but the last are points of `onlooker capacity`."""
    points, begin = [], time.monotonic()
    for hosts in LOADS:
        last = hosts == LOADS[-1]
        if last:
            (directory / "points.json").write_text(json.dumps(points))
            if not is_quick:
                # What it says of the same loads by its own history, which is coarser.
                since_s = round(time.monotonic() - begin)
                subprocess.run(["build/onlooker", "capacity", f"http://{ADDRESS}", "--since", f"{since_s}s", "--step", "10s", "--link", "1"], stdout=sys.stderr)
        _, found = point(15, hosts, 32, 10, looks=4 if is_quick else 6)
        points += [{"values_per_s": rate, "hosts": hosts, "shares": controllers} for rate, controllers, _ in found]
        if not last and not is_quick:
            # The history needs some samples of each load, which are 10 to 15 s apart.
            time.sleep(40)
    mean = lambda of: sum(map(of, found)) / len(found)
    rate, measured = mean(lambda one: one[0]), mean(lambda one: one[1]["cpu"])
    fitted = json.loads(subprocess.run(["build/onlooker", "capacity", "--points", str(directory / "points.json"), "--json"], stdout=subprocess.PIPE, check=True).stdout)
    cpu = next(one for one in fitted["resources"] if one["resource"] == "cpu")
    predicted = sum(c * rate**power for power, c in enumerate(cpu["fit"]["coefficients"]))
    print(f"at {rate:,.0f} values/s, {rate / fitted['seen']['greatest_values_per_s']:.2f} times the greatest load of the fit (a {cpu['fit']['by']}), the CPU's share is "
          f"{measured:.4f}; predicted was {predicted:.4f}. {fitted['summary']}", file=sys.stderr, flush=True)
    figure("left_out_load", round(rate))
    figure("predicted_off", round(abs(predicted / measured - 1) * 100, 1))


def figure(name, value):
    print("figure", name, value, flush=True)


responders = [program(path) for number, _ in agents for path in sorted((directory / str(number) / "bpf/onlooker/agent/programs").iterdir())]
programs = Programs()
configure(1, 1000)
controller = Controller(directory, NAME)
try:
    controller.wait_for("the controller answers", 60, lambda: get(ADDRESS, "/api/onlooker/v1/status"))
    print("   m     h     p    every  samples/s     stored   controller: cpu  memory  network   engine processor  a host: cpu   memory  network", file=sys.stderr, flush=True)
    axes()
    centre()
    loads()
finally:
    controller.kill()
    programs.end()
