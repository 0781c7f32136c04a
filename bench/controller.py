# SPDX-License-Identifier: Apache-2.0
"""A running controller, asked over HTTP and looked at in /proc; for the benches of fleets."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# [read] timeout, by default.
READING_MS = 2000
TICK = os.sysconf("SC_CLK_TCK")

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def end_with_us():
    """A bench that is ended, however that is, ends its controller (prctl(2))."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def get(address, path, **query):
    """The JSON answer to a GET."""
    return json.loads(body(address, path, **query))


def body(address, path, **query):
    """The bytes of the answer to a GET."""
    pairs = urllib.parse.urlencode(query, doseq=True)
    with urllib.request.urlopen(f"http://{address}{path}?{pairs}" if pairs else f"http://{address}{path}", timeout=120) as answer:
        return answer.read()


def ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def memory_kib(pid):
    """Resident memory, and its anonymous part."""
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmRSS"].split()[0]), int(lines["RssAnon"].split()[0])


class Look:
    """What a controller tells at one time, of its hosts and of itself."""

    def __init__(self, address, pid):
        begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        answer = get(address, "/api/onlooker/v1/hosts")
        end = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self.steady_ms, self.slack_ms = (begin + end) / 2e6, (end - begin) / 1e6
        self.utc_ms = time.time() * 1e3 - self.slack_ms / 2
        self.hosts = {host["name"]: host for host in answer["hosts"]}
        self.status = get(address, "/api/onlooker/v1/status")
        self.ticks = ticks(pid)

    def unaccounted(self, before, name, interval_ms):
        """How many of a host's due times since an earlier look are neither readings nor gaps, as far as the looks let it be known; with both numbers.

        Due times are a grid of the interval, so that how many there were follows from the time alone. Those that have passed while the host waits for its next reading are
        counted when that begins: as many as its last one is intervals old. One that was never read may be in a reading, which nobody answers.
        """
        then, now = before.hosts[name], self.hosts[name]
        cycles = now["cycles"] - then["cycles"]
        gaps = {reason: count - then["gaps"].get(reason, 0) for reason, count in now["gaps"].items()}
        due = (self.steady_ms - before.steady_ms) / interval_ms
        waiting = sum((READING_MS if host["age_ms"] is None else host["age_ms"]) // interval_ms for host in (then, now))
        slack = 2 + waiting + (before.slack_ms + self.slack_ms) / interval_ms
        off = abs(cycles + sum(gaps.values()) - due)
        return (round(off) if off > slack else 0), cycles, gaps, slack


def targets_of(agents, count):
    """Sections of controller.toml for so many hosts, for which some agents (address, token file) stand by turns."""
    text = ""
    for number in range(count):
        address, token = agents[number % len(agents)]
        text += f'[[targets]]\naddress = "{address}"\nname = "host-{number:05}"\ntoken_file = "{token}"\nvia = "kernel"\n'
    return text


class Controller:
    """A run of the controller by DIRECTORY/NAME.toml."""

    def __init__(self, directory, name):
        self.log = directory / f"controller-{name}.log"
        with open(self.log, "ab") as log:
            # Its unit's niceness: ahead of the watched programs, not of the kernel's own threads.
            arguments = ["nice", "-n", "-10", "build/onlooker", "controller", "--config", str(directory / f"{name}.toml")]
            self.process = subprocess.Popen(arguments, stderr=log, stdout=log, preexec_fn=end_with_us)
        self.pid = self.process.pid

    def wait_for(self, what, seconds, check):
        """Waits for a state; gives the seconds it took."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            if self.process.poll() is not None:
                sys.exit(f"the controller ended:\n{self.log.read_text()}")
            try:
                if check():
                    return time.monotonic() - begin
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(0.2)
        sys.exit(f"{what}: not within {seconds} s:\n{self.log.read_text()}")

    def kill(self):
        self.process.kill()
        self.process.wait()
