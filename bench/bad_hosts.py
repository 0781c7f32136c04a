# SPDX-License-Identifier: Apache-2.0
"""Runs a controller over good and bad hosts, kind after kind, and compares the good ones with how they are alone; for bench/bench-bad-hosts.

Usage: bad_hosts.py DIRECTORY HOT_DIRECTORY "KIND:PERCENT ..." GOOD SECONDS WIRE_NAMESPACE REGIONS BAD=TOKEN_FILE GOOD=TOKEN_FILE...

GOOD hosts are good in every run, some agents standing for all; so many bad ones come to them that they are PERCENT of all.
Those of all kinds but `dead` are one agent behind a wire (wire.py, in WIRE_NAMESPACE between `bad` and `wire`), under many
names. REGIONS is a program that registers a region. Kinds that have a wire of their name are wire.py's; `dead`: nobody has
the address; `flapping`: the wire is pulled and put back every second; `changing`: a program comes and goes every second;
`stopped`: the controller has no CPU for 100 ms every second; `changed`: half of the bad ones are replaced every second.
"""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from controller import Controller, Look, get, targets_of

directory, hot = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
kinds = [kind.split(":") for kind in sys.argv[3].split()]
good, seconds, wire_namespace, regions = int(sys.argv[4]), int(sys.argv[5]), sys.argv[6], sys.argv[7]
bad_agent, *agents = [pair.split("=", 1) for pair in sys.argv[8:]]
ADDRESS = "127.0.0.1:7180"
INTERVAL_MS = 250
CREDIT_BYTES = 4 << 20
DEAD = "198.18.77.200:7177"
WIRES = ("silent", "slow", "late", "lying", "twice")
# Each host is read by a few READs: the wire is a program, and these are all on one machine.
KEPT = ("node_memory", "node_load", "node_stat", "beacon", "bench_region")


def targets(bad, kind, generation):
    text = targets_of(agents, good)
    address = DEAD if kind == "dead" else bad_agent[0]
    for number in range(bad):
        name = f"bad-{number:05}" + (f"-{generation}" if kind == "changed" and number % 2 else "")
        text += f'[[targets]]\naddress = "{address}"\nname = "{name}"\ntoken_file = "{bad_agent[1]}"\nvia = "kernel"\n'
    return text


def names_of_regions():
    """Of all that a good host has, but those that are kept."""
    controller = start("look", [], targets_of(agents, 1))
    try:
        detail = lambda: get(ADDRESS, "/api/onlooker/v1/hosts/host-00000")
        controller.wait_for("the first host is read", 60, lambda: get(ADDRESS, "/api/onlooker/v1/status")["hosts"].get("reading") == 1 and detail()["cycles"] > 3)
        return sorted({region["name"] for region in detail()["regions_list"]} - set(KEPT))
    finally:
        controller.kill()


def configuration(name, skip, text):
    skip = ", ".join(f'"{region}"' for region in skip)
    head = f'[http]\nlisten = "{ADDRESS}"\n[read]\ninterval = "{INTERVAL_MS}ms"\ncredit = "{CREDIT_BYTES >> 20}MiB"\nskip = [{skip}]\n'
    head += f'[store]\ndir = "{directory}/bad-{name}"\nhot_file = "{hot}/bad-{name}"\nhot_bytes = "64MiB"\n'
    head += f'[joined]\nfile = "{directory}/bad-{name}.json"\n'
    (directory / f"bad-{name}.toml").write_text(head + text)


def start(name, skip, text):
    configuration(name, skip, text)
    return Controller(directory, f"bad-{name}")


def in_wire(*arguments):
    return ["nsenter", f"--net=/run/netns/{wire_namespace}", *arguments]


