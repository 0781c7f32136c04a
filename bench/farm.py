# SPDX-License-Identifier: Apache-2.0
"""Runs a controller over many hosts and says how late it is and what it takes; for bench/bench-farm.

Usage: farm.py DIRECTORY HOT_DIRECTORY "NAME:TARGETS:INTERVAL_MS:BYTES:SECONDS ..." AGENT_PID,... ADDRESS=TOKEN_FILE...

A few agents stand for many hosts: each target is one of them under a name of its own. BYTES says how much of a host is
read: regions are skipped until it has no more than that; 0: none is.
"""

import os
import pathlib
import sys
import time

from controller import TICK, Controller, Look, get, memory_kib, targets_of

directory, hot = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
cases = [case.split(":") for case in sys.argv[3].split()]
agent_pids, agents = sys.argv[4].split(","), [pair.split("=", 1) for pair in sys.argv[5:]]
ADDRESS = "127.0.0.1:7180"


def start(name, targets, interval_ms, skip):
    skip = ", ".join(f'"{region}"' for region in skip)
    text = f'[http]\nlisten = "{ADDRESS}"\n[read]\ninterval = "{interval_ms}ms"\nskip = [{skip}]\n{os.environ.get("READ", "")}\n'
    text += f'[store]\ndir = "{directory}/farm-{name}"\nhot_file = "{hot}/farm-{name}"\n'
    text += f'[joined]\nfile = "{directory}/farm-{name}.json"\n' + targets_of(agents, targets)
    (directory / f"farm-{name}.toml").write_text(text)
    return Controller(directory, f"farm-{name}")


def skipped(most_bytes):
    """Names of regions without which a host has no more than so many bytes: the largest go first.

    Regions that packed blocks stand for are read once those are skipped, so that one look is not enough.
    """
    skip = []
    while True:
        controller = start("look", 1, 100, skip)
        try:
            detail = lambda: get(ADDRESS, "/api/onlooker/v1/hosts/host-00000")
            controller.wait_for("the first host is read", 60, lambda: get(ADDRESS, "/api/onlooker/v1/status")["hosts"].get("reading") == 1 and detail()["cycles"] > 3)
            regions = {region["name"]: region["bytes"] for region in detail()["regions_list"] if not region["problem"]}
        finally:
            controller.kill()
        kept, more = 0, []
        for name, size in sorted(regions.items(), key=lambda region: (region[0] != "beacon", region[1])):
            if kept + size > most_bytes:
                more.append(name)
            else:
                kept += size
        if not more:
            print(f"{kept} bytes are read of a host: {', '.join(regions)}", file=sys.stderr, flush=True)
            return skip
        skip += more


def threads(pid):
    """CPU ticks by the names of threads."""
    ticks = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        fields = rest.split()
        ticks[name] = ticks.get(name, 0) + int(fields[11]) + int(fields[12])
    return ticks


def softirq_ticks():
    with open("/proc/stat") as file:
        return int(file.readline().split()[7])


def program_ns():
    """What the agents' BPF programs have taken while the kernel measured it, ns."""
    spent = {}
    for agent in agent_pids:
        for number in os.listdir(f"/proc/{agent}/fdinfo"):
            try:
                with open(f"/proc/{agent}/fdinfo/{number}") as file:
                    lines = dict(line.split(":", 1) for line in file if ":" in line)
            except FileNotFoundError:
                continue
            if "run_time_ns" in lines:
                spent[lines["prog_id"]] = int(lines["run_time_ns"])
    return sum(spent.values())


def answering_us(seconds):
    """What a reading takes of the hosts' responders, which run within the reading thread's sends here; us."""
    readings = lambda: get(ADDRESS, "/api/onlooker/v1/status")["cycles"]
    with open("/proc/sys/kernel/bpf_stats_enabled", "r+") as stats:
        stats.write("1")
        stats.flush()
        try:
            spent_ns, begun = program_ns(), readings()
            time.sleep(seconds)
            return (program_ns() - spent_ns) / 1e3 / max(readings() - begun, 1)
        finally:
            stats.seek(0)
            stats.write("0")


def at(values, quantile):
    values = sorted(values)
    return values[min(len(values) - 1, int(quantile * len(values)))]


def run(name, targets, interval_ms, most_bytes, seconds):
    targets, interval_ms, most_bytes, seconds = int(targets), int(interval_ms), int(most_bytes), int(seconds)
    skip = skipped(most_bytes) if most_bytes else ["tcp_connections"]
    controller = start(name, targets, interval_ms, skip)
    try:
        until_all_s = controller.wait_for("all hosts are read", 600, lambda: get(ADDRESS, "/api/onlooker/v1/status")["hosts"].get("reading") == targets)
        controller.wait_for("every host has been read twice", 600, lambda: all(host["cycles"] > 1 for host in get(ADDRESS, "/api/onlooker/v1/hosts")["hosts"]))
        time.sleep(min(20, seconds))
        first, before, soft = Look(ADDRESS, controller.pid), threads(controller.pid), softirq_ticks()
        time.sleep(seconds)
        last, after, soft = Look(ADDRESS, controller.pid), threads(controller.pid), softirq_ticks() - soft
        answering = answering_us(min(5, seconds))
        memory = memory_kib(controller.pid)[1] + os.stat(hot / f"farm-{name}").st_blocks / 2
    finally:
        controller.kill()
    passed_s = (last.steady_ms - first.steady_ms) / 1e3
    unaccounted, readings, reasons = 0, 0, {}
    for host in last.hosts:
        off, cycles, gaps, _ = last.unaccounted(first, host, interval_ms)
        unaccounted, readings = unaccounted + off, readings + cycles
        for reason, count in gaps.items():
            reasons[reason] = reasons.get(reason, 0) + count
    spent = {thread: ticks - before.get(thread, 0) for thread, ticks in after.items()}
    series = sum(host["series"] for host in last.hosts.values())
    late = [host["lateness_us"] for host in last.hosts.values()]
    share = lambda ticks: f"{ticks / TICK / passed_s * 100:.1f} %"
    engine_us = spent.get("engine", 0) / TICK / max(readings, 1) * 1e6
    shares = ", ".join(f"{thread} {share(ticks)}" for thread, ticks in sorted(spent.items(), key=lambda one: -one[1]) if ticks)
    print(f"{name}: {readings} readings in {passed_s:.0f} s, gaps {reasons}; of a core: {shares}; softirq of all cores {share(soft)}; "
          f"of a reading: {engine_us:.1f} us of the reading thread, {answering:.1f} of them hosts' programs; {(last.status['reads'] - first.status['reads']) / max(readings, 1):.1f} READs a reading; "
          f"lateness max {max(one['max'] for one in late) / 1e3:.1f} ms; {memory * 1024 / max(series, 1):.0f} bytes a series", file=sys.stderr, flush=True)
    for label, value in {
        "until_all_s": round(until_all_s, 1),
        "unaccounted": unaccounted,
        "gaps": round(sum(reasons.values()) / max(1, readings + sum(reasons.values())), 5),
        "lateness_p50_ms": round(at([one["p50"] for one in late], 0.5) / 1e3, 3),
        "lateness_p99_ms": round(at([one["p99"] for one in late], 0.99) / 1e3, 3),
        "memory_kib": round(memory / targets, 1),
        "engine_us": round(engine_us - answering, 2),
    }.items():
        print("figure", name, label, value, flush=True)


for case in cases:
    run(*case)
