#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares a watched host's metrics, as a controller has them, with node_exporter's, name by name and series by series (bench/parity).

A value of ours has a time: that of its region's last acquisition. It is compared with what node_exporter gave in the scrapes around that time: a counter must lie between
them, a gauge between the least and the greatest of them, give or take what TOLERANCE says. A counter must do so at every look, and so must a gauge that stood still at
node_exporter all the time; one that moves, at half of them.

A name that is absent is absent for a reason, which is asked of the host and which node_exporter must not refute; or by decision (DECISIONS), whatever the host has: those
are a figure of their own.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import threading
import time

from exposition import fetch, parse

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("seconds", type=float)
arguments.add_argument("controller", help="URL; the watched host is its target `host`")
arguments.add_argument("exporter", help="URL of node_exporter's metrics; `-`: nothing is compared, only that each name is there or has its reason, at most for SECONDS")
arguments.add_argument("names", help="file with the names that are to be compared")
arguments.add_argument("--figures", default="parity", help="what the names of the figures begin with")
arguments.add_argument("--guest", action="store_true", help="the watched host is a guest of the laboratory: what it has not got is asked there")
arguments = arguments.parse_args()
SECONDS, CONTROLLER, EXPORTER, NAMES = arguments.seconds, arguments.controller, arguments.exporter, arguments.names
SCRAPE_S, LOOK_S = 0.5, 1.0
# Acquisition times are known to within this.
MARGIN_S = 0.35

# Give or take: what the kernel or the two ways of asking round or keep back, and what both of us disturb. (pattern, absolute, relative)
TOLERANCE = [
    (r"node_cpu_(guest_)?seconds_total", 0.03, 0),  # ticks of 4 and 10 ms, read one CPU after the other
    (r"node_pressure_|node_schedstat_.*seconds", 0.01, 0),
    (r"node_load", 0.011, 0),  # procfs has hundredths
    (r"node_memory_", 4 << 20, 0.005),  # statistics that each CPU keeps back (125 pages each)
    (r"node_filesystem_.*bytes", 64 << 20, 0),
    (r"node_filesystem_files", 2000, 0),
    (r"node_disk_", 0.01, 0),
    (r"node_(processes|procs)_", 5, 0),
    (r"node_filefd_allocated", 320, 0),
    (r"node_sockstat_(TCP|UDP)_mem_bytes", 3 * os.sysconf("SC_PAGESIZE"), 0.02),  # as the next line has it of pages
    (r"node_(sockstat|tcp_connection_states|udp_queues|netstat_Tcp_CurrEstab)", 3, 0.02),
    (r"node_tcp_connection_states.*queued", 65536, 0),
    (r"node_time_seconds", 1, 0),  # the clock on the wall
    (r"node_timex_", 1e-3, 1e-6),
    (r"node_entropy_available", 256, 0),
    (r"node_nf_conntrack_entries$", 3, 0),
]
COUNTER = re.compile(r".*_total$|node_vmstat_|node_netstat_(?!Tcp_CurrEstab|Ip_Forwarding|Tcp_MaxConn)")
# Gauges of an instant, 0 at most of them: that node_exporter never met another value does not mean that there was none between its looks.
INSTANT = re.compile(r"node_disk_io_now$")
# Not a value of the machine's but of whoever measures: there, and sane.
OWN = re.compile(r"process_|node_scrape_collector_duration_seconds")
# Sums over CPUs that the controller makes of what is computed (crates/series/src/derive).
DERIVED = re.compile(r"node_(context_switches_total|procs_running|procs_blocked|intr_total|forks_total|boot_time_seconds|network_(receive|transmit)_|disk_)")
# Series that are 0 here where node_exporter has none: states in which nobody is.
ZEROES = re.compile(r"node_(processes_state|tcp_connection_states)$")


