# SPDX-License-Identifier: Apache-2.0
"""What a Prometheus has scraped of a controller, beside what the controller itself answers over PromQL.

    agreement.py CONTROLLER PROMETHEUS HOST..

`/metrics` has no times: those of Prometheus are when it asked. So what a scrape shows of values that were acquired
together is one of our samples of them, bit for bit: the last one when the answer was made. A query of ours for its time
gives the same series and values, for all that a scrape shows of a host at once if nothing of it was acquired before the
answer and came after it; and what counters rose by between two scrapes is the same. Prints how much was compared, then
what differs; exits 1 if anything does.
"""

import json
import re
import sys
import time
import urllib.parse
import urllib.request
from bisect import bisect_right

MS, SECOND_NS = 10**6, 10**9
SCRAPES = 6
# So long a host may not be read until its series end.
SILENCE_NS = 5 * SECOND_NS
# Prometheus moves times of scrapes by so much, to have them even.
MOVED_NS = 2 * MS
PATIENCE_S = 60
# `/metrics` does not have these; what it says of the controller and its hosts is recorded every 10 s, with what it is then, which no scrape shows.
NOT_COMPARED = re.compile("up|ALERTS|ALERTS_FOR_STATE|onlooker_(host|controller)_.+")
COUNTERS = [
    "node_context_switches_total",
    "node_intr_total",
    "node_forks_total",
    "node_network_receive_bytes_total",
    "node_network_transmit_packets_total",
    "node_pressure_cpu_waiting_seconds_total",
    "node_vmstat_pgfault",
]
wrong = []


def ns(text):
    """Of decimal seconds, exactly."""
    whole, _, fraction = text.partition(".")
    return int(whole) * SECOND_NS + int(fraction.ljust(9, "0"))


def seconds(time_ns):
    return f"{time_ns // SECOND_NS}.{time_ns % SECOND_NS:09}"


def ask(address, query, time_ns):
    """Series with their samples. Native histograms, which `/metrics` does not have, have none."""
    form = urllib.parse.urlencode({"query": query, "time": seconds(time_ns)}).encode()
    with urllib.request.urlopen(f"http://{address}/api/v1/query", data=form, timeout=60) as answer:
        result = json.load(answer, parse_float=str, parse_int=str)["data"]["result"]
    found = {}
    for one in result:
        labels = {name: value for name, value in one["metric"].items() if name != "job"}
        values = [one["value"]] if "value" in one else one.get("values", [])
        if values and not NOT_COMPARED.fullmatch(labels.get("__name__", "")):
            found[frozenset(labels.items())] = [(ns(at), float(value)) for at, value in values]
    return found


def until(what, look):
    """Waits for a state."""
    end = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > end:
            sys.exit(f"not in {PATIENCE_S} s: {what}")
        time.sleep(0.05)


def is_same(one, other):
    """Bit for bit; all NaNs are one."""
    return one.hex() == other.hex()


def name(series):
    labels = dict(series)
    return labels.pop("__name__", "") + json.dumps(labels, sort_keys=True)


class Part:
    """Series whose values are acquired together."""

    def __init__(self, times_ns):
        self.times_ns = times_ns
        self.values = {}

    def at(self, time_ns):
        """Number of its last sample then; -1: it has none yet."""
        return bisect_right(self.times_ns, time_ns) - 1

    def shown(self, shown, begin_ns, end_ns):
        """Numbers of those of its samples that were the last ones somewhere in that time and are what is shown."""
        numbers = range(max(self.at(begin_ns), 0), self.at(end_ns) + 1)
        return {at for at in numbers if all(is_same(values[at], shown[series]) for series, values in self.values.items())}


def parts(found):
    by_times = {}
    for series, samples in found.items():
        times_ns = tuple(at for at, _ in samples)
        by_times.setdefault(times_ns, Part(times_ns)).values[series] = [value for _, value in samples]
    return list(by_times.values())


def find_parts(of, at_ns, end_ns, shown, ours):
    """Parts that a scrape shows which was answered between both times, each with the numbers of those samples that it may be."""
    known = {series for part in ours for series in part.values}
    wrong.extend(f"{of}: only Prometheus has {name(series)}" for series in shown.keys() - known)
    numbers = {}
    for part in ours:
        missing = part.values.keys() - shown.keys()
        # One that came or went about then may be there or not.
        is_sure = part.times_ns[0] <= at_ns - SILENCE_NS and part.times_ns[-1] > end_ns
        if missing and (is_sure or len(missing) < len(part.values)):
            wrong.extend(f"{of}: only we have {name(series)}" for series in missing)
        elif not missing:
            numbers[part] = part.shown(shown, at_ns - SILENCE_NS, end_ns)
            series = next(iter(part.values))
            if not numbers[part]:
                wrong.append(f"{of}: {shown[series]} was never ours of {name(series)}, with the {len(part.values) - 1} that go with it")
    return {part: some for part, some in numbers.items() if some}


