# SPDX-License-Identifier: Apache-2.0
"""Watches a controller that reads a fleet and judges what it tells and stores; for bench/soak-fleet.

Usage: fleet.py ADDRESS HOSTS SECONDS CONTROLLER_PID AGENT_PID...

A host's due times are a grid of its interval, so that how many there were between two looks follows from the time between them alone: they must be readings and
gaps, no more and no less, give or take what the looks themselves cut through. What is stored is read back through `range`: as many rows as there were readings,
every hole covered by a gap, and every row of the hosts' beacons (bench/beacon.c) right in itself.
"""

import sys
import time
import urllib.request

from controller import TICK, Look, get, memory_kib, ticks

INTERVAL_MS = 10.0
PAGE_MS = 40_000
MASK = (1 << 64) - 1

address, hosts, seconds, controller = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
agents = [int(pid) for pid in sys.argv[5:]]


def slope(points):
    """Least squares, per unit of x."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def head_mib():
    """What the store keeps of rows that are in no chunk yet."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("onlooker_controller_store_head_bytes ")) / 2**20


def is_read(host):
    return host["state"] == "reading" and host["via"] == "kernel" and host["cycles"] > 100


for _ in range(600):
    there = get(address, "/api/onlooker/v1/hosts")["hosts"]
    if len(there) == hosts and all(is_read(host) for host in there):
        break
    time.sleep(0.1)
else:
    sys.exit(f"not all hosts are read: {[(host['name'], host['state'], host['error']) for host in there if not is_read(host)]}")
time.sleep(3)
first, first_agents = Look(address, controller), [ticks(pid) for pid in agents]
heads = [head_mib()]
sizes, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    sizes.append((time.monotonic() / 60, *memory_kib(controller)))
    time.sleep(min(1.0, max(0.01, end - time.monotonic())))
last, last_agents = Look(address, controller), [ticks(pid) for pid in agents]
time.sleep(3)  # until the rows are in the log
heads.append(head_mib())

passed_ms = last.steady_ms - first.steady_ms
unaccounted = not_stored = uncovered = wrong = readings = missed = rows_seen = 0
reasons = {}
shown = ["beacon_number", "beacon_boottime_ns", "beacon_check"]
for name in sorted(last.hosts):
    off, cycles, gaps, slack = last.unaccounted(first, name, INTERVAL_MS)
    for reason, count in gaps.items():
        reasons[reason] = reasons.get(reason, 0) + count
    if off:
        print(f"{name}: {passed_ms / INTERVAL_MS:.1f} due times, {cycles} readings, gaps {gaps}")
        unaccounted += off
    readings, missed = readings + cycles, missed + sum(gaps.values())
    found = get(address, f"/api/onlooker/v1/hosts/{name}/series", search="beacon", limit=1000)["series"]
    # Plain counters are a row of every READ; load averages are looked at once a second.
    counter = next(series["series"] for series in found if series["name"] == "beacon_events_total")
    beacon = [next(series["series"] for series in found if series["name"] == wanted) for wanted in shown]
    times, holes, numbers = [], [], {}
    from_ms = first.utc_ms - 1_000
    while from_ms < last.utc_ms:
        to_ms = min(from_ms + PAGE_MS, last.utc_ms)
        page = get(address, f"/api/onlooker/v1/hosts/{name}/range", series=[counter, *beacon], from_ms=from_ms, to_ms=to_ms, points=5000)
        assert page["bucket_ms"] == 0, "a page has every row"
        times += page["series"][0]["t_ms"]
        holes += [(gap["from_ms"], gap["to_ms"]) for gap in page["gaps"]]
        number, boot, check = page["series"][1:]
        for at, time_ms in enumerate(number["t_ms"]):
            numbers[time_ms] = (int(number["last"][at]), int(boot["last"][at]), int(check["last"][at]))
        from_ms = to_ms + 0.001
    inside = sum(1 for time_ms in times if time_ms > first.utc_ms)
    rows_seen += inside
    if abs(inside - cycles) > slack:
        print(f"{name}: {cycles} readings, {inside} rows")
        not_stored += abs(inside - cycles)
    for a, b in zip(times, times[1:]):
        if b - a >= 2 * INTERVAL_MS + 1 and not any(f <= b and t >= a for f, t in holes):
            print(f"{name}: no row from {a:.3f} to {b:.3f} and no gap")
            uncovered += 1
        wrong += b <= a
    ordered = [numbers[time_ms] for time_ms in sorted(numbers)]
    offsets = [time_ms - numbers[time_ms][1] / 1e6 for time_ms in sorted(numbers)]
    # A commit's time comes right after the program's own look at the clock, unless it lost its CPU in between; UTC minus boot time is one number.
    least = min(offsets, default=0)
    found = {
        "whose check does not follow": sum(1 for number, _, check in ordered if check != (number * 0x9E3779B97F4A7C15 & MASK) >> 12),
        "far from their time": sum(1 for offset in offsets if offset - least > 500),
        "out of order or twice": sum(1 for a, b in zip(ordered, ordered[1:]) if b[0] <= a[0]),
        "of none": int(not ordered),
    }
    if any(found.values()):
        print(f"{name}: rows of the beacon {found}")
    wrong += sum(found.values())

