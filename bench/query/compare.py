# SPDX-License-Identifier: Apache-2.0
"""Asks several servers of Prometheus' API the same queries in turn, compares answers and times.

Usage: compare.py QUERIES NOW SECONDS ROUNDS NAME=ADDRESS...   (the first one is the one that is to be fastest)
Prints a line a query, and for bench/bench-query lines `figure NAME VALUE`.
"""

import http.client
import json
import math
import statistics
import sys
import time
import urllib.parse

TIMEOUT_S = 600


def ask(address, path):
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    begin = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - begin
    connection.close()
    if answer.status != 200:
        sys.exit(f"{address}{path}: {answer.status} {body[:300]}")
    return took, body


def path(query, reach, step, now):
    if step == 0:
        return "/api/v1/query?" + urllib.parse.urlencode({"query": query, "time": now})
    # Steps are whole ones, as Grafana's.
    end = now // step * step
    asked = {"query": query, "start": end - reach, "end": end, "step": step}
    return "/api/v1/query_range?" + urllib.parse.urlencode(asked)


def samples(body):
    """By series and time."""
    found = {}
    for series in json.loads(body)["data"]["result"]:
        name = tuple(sorted(series["metric"].items()))
        for at, value in series.get("values") or [series["value"]]:
            found[name, float(at)] = float(value)
    return found


def differences(ours, theirs):
    """How many of both are only there, or differ by more than sums in another order do."""
    close = lambda a, b: a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    return sum(key not in ours or key not in theirs or not close(ours[key], theirs[key]) for key in ours.keys() | theirs.keys())


def main():
    queries, now, seconds, rounds, *servers = sys.argv[1:]
    now, seconds, rounds = int(now), int(seconds), int(rounds)
    servers = [server.split("=") for server in servers]
    ratios = {name: [] for name, _ in servers[1:]}
    different, asked, own = {name: 0 for name, _ in servers[1:]}, 0, []
    with open(queries, encoding="utf-8") as lines:
        wanted = [line.strip().split(" ", 2) for line in lines if not line.startswith("#")]
    for reach, step, query in wanted:
        reach, step = int(reach), int(step)
        if reach > seconds:
            continue
        url = path(query, reach, step, now)
        times, first = {name: [] for name, _ in servers}, {}
        for number in range(rounds + 1):
            for name, address in servers:
                took, body = ask(address, url)
                # The first time warms caches of files, and is compared.
                if number == 0:
                    first[name] = samples(body)
                else:
                    times[name].append(took)
        medians = {name: statistics.median(all_times) for name, all_times in times.items()}
        ours = servers[0][0]
        own.append(medians[ours])
        shown = [f"{name} {medians[name] * 1e3:.1f} ms" for name, _ in servers]
        for name, _ in servers[1:]:
            ratios[name].append(medians[name] / medians[ours])
            wrong = differences(first[ours], first[name])
            different[name] += wrong > 0
            shown.append(f"{ratios[name][-1]:.1f} x of {name}" + (f" ({wrong} of {len(first[name])} samples differ)" if wrong else ""))
        asked += 1
        print(f"{reach:6} {step:4} {', '.join(shown)}: {query} ({len(first[ours])} samples)", flush=True)
    print(f"figure queries {asked}")
    print(f"figure slowest {max(own) * 1e3:.1f}")
    for name in ratios:
        print(f"figure {name}_least {min(ratios[name]):.2f}")
        print(f"figure {name}_median {statistics.median(ratios[name]):.2f}")
        print(f"figure {name}_different {different[name]}")


main()