def find_times(numbers):
    """Times of whole ms, each with the parts of which we had then what is shown: all of them, most often."""
    left, begins = dict(numbers), {part.times_ns[at] for part, some in numbers.items() for at in some}
    times = {}
    while left:
        had = {at: [part for part in left if part.at(at) in left[part]] for at in {-(-begin // MS) * MS for begin in begins}}
        at_ns = max(had, key=lambda at: (len(had[at]), -at))
        if not had[at_ns]:
            wrong.extend(f"rows of less than a ms: {name(next(iter(part.values)))}" for part in left)
            break
        times[at_ns] = had[at_ns]
        left = {part: some for part, some in left.items() if part not in had[at_ns]}
    return times


def compare(controller, prometheus, host, scrapes):
    """How many samples, times and increases were compared."""
    selector, (first_ns, last_ns) = f'{{instance="{host}"}}', (scrapes[0][0], scrapes[-1][0])
    end_ns = scrapes[-1][1]
    # What was read until the end of the last scrape can be asked for.
    until(f"rows of {host}", lambda: ask(controller, f"{selector}[1s]", end_ns + 3 * SECOND_NS // 2))
    theirs = ask(prometheus, f"{selector}[{(last_ns - first_ns) // MS + 1}ms]", last_ns)
    ours = parts(ask(controller, f"{selector}[{(end_ns - first_ns) // SECOND_NS + 25}s]", end_ns + 2 * SECOND_NS))
    samples, queries, edges = 0, 0, []
    for at_ns, until_ns in scrapes:
        of = f"{host} at {seconds(at_ns)}"
        shown = {series: value for series, all in theirs.items() for at, value in all if at == at_ns}
        samples += len(shown)
        times = find_times(find_parts(of, at_ns, until_ns, shown, ours))
        queries += len(times)
        for time_ns, had in times.items():
            answered = {series: all[0][1] for series, all in ask(controller, selector, time_ns).items()}
            for series in (series for part in had for series in part.values):
                if series not in answered or not is_same(answered[series], shown[series]):
                    wrong.append(f"{of}: {name(series)} is {shown[series]}; asked for {seconds(time_ns)} we say {answered.get(series)}")
        edges.append({series: time_ns for time_ns, had in times.items() for part in had for series in part.values})
    increases = 0
    for counter in COUNTERS:
        scraped = f"{counter}{selector}[{(last_ns - first_ns) // MS + 1}ms]"
        rose = ask(prometheus, f"max_over_time({scraped}) - min_over_time({scraped})", last_ns)
        both = [series for series in edges[0].keys() & edges[-1].keys() if ("__name__", counter) in series]
        for from_ns, to_ns in {(edges[0][series], edges[-1][series]) for series in both}:
            risen = ask(controller, f"increase({counter}{selector}[{(to_ns - from_ns) // MS}ms] anchored)", to_ns)
            for series in (series for series in both if (edges[0][series], edges[-1][series]) == (from_ns, to_ns)):
                labels = series - {("__name__", counter)}
                one = rose.get(labels, [(0, None)])[0][1]
                # Where a value stands there may be no sample of ours in that time.
                other = risen.get(labels, [(0, 0.0)])[0][1]
                increases += 1
                if one is None or not is_same(one, other):
                    wrong.append(f"{host}: {name(series)} rose by {one} in Prometheus, by {other} here")
    return samples, queries, increases


def main(controller, prometheus, *hosts):
    def newest():
        """Begin and end of those that were not too slow for Prometheus."""
        now_ns = time.time_ns()
        counts, durations = (ask(prometheus, f"{metric}[20s]", now_ns).values() for metric in ("scrape_samples_scraped", "scrape_duration_seconds"))
        taken = {at for samples in counts for at, count in samples if count > 0}
        return [(at, at + int(duration * SECOND_NS) + MOVED_NS) for samples in durations for at, duration in samples if at in taken][-SCRAPES:]

    until(f"{SCRAPES} scrapes", lambda: len(newest()) == SCRAPES)
    scrapes = newest()
    samples, queries, increases = (sum(all) for all in zip(*(compare(controller, prometheus, host, scrapes) for host in hosts)))
    print(f"{samples} samples of {len(scrapes)} scrapes, by {queries} queries, and {increases} increases: {len(wrong)} different")
    print("\n".join(wrong[:20]))
    return 1 if wrong or samples < 5000 or increases < len(hosts) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