used = last.ticks - first.ticks
each = [(b - a) / TICK / (passed_ms / 1e3) * 100 for a, b in zip(first_agents, last_agents)]
late = [host["lateness_us"] for host in last.hosts.values()]
took = [host["reads"]["latency_us"] for host in last.hosts.values()]
median = lambda numbers: sorted(numbers)[len(numbers) // 2]
# Rows wait up to eleven minutes for their chunk, so memory grows until then: what is judged is the rest.
settles = 12 if seconds >= 1200 else seconds / 180
settled = [size for size in sizes if size[0] - sizes[0][0] >= settles]
growth = slope([(x, anonymous) for x, _, anonymous in settled])
store = (first.status["store"], last.status["store"])
values = store[1]["values"] - store[0]["values"]
regions, series = median([host["regions"] for host in last.hosts.values()]), median([host["series"] for host in last.hosts.values()])
print(f"{readings} readings of {regions} regions and {series} series in {passed_ms / 1e3:.1f} s: {readings / passed_ms * 1e3:.0f} readings/s, "
      f"{values / passed_ms * 1e3:.0f} values/s stored; {rows_seen} rows of one region read back")
print(f"gaps: {missed} of {readings + missed} due times, by reason: {reasons}")
print(f"lateness, us: p50 {median([l['p50'] for l in late])} (median host), p99 {max(l['p99'] for l in late)}, max {max(l['max'] for l in late)} (worst host)")
print(f"due until read, us: p50 {median([t['p50'] for t in took])} (median host), p99 {max(t['p99'] for t in took)}, max {max(t['max'] for t in took)} (worst host)")
print(f"controller: {used / TICK / (passed_ms / 1e3) * 100:.1f} % of a core; resident {sizes[-1][1] / 1024:.1f} MiB at the end, of which {sizes[-1][2] / 1024:.1f} MiB are its own; heads {heads[0]:.1f} MiB at the beginning, {heads[1]:.1f} at the end")
print(f"agents: {sum(b - a for a, b in zip(first_agents, last_agents))} ticks in all, at most {max(each):.3f} % of a core")
print(f"store: {(store[1]['bytes'] - store[0]['bytes']) / 1e6:.1f} MB, refused rows {store[1]['refused_rows']}, failed {store[1]['failed']}")
figures = {
    "hosts": sum(1 for host in last.hosts.values() if is_read(host)),
    "unaccounted": unaccounted,
    "not_stored": not_stored,
    "uncovered": uncovered,
    "wrong": wrong,
    "gap_ratio": round(missed / (readings + missed), 6),
    "lateness_p99_us": max(l["p99"] for l in late),
    "cpu_percent": round(used / TICK / (passed_ms / 1e3) * 100, 1),
    "rss_mib": round(max(rss for _, rss, _ in sizes) / 1024, 1),
    "slope_kib_per_min": round(growth, 1),
    "bytes_per_value": round((store[1]["bytes"] - store[0]["bytes"]) / values, 3),
    "agent_percent": round(max(each), 3),
}
for name, value in figures.items():
    print("figure", name, value)
