# SPDX-License-Identifier: Apache-2.0
"""Has an unprivileged program attack the agent of one host, and somebody at the HTTP port the controller that reads it and two honest hosts, and judges them; for bench/attack.

Usage: attack.py DIRECTORY SECONDS CONTROLLER_PID AGENT_PID BEACON_PID NETWORK SOCKET. The attacked host is host-2, its network namespace NETWORK.
"""

import http.client
import json
import re
import subprocess
import sys
import threading
import time

from controller import Look, body, get, memory_kib

directory, seconds = sys.argv[1], float(sys.argv[2])
controller, agent = int(sys.argv[3]), int(sys.argv[4])
beacon, network, agent_socket = sys.argv[5], sys.argv[6], sys.argv[7]
ADDRESS = "127.0.0.1:7180"
HONEST, ATTACKED = ["host-0", "host-1"], "host-2"
INTERVAL_MS = 100.0
# What spoofs and blanks say: nothing of this is ever a value of these series.
LIES = {"666", "99"}
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


def exposition():
    """Values of each series of each host that is not the intruder's, types of their families, and how many series are there twice."""
    values, types, twice = {}, {}, 0
    for line in body(ADDRESS, "/metrics").decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ", 3)
            types[name] = kind
        elif line and not line.startswith("#"):
            series, value = line.rsplit(" ", 1)
            name, _, rest = series.partition("{")
            # To Prometheus a label without a value is none.
            labels = tuple(sorted((label, text) for label, text in LABEL.findall(rest) if text))
            host, program = dict(labels).get("instance"), dict(labels).get("program", "")
            # What the controller itself counts of hosts comes as it happens.
            if host is None or name.startswith(("intruder", "neighbour", "onlooker_host_", "onlooker_controller_")) or program.startswith("python"):
                continue
            twice += (name, labels) in values
            values[name, labels] = value
    return values, {name: types.get(name) for name, _ in values}, twice


def differences(before, after):
    """Series that came, went or have another type; each is printed."""
    found = 0
    for what, names in (("gone", before[0].keys() - after[0].keys()), ("new", after[0].keys() - before[0].keys())):
        for name, labels in sorted(names)[:5]:
            print(f"{what}: {name} {dict(labels)}")
        found += len(names)
    other = [name for name, kind in before[1].items() if after[1].get(name, kind) != kind]
    for name in other:
        print(f"type: {name} was {before[1][name]}, is {after[1][name]}")
    return found + len(other)


def lies(there, before):
    """Series of others that say what the intruder says."""
    found = [series for series, value in there[0].items() if value in LIES and before[0].get(series) not in LIES and series[0] in LIED_ABOUT]
    for name, labels in found[:5]:
        print(f"a lie: {name} {dict(labels)}")
    return len(found)


LIED_ABOUT = {"node_load1", "node_load5", "node_memory_MemTotal_bytes", "beacon_number", "beacon_check"}


class Port:
    """Somebody at the controller's port, from another address than ours: queries that are as long as can be, and connections that say nothing."""

    def __init__(self):
        self.tried, self.answers, self.end = 0, {}, time.monotonic() + seconds
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=work) for work in [self.query] * 8 + [self.hold]]
        for thread in self.threads:
            thread.start()

    def query(self):
        while time.monotonic() < self.end:
            now_ms = time.time() * 1e3
            connection = http.client.HTTPConnection("127.0.0.1", 7180, timeout=30, source_address=("127.0.0.2", 0))
            try:
                connection.request("GET", f"/api/onlooker/v1/hosts/{ATTACKED}/range?match=intruder_seconds&from_ms={now_ms - 86_400_000}&to_ms={now_ms}&points=5000")
                answer = connection.getresponse()
                answer.read()
                what = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                what = type(error).__name__
            connection.close()
            with self.lock:
                self.tried += 1
                self.answers[what] = self.answers.get(what, 0) + 1
            if what != "200":
                time.sleep(0.05)

    def hold(self):
        held = []
        while time.monotonic() < self.end:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", 7180, timeout=1, source_address=("127.0.0.2", 0))
                connection.connect()
                connection.sock.send(b"GET /api/onlooker/v1/hosts HTTP/1.1\r\nHost: ")
                held.append(connection)
            except OSError:
                time.sleep(0.05)
            if len(held) > 700:
                held.pop(0).close()
            time.sleep(0.002)
        for connection in held:
            connection.close()


