#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what a controller has marked as invalid with what `onlooker-bench faults` has planted: for bench/bench-checks.

    checks.py URL FAULTS SECONDS

Prints lines `figure NAME VALUE`. A sample is a fault's if it was committed while that lasted, by the program's own
times; clocks of host and controller agree within TOLERANCE_NS, and the program commits every 5 ms.
"""
import bisect
import json
import sys
import urllib.parse
import urllib.request
from collections import defaultdict

TOLERANCE_NS = 1_000_000
# Name: the reason, and how long after the end of a fault it may be marked, ns: a reset is in the first sample behind it.
KINDS = {
    "fault_spike": ("outlier", 0),
    "fault_stuck": ("still", 0),
    "fault_negative": ("range", 0),
    "fault_reset_total": ("monotone", 100_000_000),
    "fault_silent": ("absent", 0),
}


def query(url, expression):
    body = urllib.parse.urlencode({"query": expression}).encode()
    with urllib.request.urlopen(f"{url}/api/v1/query", body, timeout=120) as answer:
        return json.load(answer)["data"]["result"]


def ns(seconds):
    # The interface has times in ms and finer.
    return round(float(seconds) * 1e9)


def planted(path):
    """By series: sorted beginnings and ends."""
    faults = defaultdict(list)
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            _, name, number, since, until = line.split()
            faults[name, number].append((int(since), int(until)))
    return {series: sorted(times) for series, times in faults.items()}


def within(times, at, after=0):
    """Which fault a time is of, or None."""
    number = bisect.bisect_right(times, (at + TOLERANCE_NS, float("inf"))) - 1
    return number if number >= 0 and at < times[number][1] + after + TOLERANCE_NS else None


def main():
    url, path, seconds = sys.argv[1], sys.argv[2], sys.argv[3]
    faults = planted(path)
    marks = defaultdict(list)
    for series in query(url, f'onlooker_invalid_sample{{metric=~"fault_.+"}}[{seconds}s]'):
        labels = series["metric"]
        times = [ns(time) for time, _ in series["values"]]
        marks[labels["metric"], labels["n"]] += [(time, labels["reason"]) for time in times]
    found = wrong_reason = missed = good = good_marked = passed_on = 0
    count = sum(map(len, faults.values()))
    for name, (reason, after) in KINDS.items():
        for series in query(url, f"{name}[{seconds}s]"):
            key = name, series["metric"]["n"]
            times, mine = faults.get(key, []), marks[key]
            seen = set()
            for at, why in mine:
                fault = within(times, at, after)
                if fault is None:
                    good_marked += 1
                    print(f"marked for nothing: {key} {why} at {at}", file=sys.stderr)
                elif why != reason:
                    wrong_reason += 1
                    print(f"wrong reason: {key} {why} at {at}", file=sys.stderr)
                else:
                    seen.add(fault)
            found += len(seen)
            for number in set(range(len(times))) - seen:
                print(f"not found: {key} {times[number]}", file=sys.stderr)
            marked = {at for at, _ in mine}
            for time, value in series["values"]:
                at = ns(time)
                fault = within(times, at)
                is_inner = fault is not None and times[fault][0] + TOLERANCE_NS <= at < times[fault][1] - TOLERANCE_NS
                if name in ("fault_spike", "fault_negative"):
                    passed_on += not 0 <= float(value) <= 100
                    if is_inner and at not in marked:
                        missed += 1
                        print(f"missed: {key} {at}", file=sys.stderr)
                good += fault is None
    for figure, value in [
        ("planted", count),
        ("found", found / max(count, 1)),
        ("wrong_reason", wrong_reason),
        ("missed", missed),
        ("good", good),
        ("good_marked", good_marked / max(good, 1)),
        ("passed_on", passed_on),
    ]:
        print(f"figure {figure} {value}")


if __name__ == "__main__":
    main()
