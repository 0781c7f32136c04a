# SPDX-License-Identifier: Apache-2.0
"""Controllers that forward, the databases that they forward to, and whether both answer the same; for bench/forward.py and bench/forward_live.py."""

import atexit
import json
import shutil
import socketserver
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from controller import get

running = set()


@atexit.register
def stop_all():
    for process in running:
        process.kill()


def start(command, log, mode, **more):
    with open(log, mode) as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, **more)
    running.add(process)
    return process


def wait_for(what, most_s, check):
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        try:
            found = check()
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            found = None
        if found:
            return found
        time.sleep(0.1)
    sys.exit(f"{what}: not within {most_s} s")


def fetch(url, **query):
    if query:
        url += "?" + urllib.parse.urlencode(query)
    with urllib.request.urlopen(url, timeout=600) as answer:
        return answer.read()


def free_address():
    with socketserver.TCPServer(("127.0.0.1", 0), None) as server:
        return f"127.0.0.1:{server.server_address[1]}"


class Controller:
    """A run of the controller that DIRECTORY/controller.toml configures, and `more`; it forwards to one target, from `since_ns` on if that is said."""

    def __init__(self, directory, name, kind, url, since_ns=None, more=""):
        self.log, self.config = directory / f"controller-{name}.log", directory / f"{name}.toml"
        plain = (directory / "controller.toml").read_text()
        section = f'[[forward]]\nname = "{name}"\nkind = "{kind}"\nurl = "{url}"\nmatch = [\'{{instance=~".+"}}\']\n' if url else ""
        self.config.write_text(plain + more + section)
        if since_ns is not None:
            cursor = directory / "store" / "forward" / f"{name}.json"
            cursor.parent.mkdir(exist_ok=True)
            cursor.write_text(json.dumps({"done_ns": since_ns, "doing_ns": since_ns}))
        self.start()

    def start(self):
        self.process = start(["build/onlooker", "controller", "--config", str(self.config)], self.log, "wb")
        text = wait_for("the controller", 60, lambda: "dashboard http" in self.log.read_text() and self.log.read_text())
        self.address = text.split("dashboard http://")[1].split("/")[0]

    def target(self):
        return get(self.address, "/api/onlooker/v1/status")["forward"][0]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait_until_sent(self, end_s, most_s=1_800):
        """Until all samples up to this time have been sent; with lag 0 nothing has."""
        wait_for(f"all up to {end_s} sent", most_s, lambda: (lag_ms := self.target()["lag_ms"]) > 0 and time.time() * 1e3 - lag_ms >= end_s * 1e3)


class Database:
    """A server of a database, which can be stopped for a while. Times are in ms, the end excluded."""

    kind = "prometheus"
    # Relative, of values.
    tolerance = 0
    # Of all that are written in Go: `GOMAXPROCS=1` is one processor.
    environment = None

    def __init__(self, directory, command, address, ready):
        self.directory, self.command, self.address, self.ready = directory, command, address, f"http://{address}{ready}"
        directory.mkdir(exist_ok=True)
        self.start()

    def start(self):
        self.process = start(self.command, f"{self.directory}.log", "ab", env=self.environment)
        wait_for(self.command[0], 600, lambda: fetch(self.ready) is not None)

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def remove(self):
        self.stop()
        shutil.rmtree(self.directory)

    def flush(self):
        """Until what it has taken can be asked for."""


class Prometheus(Database):
    def __init__(self, directory):
        address = free_address()
        directory.mkdir()
        (directory / "prometheus.yml").write_text("")
        flags = {"config.file": directory / "prometheus.yml", "storage.tsdb.path": directory / "data", "web.listen-address": address, "query.timeout": "10m", "query.max-samples": 10**9}
        command = ["target/store-peers/prometheus", "--web.enable-remote-write-receiver", "--log.level=error", *(f"--{name}={value}" for name, value in flags.items())]
        super().__init__(directory, command, address, "/-/ready")
        self.url = f"http://{address}/api/v1/write"

    def samples(self, labels, from_ms, to_ms):
        return samples(self.address, labels, from_ms, to_ms, 1_000_000)

    def counts(self, name, from_ms, to_ms):
        return counts(self.address, name, from_ms, to_ms, 1_000_000)


