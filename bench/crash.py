# SPDX-License-Identifier: Apache-2.0
"""Kills a controller and damages its store, again and again, and judges what is there afterwards; for bench/crash-test.

Usage: crash.py DIRECTORY KILLS DAMAGES SEED

The hosts' beacons (bench/beacon.c) make every sample checkable by itself. Beside that, what the controller serves while it runs is noted here, with the times up to
which it said that it was durable: that must be there after every kill, and after damage all of it that did not lie in what was cut or flipped. Until the first damage it
forwards to a database and tells an Alertmanager (crash_peers.py): after all kills they must have heard everything, and nothing else.
"""

import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from crash_peers import Peers

directory, kills, damages, seed = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
MASK = (1 << 64) - 1
INTERVAL_MS = 10.0
PAGE_MS = 20_000
NAMES = ["first", "second"]
SERIES = ["beacon_number", "beacon_boottime_ns", "beacon_check"]
children = []


def start(arguments, ready, log, **environment):
    """Starts a program and waits for a line of its standard error; gives both."""
    path = directory / log
    with open(path, "wb") as errors:
        child = subprocess.Popen(arguments, stderr=errors, stdout=errors, env={**os.environ, **environment})
    children.append(child)
    end = time.monotonic() + 60
    while time.monotonic() < end and child.poll() is None:
        for line in path.read_text().splitlines() if ready else [""]:
            if ready in line:
                return child, line
        time.sleep(0.002)
    sys.exit(f"{arguments[0]} did not say `{ready}`:\n{path.read_text()}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def world():
    targets = ""
    for name in NAMES:
        home, port = directory / name, free_port()
        home.mkdir()
        (home / "agent.toml").write_text(
            f'[agent]\nsocket = "{home}/agent.sock"\nstate_dir = "{home}/state"\n[bootstrap]\nlisten = "127.0.0.1:{port}"\n'
            '[tcp]\nlisten = "127.0.0.1:0"\nmax_connections = 1000\nmax_connections_per_source = 1000\n[sampled]\ninterval = "100ms"\n')
        start(["build/onlooker-agent", "run", "--config", str(home / "agent.toml")], "ready: ", f"{name}.log")
        token = subprocess.run(["build/onlooker-agent", "token", "--config", str(home / "agent.toml")], check=True, capture_output=True)
        (home / "token").write_bytes(token.stdout)
        start([str(directory / "beacon"), "5", "20"], "", f"{name}-beacon.log", ONLOOKER_SOCKET=str(home / "agent.sock"))
        targets += f'[[targets]]\naddress = "127.0.0.1:{port}"\nname = "{name}"\ntoken_file = "{home}/token"\ninterval = "10ms"\n'
    (directory / "controller.toml").write_text(
        f'[http]\nlisten = "127.0.0.1:0"\n[store]\ndir = "{directory}/store"\nhot_file = "{directory}/hot"\nhot_bytes = "16MiB"\n{targets}'
        + peers.configuration(directory))


class Controller:
    """A run of the controller."""

    def __init__(self):
        begin = time.monotonic()
        arguments = ["build/onlooker", "controller", "--config", str(directory / "controller.toml")]
        self.process, line = start(arguments, "dashboard http", "controller.log")
        self.address = line.split("http://")[1].strip().rstrip("/")
        while any(not host["cycles"] for host in self.get("/api/onlooker/v1/hosts")["hosts"]):
            time.sleep(0.005)
        self.recovery_ms = (time.monotonic() - begin) * 1e3

    def get(self, path, **query):
        pairs = urllib.parse.urlencode(query, doseq=True)
        with urllib.request.urlopen(f"http://{self.address}{path}?{pairs}", timeout=60) as answer:
            return json.load(answer)

    def series(self, name):
        """The text of the beacon's series; they need a reading that has its region."""
        while True:
            found = self.get(f"/api/onlooker/v1/hosts/{name}/series", search="beacon", limit=1000)["series"]
            texts = [next((one["series"] for one in found if one["name"] == wanted), None) for wanted in SERIES]
            if all(texts):
                return texts
            time.sleep(0.02)

    def rows(self, name, from_ms, to_ms):
        """Rows by time, gaps, and the time up to which they are durable."""
        rows, gaps, durable_ms = {}, [], 0
        while from_ms < to_ms:
            end_ms = min(from_ms + PAGE_MS, to_ms)
            page = self.get(f"/api/onlooker/v1/hosts/{name}/range", series=texts[name], from_ms=from_ms, to_ms=end_ms, points=5000)
            assert page["bucket_ms"] == 0
            if page["series"][0]["t_ms"]:
                for time_ms, *values in zip(page["series"][0]["t_ms"], *(one["last"] for one in page["series"])):
                    rows[time_ms] = tuple(int(value) for value in values)
            durable_ms = max(durable_ms, page["series"][0].get("durable_until_ms") or 0)
            gaps += [(gap["from_ms"], gap["to_ms"], gap["reason"]) for gap in page["gaps"]]
            from_ms = end_ms
        return rows, gaps, durable_ms

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0


def late_ms(time_ms, row):
    """How long after the program's own look at the clock its commit's time is; nothing of a row that was never committed."""
    number, boot_ns, check = row
    utc_ms = time.time() * 1e3 - time.clock_gettime(time.CLOCK_BOOTTIME) * 1e3 + boot_ns / 1e6
    return time_ms - utc_ms if check == (number * 0x9E3779B97F4A7C15 & MASK) >> 12 else None


def is_right(time_ms, row):
    # Right after it, unless the program lost its CPU in between.
    late = late_ms(time_ms, row)
    return late is not None and -50 < late < 1_000


class Record:
    """What a host's rows must be."""

    def __init__(self):
        self.rows, self.durable_ms, self.seen_ms = {}, 0.0, 0.0


def note(controller):
    """Looks at the newest rows of all hosts."""
    for name, record in records.items():
        rows, _, durable_ms = controller.rows(name, max(record.seen_ms - 50, began_ms), time.time() * 1e3)
        record.rows.update(rows)
        record.durable_ms = max(record.durable_ms, durable_ms)
        record.seen_ms = max(record.seen_ms, *rows, 0.0)


def judge(controller, why, damaged):
    """Compares all that is there with all that must be."""
    global wrong, lost_durable, lost_by_kills, damage_without_gap, lost_to_damage
    for name, record in records.items():
        rows, gaps, _ = controller.rows(name, began_ms, time.time() * 1e3)
        bad = [at for at, row in rows.items() if not is_right(at, row)]
        bad += [at for at, row in record.rows.items() if at in rows and rows[at] != row]
        numbers = [row[0] for _, row in sorted(rows.items())]
        twice = sum(1 for a, b in zip(numbers, numbers[1:]) if b <= a)
        if bad or twice:
            some = [(at, rows[at], record.rows.get(at), late_ms(at, rows[at])) for at in bad[:3]]
            print(f"{why}: {name}: {len(bad)} wrong rows, {twice} out of order or twice; time, row, row as noted, ms that its commit is late: {some}")
        wrong += len(bad) + twice
        missing = sorted(at for at in record.rows if at not in rows)
        if damaged:
            # The store is told of a gap a moment after the rows that end it are shown.
            end = time.monotonic() + 20
            while True:
                bare = [at for at in missing if not any(f - 0.01 <= at <= t + 0.01 for f, t, _ in gaps)]
                if not bare or time.monotonic() > end:
                    break
                time.sleep(0.05)
                _, gaps, _ = controller.rows(name, began_ms, time.time() * 1e3)
            if bare:
                print(f"{why}: {name}: {len(bare)} of {len(missing)} lost rows are in no gap, the first at {bare[0]}")
            damage_without_gap += len(bare)
            lost_to_damage.append(len(missing))
            for at in missing:
                del record.rows[at]
        else:
            durable = sum(1 for at in missing if at <= record.durable_ms - 0.001)
            if missing:
                print(f"{why}: {name}: {len(missing)} rows are missing, {durable} of them were durable")
            lost_durable += durable
            lost_by_kills += len(missing)


def gap_of(controller, reason, at_ms):
    """Whether the time between the last row before an instant and the first one after it is a gap with this reason, on all hosts."""
    end = time.monotonic() + 20
    for name in records:
        while True:
            rows, gaps, _ = controller.rows(name, at_ms - 2_000, time.time() * 1e3)
            before, after = max((at for at in rows if at <= at_ms), default=None), min((at for at in rows if at > at_ms), default=None)
            told = [(f, t) for f, t, why in gaps if why == reason and f <= at_ms <= t]
            # From the last row of any region of the host, which may be a little later than the beacon's.
            if before and after and any(before - 0.01 <= f and t <= after + INTERVAL_MS * 5 for f, t in told):
                break
            if time.monotonic() > end:
                print(f"{name}: the time from {before} over {at_ms} to {after} is no gap `{reason}` but {told}")
                return False
            time.sleep(0.05)
    return True


def judge_peers(controller):
    """Waits until the peers have heard of all that was seen, and says what they have not."""
    global alerts, forwarded
    until_ms, end = max(record.seen_ms for record in records.values()), time.monotonic() + 180
    firing = lambda: {(one["labels"]["alertname"], one["labels"]["instance"]) for one in controller.get("/api/v1/alerts")["data"]["alerts"] if one["state"] == "firing"}
    while time.monotonic() < end:
        target = controller.get("/api/onlooker/v1/status")["forward"][0]
        is_sent = target["lag_ms"] > 0 and time.time() * 1e3 - target["lag_ms"] > until_ms
        alerts = peers.judge_alerts(firing())
        # An end that was not told before a kill is told a minute later.
        if is_sent and alerts[1:] == (0, 0):
            break
        time.sleep(0.2)
    lost = wrong = 0
    for name, record in records.items():
        missing, other = peers.compare(name, record.rows)
        if missing or other:
            print(f"forwarded: {name}: {len(missing)} samples are missing, the first at {min(missing, default=0)}; {len(other)} are others")
        lost, wrong = lost + len(missing), wrong + len(other)
    forwarded = sum(len(record.rows) for record in records.values()), lost, wrong + peers.wrong


def damage():
    """Cuts or flips one of the store's files; says what and where."""
    kinds = [sorted(path for path in (directory / "store" / name).glob("*") if path.stat().st_size) for name in ("wal", "warm", "catalogue")]
    kinds.append([path for path in (directory / "store" / "gaps.log", directory / "hot") if path.stat().st_size])
    # The newest one of each kind is what a crash would damage; the older ones what a disk does.
    files = chance.choice([files for files in kinds if files])
    path = chance.choice([chance.choice(files), files[-1]])
    size = path.stat().st_size
    kind = chance.choice(["cut", "flip"])
    if kind == "cut":
        at = chance.randrange(size)
        os.truncate(path, at)
    else:
        with open(path, "r+b") as file:
            # The ring's front is in use, the rest a hole.
            at = chance.randrange(min(size, 1 << 20) if path.name == "hot" else size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
    return f"{kind} {path.parent.name}/{path.name} at {at} of {size}"


def run_for_a_while(controller):
    end = time.monotonic() + chance.uniform(0.2, 1.5)
    while time.monotonic() < end:
        note(controller)
        time.sleep(min(0.1, max(0.0, end - time.monotonic())))
    note(controller)
    # So that the moment of the kill has nothing to do with the looks.
    time.sleep(chance.uniform(0, 0.05))


peers = Peers()
try:
    world()
    began_ms = time.time() * 1e3 - 1_000
    wrong = lost_durable = lost_by_kills = damage_without_gap = kills_without_gap = 0
    lost_to_damage, recoveries = [], []
    records = {name: Record() for name in NAMES}
    controller = Controller()
    texts = {name: controller.series(name) for name in NAMES}
    for number in range(1, kills + 1):
        run_for_a_while(controller)
        controller.kill()
        at_ms = time.time() * 1e3
        time.sleep(chance.choice([0, 0, chance.uniform(0, 0.5)]))
        controller = Controller()
        recoveries.append(controller.recovery_ms)
        kills_without_gap += not gap_of(controller, "controller_down", at_ms)
        judge(controller, f"kill {number}", False)
    judge_peers(controller)
    for number in range(1, damages + 1):
        run_for_a_while(controller)
        controller.kill()
        what = damage()
        controller = Controller()
        recoveries.append(controller.recovery_ms)
        judge(controller, f"damage {number} ({what})", True)
    run_for_a_while(controller)
    controller.stop()
    at_ms = time.time() * 1e3
    controller = Controller()
    kills_without_gap += not gap_of(controller, "stopped", at_ms)
    judge(controller, "stop", False)
    controller.stop()
finally:
    for child in children:
        if child.poll() is None:
            child.kill()
        child.wait()

recoveries.sort()
total = sum(len(record.rows) for record in records.values())
print(f"seed {seed}; {total} samples noted and there at the end; {sum(lost_to_damage)} lost to damage, all in gaps, at most {max(lost_to_damage, default=0)} of a host by one")
print(f"recovery (start of the program until all hosts are read): median {recoveries[len(recoveries) // 2]:.0f} ms, max {recoveries[-1]:.0f} ms")
for name, value in {
    "kills": kills,
    "damages": damages,
    "lost_durable": lost_durable,
    "lost_by_kills": lost_by_kills,
    "wrong": wrong,
    "damage_without_gap": damage_without_gap,
    "kills_without_gap": kills_without_gap,
    "forwarded": forwarded[0],
    "forwarded_lost": forwarded[1],
    "forwarded_wrong": forwarded[2],
    "alerts": alerts[0],
    "alerts_lost": alerts[1],
    "alerts_doubled": alerts[2],
    "recovery_median_ms": round(recoveries[len(recoveries) // 2]),
    "recovery_max_ms": round(recoveries[-1]),
}.items():
    print("figure", name, value)
