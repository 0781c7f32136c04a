# SPDX-License-Identifier: Apache-2.0
"""Lets controllers read a fleet and forward what they read as it comes, disturbs both sides, and compares what arrived; for bench/bench-forward-live.

Usage: forward_live.py DIRECTORY HOSTS ALONE SINK CAPACITY BEFORE DOWN DATABASE... DIRECTORY has the configuration of a controller and, in targets.toml, the hosts. Times are in s:
without forwarding, to the sink, of measuring what a database can take, before it goes down, and down. Prints lines `figure NAME VALUE`.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import time

from controller import TICK, Look, get
from forwarding import Controller, Database, InfluxDB, Prometheus, VictoriaMetrics, counts, differences, fetch, samples, start, wait_for

DATABASES = {"victoriametrics": VictoriaMetrics, "influxdb": InfluxDB, "prometheus": Prometheus}
# Of so many series every sample is compared, of all the number of samples.
COMPARED = 30
PIECE_MS = 300_000
# A value that stands is told again every 10 s, counted from when somebody began to look.
SELDOM_S = 2
# Readings that were late may follow one another so closely.
MOST_IN_ONE_MS = 5

# Half of the machine is the hosts' and the controller's.
Database.environment = {**os.environ, "GOMAXPROCS": "1"}

directory = pathlib.Path(sys.argv[1])
hosts, alone_s, sink_s, capacity_s, before_s, down_s = map(int, sys.argv[2:8])
databases = sys.argv[8:]
targets = (directory / "targets.toml").read_text().split("\n\n")


def figure(name, value):
    print("figure", name, round(value, 6), flush=True)


def reading(name, kind="", url="", most=hosts):
    """A controller that reads so many hosts."""
    controller = Controller(directory, name, kind, url, more="\n".join([*targets[:most], ""]))
    wait_until_read(controller, most)
    return controller


def wait_until_read(controller, most):
    def is_read():
        there = get(controller.address, "/api/onlooker/v1/hosts")["hosts"]
        return len(there) == most and all(host["state"] == "reading" and host["cycles"] > 100 for host in there)

    wait_for("the hosts", 60, is_read)


def look(controller):
    return Look(controller.address, controller.process.pid)


def judge(name, controller, first):
    """How the hosts were read since a look: lateness since the controller's start, gaps and CPU time since the look."""
    last = look(controller)
    each = [last.unaccounted(first, host, 10) for host in last.hosts]
    cycles, gaps = sum(one[1] for one in each), sum(sum(one[2].values()) for one in each)
    figure(f"{name}_lateness_p99_us", max(host["lateness_us"]["p99"] for host in last.hosts.values()))
    figure(f"{name}_gap_ratio", gaps / (cycles + gaps))
    figure(f"{name}_cpu_percent", (last.ticks - first.ticks) / TICK / (last.steady_ms - first.steady_ms) * 1e5)


def compare_counts(controller, from_ms, to_ms, theirs):
    """How many samples each series has there and here: all series that are not seldom, samples, those that are only here, and only there. Of those in the same ms remote write has the last."""
    asked = {"match[]": '{instance=~".+"}', "start": from_ms / 1e3, "end": to_ms / 1e3}
    names = get(controller.address, "/api/v1/label/__name__/values", **asked)["data"]
    series, counted, lost, more, different = [], 0, 0, 0, 0
    # The bare name of a histogram is that of the native one.
    for name in sorted(name for name in names if f"{name}_bucket" not in names):
        there = theirs(name)
        for labels, count in counts(controller.address, name, from_ms, to_ms).items():
            if count < max(10, (to_ms - from_ms) / 1e3 / SELDOM_S):
                continue
            series.append(labels)
            counted += count
            off = count - there.get(labels, 0)
            if 0 < off < MOST_IN_ONE_MS:
                [own] = samples(controller.address, dict(labels), from_ms, to_ms).values()
                off = len(own) - there.get(labels, 0)
            lost, more = lost + max(0, off), more + max(0, -off)
            different += off != 0
            if off and different <= 20:
                print(f"{labels}: {count} samples here, {there.get(labels, 0)} there")
    return series, counted, lost, more