def holds(command):
    """Whether a shell command succeeds on the watched host."""
    if arguments.guest:
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lab/kernel"))
        import guest
        return guest.holds(command)
    return subprocess.run(["sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def proc(path):
    return lambda: holds(f"head -c 1 {path}")


def line(path, front):
    return lambda: holds(f"grep -q '^{front}' {path}")


def some(pattern):
    return lambda: holds(f"ls -d {pattern}")


# Names that may be absent: pattern, whether the host has it after all, the reason where it has not.
REASONS = [
    (r"node_cooling_device_", some("/sys/class/thermal/cooling_device*"), "no cooling device in /sys/class/thermal"),
    (r"node_cpu_scaling_", some("/sys/devices/system/cpu/cpu*/cpufreq/scaling_cur_freq"), "no cpufreq driver"),
    (r"node_hwmon_", some("/sys/class/hwmon/*/[tf]*_input"), "no sensors in /sys/class/hwmon"),
    (r"node_power_supply_", some("/sys/class/power_supply/*/online"), "no power supply in /sys/class/power_supply"),
    (r"node_schedstat_", proc("/proc/schedstat"), "kernel without CONFIG_SCHEDSTATS: no /proc/schedstat"),
    (r"node_pressure_irq_", proc("/proc/pressure/irq"), "kernel without IRQ_TIME_ACCOUNTING: no /proc/pressure/irq"),
    (r"node_pressure_", proc("/proc/pressure/cpu"), "kernel without PSI"),
    (r"node_disk_", some("/sys/block/*"), "no block device in /sys/block"),
    (r"node_nf_conntrack_", proc("/proc/sys/net/netfilter/nf_conntrack_count"), "no connection tracking"),
    (r"node_kernel_hung_tasks", proc("/proc/sys/kernel/hung_task_detect_count"), "kernel without hung_task_detect_count (6.14)"),
]
# Names that are not there by decision, though a host may have them: pattern, why.
DECISIONS = [
    (r"node_systemd_", "not built: systemd's units are asked over D-Bus, which wakes systemd"),
    (r"node_textfile_scrape_error", "not built: programs publish regions, they do not write text files"),
]
# Of the names of parity.names. One more is to be noticed.
MOST_DECISIONS = 5


def decision(name):
    return next((why for pattern, why in DECISIONS if re.match(pattern, name)), None)


def reason_for(name):
    memory = re.fullmatch(r"node_memory_(\w+?)(_bytes)?", name)
    if memory:
        label = re.sub(r"(Active|Inactive)_(anon|file)", r"\1(\2)", memory[1])
        return None if line("/proc/meminfo", label + ":")() else f"kernel without it: no {label} in /proc/meminfo"
    for pattern, has, reason in REASONS:
        if re.match(pattern, name):
            return None if has() else reason
    return None


def absent(name, reason, decided):
    """The line of a name that is not there."""
    return f"{name:58} {'decided   ' if decided else 'absent    '} {reason or 'NO REASON'}"


scrapes, stop = [], threading.Event()


def scrape():
    while not stop.is_set():
        begin = time.time()
        try:
            series = parse(fetch(EXPORTER))
            scrapes.append((begin, time.time(), series))
        except OSError as error:
            if not scrapes and time.time() - START > 10:
                print(f"node_exporter: {error}", file=sys.stderr)
                stop.set()
        stop.wait(SCRAPE_S)


def tolerance(name, value):
    for pattern, absolute, relative in TOLERANCE:
        if re.match(pattern, name):
            return absolute + relative * abs(value) + 1e-9 * abs(value)
    return 1e-9 * abs(value)


def look(history):
    """What the controller has now, each value with the time of its acquisition (a list of ages asked for before would be of other values, where somebody is slow)."""
    series = json.loads(fetch(f"{CONTROLLER}/api/onlooker/v1/hosts/host/series?search=&limit=10000"))["series"]
    for one in series:
        name = one["name"]
        if name.startswith(("node_", "process_")) and one["time_ms"] and isinstance(one["value"], (int, float)):
            labels = frozenset((k, v) for k, v in one["labels"].items() if k != "instance")
            known = history.setdefault((name, labels), {"how": one["acquisition"], "points": []})
            known["how"] = one["acquisition"]
            at = one["time_ms"] / 1000
            # A sampled value is looked at once.
            if not known["points"] or at - known["points"][-1][0] > 0.2:
                known["points"].append((at, one["value"]))
    return len(series)


def bounds(key, at):
    """Least and greatest of what node_exporter gave around a time; None where it was not asked then."""
    before = [s for s in scrapes if s[1] <= at - MARGIN_S]
    after = [s for s in scrapes if s[0] >= at + MARGIN_S]
    if not before or not after:
        return None
    around = [s for s in scrapes if before[-1][0] <= s[0] <= after[0][0]]
    values = [s[2][key] for s in around if key in s[2]]
    return (min(values), max(values)) if values else ()


failed = False
def result(name, value, unit, operator, bound):
    global failed
    good = {"=": value == bound, "<=": value <= bound, ">=": value >= bound}[operator]
    failed |= not good
    print(f"RESULT {name} {value} {unit} (expected {operator} {bound}) {'pass' if good else 'fail'}")


def results(missing, decided, present):
    """The figures of the names; `missing` and `decided` are of those that are not there."""
    print(f"left out by decision: {len(decided)} names ({', '.join(decided) or 'none'}); missing without a reason: {', '.join(missing) or 'none'}")
    result(f"{arguments.figures}_missing_without_reason", len(missing), "names", "=", 0)
    result(f"{arguments.figures}_left_out_by_decision", len(decided), "names", "<=", MOST_DECISIONS)
    result(f"{arguments.figures}_names", present, "names", ">=", 150)


def names_only():
    """Whether each name is there or has its reason. Those that come late are waited for."""
    names, end, history, missing = open(NAMES).read().split(), time.time() + SECONDS, {}, None
    reasons = {}
    while missing is None or (missing and time.time() < end):
        time.sleep(0.3)
        try:
            look(history)
        except OSError as error:
            print(f"controller: {error}", file=sys.stderr)
        have = {key[0] for key in history}
        for name in names:
            if name not in have and name not in reasons:
                reasons[name] = decision(name) or reason_for(name)
        missing = [name for name in names if name not in have and reasons[name] is None]
    for name in names:
        ways = sorted({one["how"] for key, one in history.items() if key[0] == name})
        print(f"{name:58} {'+'.join(ways)}" if ways else absent(name, reasons[name], decision(name)))
    decided = [name for name in names if name not in have and decision(name)]
    results(missing, decided, sum(name in have for name in names))
    sys.exit(1 if failed else 0)


START = time.time()
if EXPORTER == "-":
    names_only()
thread = threading.Thread(target=scrape)
thread.start()
history = {}
while time.time() - START < SECONDS and not stop.is_set():
    try:
        look(history)
    except OSError as error:
        if time.time() - START > 20 and not history:
            print(f"controller: {error}", file=sys.stderr)
            stop.set()
            thread.join()
            sys.exit(2)
    time.sleep(LOOK_S)
time.sleep(2)
stop.set()
thread.join()
if not history or not scrapes:
    sys.exit(2)

theirs_by_name, ours_by_name = {}, {}
for _, _, series in scrapes:
    for key in series:
        theirs_by_name.setdefault(key[0], set()).add(key)
for key in history:
    ours_by_name.setdefault(key[0], set()).add(key)


def agrees(key):
    """Whether a series agrees with node_exporter's: how many of how many looks; whether node_exporter's stood still all the time; an example."""
    name = key[0]
    good = total = 0
    example = None
    theirs = {s[2].get(key) for s in scrapes}
    still = len(theirs) == 1 and None not in theirs
    for at, value in history[key]["points"]:
        found = bounds(key, at)
        if found is None:
            continue
        if found == ():
            found = (0.0, 0.0) if ZEROES.match(name) and value == 0 else None
        total += 1
        if found is None:
            is_good = ZEROES.match(name) is not None and any(s[2].get(key) is not None for s in scrapes)
        else:
            slack = tolerance(name + str(sorted(dict(key[1]).values())), value) if "queued" in str(key[1]) else tolerance(name, value)
            is_good = math.isnan(value) and math.isnan(found[0]) or found[0] - slack <= value <= found[1] + slack
        good += is_good
        if example is None or (not is_good and example[2]):
            example = (value, found, is_good)
    return good, total, still, example


def shown(number):
    return "-" if number is None else f"{number:.12g}"


unequal, missing, decided, present = [], [], [], 0
for name in open(NAMES).read().split():
    ours, theirs = ours_by_name.get(name, set()), theirs_by_name.get(name, set())
    if not ours:
        why = decision(name)
        if why:
            decided.append(name)
        else:
            why = None if theirs else reason_for(name)
            if why is None:
                missing.append(name)
        print(f"{absent(name, why, decision(name))}{'; node_exporter has it' if theirs else ''}")
        continue
    present += 1
    how = sorted({history[key]["how"] for key in ours})
    if DERIVED.match(name) and how == ["computed"]:
        how = ["derived"]
    elif DERIVED.match(name) and "computed" in how:
        how = ["derived" if one == "computed" else one for one in how]
    how = "+".join(how)
    example_key = sorted(ours, key=str)[0]
    if OWN.match(name):
        value = history[example_key]["points"][-1][1]
        verdict = "own" if value >= 0 else "NOT SANE"
        theirs_value = next((s[2][k] for s in reversed(scrapes) for k in s[2] if k[0] == name), None)
        print(f"{name:58} {how:10} {shown(value):>20} {shown(theirs_value):>20}  {verdict}, {len(ours)} series")
        if value < 0:
            unequal.append(name)
        continue
    label_names = lambda keys: {frozenset(k for k, _ in key[1]) for key in keys}
    # Collectors of ours have node_exporter's names, but it has more of them.
    lacking = set() if name.startswith("node_scrape_") else theirs - ours
    more = {key for key in ours - theirs if not ZEROES.match(name)}
    if name.startswith("node_scrape_"):
        more = set()
    if not theirs:
        value = history[example_key]["points"][-1][1]
        print(f"{name:58} {how:10} {shown(value):>20} {'-':>20}  this node_exporter has it not; {len(ours)} series")
        continue
    is_counter = COUNTER.match(name)
    bad, looks, worst = [], 0, None
    for key in sorted(ours & theirs | {k for k in ours if ZEROES.match(name)}, key=str):
        good, total, still, example = agrees(key)
        looks += total
        at_every_look = is_counter or still and not INSTANT.match(name)
        if total and (good < total if at_every_look else good * 2 < total):
            bad.append((dict(key[1]), good, total, example))
        worst = worst or example
    worst = bad[0][3] if bad else worst
    verdict = "equal" if looks else "not compared"
    if bad:
        labels, good, total, _ = bad[0]
        verdict = f"UNEQUAL {good} of {total} looks at {labels or 'it'}, {len(bad)} series"
    if lacking or more:
        verdict += f"; LABELS: lacks {[dict(k[1]) for k in sorted(lacking, key=str)][:2]}, has {[dict(k[1]) for k in sorted(more, key=str)][:2]} besides"
    if label_names(ours & theirs) - label_names(theirs):
        verdict += "; LABEL NAMES differ"
    span = worst[1] if worst else None
    between = "-" if not span else shown(span[0]) if span[0] == span[1] else f"{shown(span[0])}..{shown(span[1])}"
    print(f"{name:58} {how:10} {shown(worst[0] if worst else None):>20} {between:>20}  {verdict}")
    if bad or lacking or more or not looks:
        unequal.append(name)

print(f"{len(scrapes)} scrapes of node_exporter, {present} names here; unequal: {unequal or 'none'}")
results(missing, decided, present)
result(f"{arguments.figures}_unequal", len(unequal), "names", "=", 0)
sys.exit(1 if failed else 0)