class VictoriaMetrics(Prometheus):
    # It keeps twelve to fifteen digits.
    tolerance = 1e-10

    def __init__(self, directory):
        address = free_address()
        flags = [f"-storageDataPath={directory}", f"-httpListenAddr={address}", "-retentionPeriod=10y", "-search.maxQueryDuration=10m"]
        # It answers the newest samples, too, and those that came twice once.
        flags += ["-search.latencyOffset=1ms", "-dedup.minScrapeInterval=1ms"]
        Database.__init__(self, directory, ["target/store-peers/victoria-metrics", *flags], address, "/health")
        self.url = f"http://{address}/api/v1/write"

    def flush(self):
        fetch(f"http://{self.address}/internal/force_flush")

    def samples(self, labels, from_ms, to_ms):
        asked = {"match[]": selector(labels), "start": seconds_of(from_ms), "end": seconds_of(to_ms - 1)}
        answers = [json.loads(line) for line in fetch(f"http://{self.address}/api/v1/export", **asked).splitlines()]
        return {key(answer["metric"]): dict(zip(answer["timestamps"], answer["values"])) for answer in answers}


class InfluxDB(Database):
    kind = "influxdb"

    def __init__(self, directory):
        address = free_address()
        directory.mkdir()
        (directory / "influxdb.conf").write_text(
            f'reporting-disabled = true\nbind-address = "{free_address()}"\n[meta]\ndir = "{directory}/meta"\n[data]\ndir = "{directory}/data"\nwal-dir = "{directory}/wal"\n'
            f'[http]\nbind-address = "{address}"\nlog-enabled = false\n'
        )
        super().__init__(directory, ["influxd", "-config", str(directory / "influxdb.conf")], address, "/ping?verbose=true")
        urllib.request.urlopen(urllib.request.Request(f"http://{address}/query", data=b"q=CREATE DATABASE onlooker"), timeout=60).close()
        self.url = f"http://{address}/write?db=onlooker&precision=ns"

    def query(self, what, name, labels, from_ms, to_ms):
        where = "".join(f"\"{label}\"='{value}' AND " for label, value in labels.items())
        query = f"SELECT {what} FROM {name} WHERE {where}time >= {from_ms}ms AND time < {to_ms}ms GROUP BY *"
        answer = json.loads(fetch(f"http://{self.address}/query", db="onlooker", epoch="ms", q=query))
        all_series = answer["results"][0].get("series", [])
        return {key({**series["tags"], "__name__": series["name"]}): series["values"] for series in all_series}

    def samples(self, labels, from_ms, to_ms):
        labels = dict(labels)
        name = f'"{labels.pop("__name__")}"' if "__name__" in labels else "/.*/"
        return {labels: dict(values) for labels, values in self.query("value", name, labels, from_ms, to_ms).items()}

    def counts(self, name, from_ms, to_ms):
        return {labels: values[0][1] for labels, values in self.query("count(value)", f'"{name}"', {}, from_ms, to_ms).items()}


def key(labels):
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def selector(labels):
    return "{" + ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


def seconds_of(time_ms):
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"


def cut(time):
    """ms of a time in seconds as text, or of whole ones; a fraction is cut off, as by remote write."""
    seconds, _, fraction = str(time).partition(".")
    return int(seconds) * 1000 + int(fraction[:3].ljust(3, "0"))


# PromQL's answers, of the controller and of others. `resolution_ns`: what times are multiples of.


def instant(address, query, from_ms, to_ms, resolution_ns):
    """A range begins behind its start."""
    time_ns = to_ms * 1_000_000 - resolution_ns
    body = fetch(f"http://{address}/api/v1/query", query=query.replace("RANGE", f"[{to_ms - from_ms}ms]"), time=f"{time_ns // 10**9}.{time_ns % 10**9:09d}")
    return json.loads(body, parse_float=str)["data"]["result"]


def samples(address, labels, from_ms, to_ms, resolution_ns=1):
    """All samples of the series with these labels: by labels, ms, value."""
    found = instant(address, selector(labels) + "RANGE", from_ms, to_ms, resolution_ns)
    return {key(series["metric"]): {cut(t): float(v) for t, v in series["values"]} for series in found if "values" in series}


def counts(address, name, from_ms, to_ms, resolution_ns=1):
    """How many samples each series of a name has, of all hosts."""
    found = instant(address, f'count_over_time({{__name__="{name}",instance!=""}}RANGE)', from_ms, to_ms, resolution_ns)
    return {key({**series["metric"], "__name__": name}): int(series["value"][1]) for series in found}


def differences(ours, theirs, tolerance):
    """Of all samples that the controller answers: how many there are, how many the database has not, and how many it has otherwise."""
    compared = lost = wrong = 0
    for labels, own in ours.items():
        there = theirs.get(labels, {})
        for time_ms, value in own.items():
            compared += 1
            found = there.get(time_ms)
            if found is None:
                lost += 1
            elif not (found == value or abs(found - value) <= tolerance * abs(value) or found != found and value != value):
                wrong += 1
    return compared, lost, wrong
