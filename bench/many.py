# SPDX-License-Identifier: Apache-2.0
"""Runs a controller with more and more targets, and judges what it keeps, what that costs and how it answers meanwhile; for bench/soak-many.

Usage: many.py DIRECTORY HOT_DIRECTORY "TARGETS:INTERVAL_MS:SECONDS ..." ADDRESS=TOKEN_FILE...

A few agents stand for many hosts: each target is one of them under a name of its own, and everything that a controller does for a host (bootstrap, session, tracks, store) it
does for each name. At the end of a run the controller is killed: what it had shown of the newest seconds, durable or not, must be there after its restart.
"""

import os
import pathlib
import sys
import time

from controller import TICK, Controller, Look, body, get, memory_kib, targets_of

directory, hot = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / "rows"
cases = [tuple(int(number) for number in case.split(":")) for case in sys.argv[3].split()]
agents = [pair.split("=", 1) for pair in sys.argv[4:]]
ADDRESS = "127.0.0.1:7180"
SHOWN = ["beacon_number", "beacon_boottime_ns", "beacon_check"]
# Hosts of which rows are compared before and after the kill, and how far back.
SAMPLED_HOSTS = 20
WINDOW_MS = 20_000


def configure(name, targets, interval_ms):
    text = f'[http]\nlisten = "{ADDRESS}"\n[read]\ninterval = "{interval_ms}ms"\n'
    # Everything else as shipped: the hot memory, too.
    text += f'[store]\ndir = "{directory}/store-{name}"\nhot_file = "{hot}-{name}"\n'
    text += f'[joined]\nfile = "{directory}/joined-{name}.json"\n'
    text += targets_of(agents, targets)
    (directory / f"{name}.toml").write_text(text)


def states():
    return get(ADDRESS, "/api/onlooker/v1/status")["hosts"]


def timed(path):
    begin = time.monotonic()
    size = len(body(ADDRESS, path))
    return (time.monotonic() - begin) * 1e3, size


def rows(host, texts, from_ms, to_ms):
    """Rows by time, and the time up to which they are durable."""
    page = get(ADDRESS, f"/api/onlooker/v1/hosts/{host}/range", series=texts, from_ms=from_ms, to_ms=to_ms, points=5000)
    assert page["bucket_ms"] == 0, "a page has every row"
    columns = page["series"]
    return {at: values for at, *values in zip(columns[0]["t_ms"], *(one["last"] for one in columns))}, columns[0].get("durable_until_ms") or 0


def texts_of(host):
    found = get(ADDRESS, f"/api/onlooker/v1/hosts/{host}/series", search="beacon", limit=1000)["series"]
    return [next(one["series"] for one in found if one["name"] == wanted) for wanted in SHOWN]


def run(targets, interval_ms, seconds):
    name = f"{targets}_{interval_ms}ms"
    configure(name, targets, interval_ms)
    controller = Controller(directory, name)
    try:
        began = controller.wait_for("all hosts are read", 120 + targets / 10, lambda: states().get("reading") == targets)
        print(f"{name}: all read after {began:.0f} s", file=sys.stderr, flush=True)
        # Definitions go to the disk, first readings show what there is.
        controller.wait_for("every host has been read twice", 60 + targets / 10, lambda: all(host["cycles"] > 1 for host in get(ADDRESS, "/api/onlooker/v1/hosts")["hosts"]))
        time.sleep(5)
        first = Look(ADDRESS, controller.pid)
        lag, memory, took, end, slow = 0.0, 0, {"status": [], "hosts": [], "metrics": []}, time.monotonic() + seconds, 0.0
        while time.monotonic() < end:
            milliseconds, _ = timed("/api/onlooker/v1/status")
            took["status"].append(milliseconds)
            lag = max(lag, get(ADDRESS, "/api/onlooker/v1/status")["store"]["durable_lag_ms"] or 0.0)
            memory = max(memory, memory_kib(controller.pid)[1])
            if time.monotonic() > slow:
                took["hosts"].append(timed("/api/onlooker/v1/hosts")[0])
                took["metrics"].append(timed("/metrics")[0])
                slow = time.monotonic() + 15
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
        last = Look(ADDRESS, controller.pid)
        hot_kib = os.stat(f"{hot}-{name}").st_blocks / 2
        unaccounted, readings, reasons = 0, 0, {}
        for host in last.hosts:
            off, cycles, gaps, _ = last.unaccounted(first, host, interval_ms)
            unaccounted, readings = unaccounted + off, readings + cycles
            for reason, count in gaps.items():
                reasons[reason] = reasons.get(reason, 0) + count
        hosts = sorted(last.hosts)[::max(1, targets // SAMPLED_HOSTS)][:SAMPLED_HOSTS]
        texts = {host: texts_of(host) for host in hosts}
        now_ms = time.time() * 1e3
        seen = {host: rows(host, texts[host], now_ms - WINDOW_MS, now_ms) for host in hosts}
        controller.kill()
        controller = Controller(directory, name)
        # Rows of a host are there at once; its series by their texts are with its first reading.
        back = controller.wait_for("all hosts are read again", 120 + targets / 10, lambda: states().get("reading") == targets)
        lost = lost_durable = wrong = compared = 0
        for host, (before, durable_ms) in seen.items():
            after, _ = rows(host, texts[host], now_ms - WINDOW_MS, now_ms)
            missing = [at for at in before if at not in after]
            compared += len(before)
            lost += len(missing)
            lost_durable += sum(1 for at in missing if at <= durable_ms)
            wrong += sum(1 for at in before if at in after and after[at] != before[at])
    finally:
        controller.kill()
    passed_s = (last.steady_ms - first.steady_ms) / 1e3
    values = last.status["store"]["values"] - first.status["store"]["values"]
    stored = last.status["store"]["bytes"] - first.status["store"]["bytes"]
    due = readings + sum(reasons.values())
    print(f"{name}: {readings} readings of {due} due times in {passed_s:.0f} s ({reasons}); {values / passed_s:.0f} values/s, {stored / passed_s / 1e6:.2f} MB/s; "
          f"{(last.ticks - first.ticks) / TICK / passed_s * 100:.0f} % of a core; killed: {compared} rows compared, {lost} lost, all read again after {back:.0f} s", file=sys.stderr, flush=True)
    for label, value in {
        "lag_ms": round(lag),
        "refused": last.status["store"]["refused_rows"],
        "unaccounted": unaccounted,
        "bytes_per_value": round(stored / values, 3) if values else "none",
        "memory_kib_per_host": round((memory + hot_kib) / targets),
        "status_ms": round(max(took["status"])),
        "hosts_ms": round(max(took["hosts"])),
        "metrics_ms": round(max(took["metrics"])),
        "lost_durable": lost_durable if compared else "none",
        "lost_by_kill": lost if compared else "none",
        "wrong": wrong,
    }.items():
        print("figure", name, label, value, flush=True)


for case in cases:
    run(*case)