def rows_between(host, from_ms, to_ms):
    """Rows of the host's plain counters, which every reading has one of."""
    found = get(ADDRESS, f"/api/onlooker/v1/hosts/{host}/series", search="beacon_events_total", limit=1000)["series"]
    page = get(ADDRESS, f"/api/onlooker/v1/hosts/{host}/range", series=[found[0]["series"]], from_ms=from_ms, to_ms=to_ms, points=5000)
    assert page["bucket_ms"] == 0, "a page has every row"
    return len(page["series"][0]["t_ms"])


def as_user(number, *scheduling):
    """Prefix of a command that runs as a user without rights on the attacked host."""
    return ["nsenter", f"--net=/run/netns/{network}", *scheduling, "setpriv", "--reuid", str(number), "--regid", str(number), "--clear-groups", "env", "PYTHONDONTWRITEBYTECODE=1", "python3"]


for _ in range(600):
    there = get(ADDRESS, "/api/onlooker/v1/hosts")["hosts"]
    if len(there) == 3 and all(host["state"] == "reading" and host["cycles"] > 100 for host in there):
        break
    time.sleep(0.1)
else:
    sys.exit(f"not all hosts are read: {[(host['name'], host['state'], host['error']) for host in there]}")
time.sleep(8)  # groups that are sampled every five seconds
before = exposition()
first = Look(ADDRESS, controller)
# The intruder stands for a busy program on another machine: it takes no time from this one's controller and honest hosts.
intruder = subprocess.Popen([*as_user(65534, "chrt", "-i", "0"), f"{directory}/intruder.py", agent_socket, str(seconds), beacon, "beacon"], stdout=subprocess.PIPE, text=True)
neighbour = subprocess.Popen([*as_user(1234, "chrt", "-f", "10"), f"{directory}/neighbour.py", agent_socket, str(seconds)], stdout=subprocess.PIPE, text=True)
port = Port()
memory, status_ms, wrong, twice, untrue, slow = 0, 0.0, 0, 0, 0, 0.0
try:
    while time.monotonic() < port.end:
        begin = time.monotonic()
        get(ADDRESS, "/api/onlooker/v1/status")
        status_ms = max(status_ms, (time.monotonic() - begin) * 1e3)
        memory = max(memory, memory_kib(controller)[1])
        if time.monotonic() > slow:
            there = exposition()
            wrong, twice, untrue = max(wrong, differences(before, there)), max(twice, there[2]), max(untrue, lies(there, before))
            slow = time.monotonic() + 5
        time.sleep(0.2)
    attacks, _ = intruder.communicate(timeout=60)
    answers, _ = neighbour.communicate(timeout=60)
finally:
    for child in (intruder, neighbour):
        if child.poll() is None:
            child.kill()
        child.wait()
    for thread in port.threads:
        thread.join()
time.sleep(3)
last = Look(ADDRESS, controller)
after = exposition()
wrong, twice, untrue = max(wrong, differences(before, after)), max(twice, after[2]), max(untrue, lies(after, before))
unaccounted = gaps = missing = 0
for host in HONEST:
    off, cycles, reasons, slack = last.unaccounted(first, host, INTERVAL_MS)
    print(f"{host}: {cycles} readings, gaps {reasons}")
    unaccounted, gaps = unaccounted + off, gaps + sum(reasons.values())
    there = rows_between(host, first.utc_ms, last.utc_ms)
    missing += max(0, cycles - there - round(slack))
print(f"{ATTACKED}: {last.unaccounted(first, ATTACKED, INTERVAL_MS)[2]}")
tried = {}
for line in attacks.splitlines():
    _, name, count, done = line.split()
    tried[name] = int(count)
    print(f"attack {name}: {count} times, {done} of them not refused")
print(f"range queries: {port.tried}, answered {port.answers}")
print(f"store: {json.dumps(last.status['store'])}")
_, answered, longest_ms, refused = answers.split()
for name, value in {
    "attacks_tried": sum(1 for count in tried.values() if count) + (port.tried > 0),
    "honest_gaps": gaps,
    "honest_unaccounted": unaccounted,
    "honest_rows_missing": missing,
    "refused_rows": last.status["store"]["refused_rows"],
    "lag_ms": round(last.status["store"]["durable_lag_ms"] or 0),
    "series_changed": wrong,
    "series_twice": twice,
    "lies": untrue,
    "agent_answers": answered,
    "agent_longest_ms": longest_ms,
    "neighbour_refused": refused,
    "controller_mib": round(memory / 1024),
    "status_ms": round(status_ms),
}.items():
    print("figure", name, value)