class Trouble:
    """What goes on beside a run, by kind, once a second."""

    def __init__(self, kind, controller, again):
        self.kind, self.controller, self.again, self.over = kind, controller, again, threading.Event()
        self.program, self.turn = None, 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.wait(1):
            self.turn += 1
            if self.kind == "flapping":
                subprocess.run(in_wire("ip", "link", "set", "wire", "down" if self.turn % 2 else "up"), check=True)
            elif self.kind == "changing":
                self.end_program()
                self.program = subprocess.Popen([regions, str(1 + self.turn % 3)], stdout=subprocess.DEVNULL)
            elif self.kind == "stopped":
                os.kill(self.controller.pid, signal.SIGSTOP)
                time.sleep(0.1)
                os.kill(self.controller.pid, signal.SIGCONT)
            elif self.kind == "changed":
                self.again(self.turn)
                os.kill(self.controller.pid, signal.SIGHUP)

    def end_program(self):
        if self.program:
            self.program.kill()
            self.program.wait()

    def end(self):
        self.over.set()
        self.thread.join()
        self.end_program()
        if self.kind == "flapping":
            subprocess.run(in_wire("ip", "link", "set", "wire", "up"), check=True)


def run(kind, percent, skip):
    bad = good * percent // (100 - percent)
    name = f"{kind}-{percent}"
    wire = subprocess.Popen(in_wire(sys.executable, str(pathlib.Path(__file__).with_name("wire.py")), "bad", "wire", kind if kind in WIRES else "good"))
    controller = start(name, skip, targets(bad, kind, 0))
    trouble = None
    try:
        status = lambda: get(ADDRESS, "/api/onlooker/v1/status")
        hosts = lambda: [host for host in get(ADDRESS, "/api/onlooker/v1/hosts")["hosts"] if host["name"].startswith("host-")]
        controller.wait_for("the good hosts are read", 120, lambda: sum(host["cycles"] > 1 for host in hosts()) == good)
        trouble = Trouble(kind, controller, lambda turn: configuration(name, skip, targets(bad, kind, turn)))
        time.sleep(min(5, seconds))
        first, most = Look(ADDRESS, controller.pid), 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            most = max(most, status()["credits"]["in_flight_bytes"])
            time.sleep(0.2)
        last = Look(ADDRESS, controller.pid)
    finally:
        if trouble:
            trouble.end()
        controller.kill()
        wire.kill()
        wire.wait()
    # Names that came or went meanwhile were not there all the time.
    both = [host for host in last.hosts if host in first.hosts]
    unaccounted, readings, gaps, reasons = 0, 0, 0, {}
    for host in both:
        off, cycles, missed, _ = last.unaccounted(first, host, INTERVAL_MS)
        unaccounted += off
        if host.startswith("host-"):
            readings, gaps = readings + cycles, gaps + sum(missed.values())
        for reason, count in missed.items():
            reasons[reason] = reasons.get(reason, 0) + count
    p99 = sorted(last.hosts[host]["reads"]["latency_us"]["p99"] for host in both if host.startswith("host-"))
    p99_us = p99[len(p99) // 2]
    share = gaps / max(1, gaps + readings)
    print(f"{name}: {good} good, {bad} bad; p99 of a good host's readings {p99_us} us; of its due times {share:.4f} missed; all gaps {reasons}; "
          f"at most {most} bytes in flight", file=sys.stderr, flush=True)
    return p99_us, share, unaccounted, most


skipped = names_of_regions()
before = run("none", 0, skipped)
figures = {f"{kind}_{percent}": run(kind, int(percent), skipped) for kind, percent in kinds}
after = run("none", 0, skipped)
alone_us = (before[0] + after[0]) / 2
print("figure alone p99_us", alone_us, "of_before", round(after[0] / before[0], 3), flush=True)
for name, (p99_us, share, unaccounted, most) in figures.items():
    print("figure", name, "p99", round(p99_us / alone_us, 3), flush=True)
    print("figure", name, "gaps", round(share, 5), flush=True)
    print("figure", name, "unaccounted", unaccounted, flush=True)
print("figure all in_flight", max(most for *_, most in figures.values()), flush=True)