def to_sink():
    """To a sink that counts the samples of a time that it is told before."""
    from_ms = int(time.time() + 8) * 1000
    to_ms = from_ms + sink_s * 1000
    log = directory / "sink.log"
    sink = start(["target/store-peers/store-peers", "sink", str(from_ms), str(to_ms)], log, "wb", stdin=subprocess.PIPE)
    address = wait_for("the sink", 10, lambda: "listening" in log.read_text() and log.read_text().split()[1])
    controller = reading("sink", "prometheus", f"http://{address}/write")
    time.sleep(max(0, from_ms / 1e3 - time.time()))
    first, lags = look(controller), []
    while time.time() * 1e3 < to_ms:
        lags.append(controller.target()["lag_ms"])
        time.sleep(1)
    judge("sink", controller, first)
    controller.wait_until_sent(to_ms / 1e3, 60)
    told = json.loads(fetch(f"http://{address}/counts"))
    there = {}
    for one in told["series"]:
        labels = tuple(sorted(one["metric"].items()))
        there.setdefault(one["metric"]["__name__"], {})[labels] = one["count"]
    series, counted, lost, more = compare_counts(controller, from_ms, to_ms, lambda name: there.get(name, {}))
    print(f"sink: {told['counted']} samples of {len(told['series'])} series in {sink_s} s, {counted} of {len(series)} series compared; retries {controller.target()['retries']}")
    figure("sink_rate", told["counted"] / sink_s)
    figure("sink_lag_max_ms", max(lags))
    figure("sink_compared", counted)
    figure("sink_lost", lost)
    figure("sink_wrong", more + told["disordered"])
    controller.kill()
    sink.kill()
    return from_ms, to_ms, told["counted"] / sink_s / hosts


def capacity(name, database, from_ms, to_ms):
    """Samples a second that a database takes of what the store has, while nothing is read."""
    controller = Controller(directory, f"{name}-capacity", database.kind, database.url, since_ns=from_ms * 1_000_000)
    wait_for("the first samples", 60, lambda: controller.target()["samples"] > 0)
    begin, sent = time.monotonic(), controller.target()["samples"]
    while time.monotonic() - begin < capacity_s:
        time.sleep(0.5)
        if time.time() * 1e3 - controller.target()["lag_ms"] >= to_ms:
            break
    rate = (controller.target()["samples"] - sent) / (time.monotonic() - begin)
    controller.kill()
    return rate


def to_database(name, recorded, rate_a_host):
    """At half of what it takes; it is down for a while, and the controller is killed twice, once while it is down, once while it catches up."""
    database = DATABASES[name](directory / name)
    most = capacity(name, database, *recorded)
    database.remove()
    figure(f"{name}_capacity", most)
    chosen = min(hosts, max(1, math.floor(most / 2 / rate_a_host + 0.5)))
    database = DATABASES[name](directory / name)
    controller = reading(name, database.kind, database.url, chosen)
    wait_for("the first samples", 60, lambda: controller.target()["samples"] > 0)
    from_ms = int(time.time() * 1e3)
    time.sleep(before_s)
    print(f"{name}: takes {most:.0f} samples/s, is sent those of {chosen} hosts, with a lag of {controller.target()['lag_ms']:.0f} ms", flush=True)
    database.stop()
    down = time.monotonic()
    wait_for("a retry", 60, lambda: controller.target()["retries"] > 0)
    controller.kill()
    controller.start()
    wait_until_read(controller, chosen)
    first = look(controller)
    time.sleep(max(0, down + down_s - time.monotonic()))
    judge(f"{name}_down", controller, first)
    retries = controller.target()["retries"]
    database.start()
    up = time.monotonic()
    # In the middle of what waits.
    wait_for("half of what waits", 3_600, lambda: 0 < controller.target()["lag_ms"] < (down_s + time.monotonic() - up) * 500)
    controller.kill()
    controller.start()
    wait_until_read(controller, chosen)
    to_ms = int(time.time() * 1e3)
    controller.wait_until_sent(to_ms / 1e3, 3_600)
    print(f"{name}: all sent {time.monotonic() - up:.1f} s after it was back; given up {controller.target()['dropped_samples']}", flush=True)
    controller.kill()
    # Nobody reads while answers are compared.
    controller = Controller(directory, "asked", "", "")
    database.flush()
    series, counted, lost, wrong = compare_counts(controller, from_ms, to_ms, lambda metric: database.counts(metric, from_ms, to_ms))
    figure(f"{name}_share", counted / (to_ms - from_ms) * 1e3 / most)
    compared = 0
    for labels in series[:: max(1, len(series) // COMPARED)]:
        for piece_ms in range(from_ms, to_ms, PIECE_MS):
            asked = dict(labels), piece_ms, min(piece_ms + PIECE_MS, to_ms)
            found = differences(samples(controller.address, *asked), database.samples(*asked), database.tolerance)
            compared, lost, wrong = compared + found[0], lost + found[1], wrong + found[2]
    print(f"{name}: {counted} samples of {len(series)} series counted, {compared} values compared, of {(to_ms - from_ms) / 1e3:.0f} s")
    for what, value in {"compared": counted, "lost": lost, "wrong": wrong, "retries": retries}.items():
        figure(f"{name}_{what}", value)
    controller.kill()
    database.remove()


controller = reading("alone")
first = look(controller)
time.sleep(alone_s)
judge("alone", controller, first)
controller.kill()
*recorded, rate_a_host = to_sink()
for name in databases:
    to_database(name, recorded, rate_a_host)
