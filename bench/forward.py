# SPDX-License-Identifier: Apache-2.0
"""Lets controllers send a filled store to other databases, disturbs both sides, and compares what arrived; for bench/bench-forward.

Usage: forward.py DIRECTORY HOSTS FROM SECONDS DOWN. DIRECTORY has the store and the configuration of a controller over it, FROM is when its first sample was taken.
Prints lines `figure NAME VALUE`.
"""

import atexit
import http.server
import json
import pathlib
import socketserver
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from controller import get

directory = pathlib.Path(sys.argv[1])
hosts, first_s, seconds, down_s = map(int, sys.argv[2:])
# Of how many hosts every sample is compared.
COMPARED = 3
# VictoriaMetrics keeps twelve to fifteen digits.
TOLERANCE = 1e-10
running = set()


@atexit.register
def stop_all():
    for process in running:
        process.kill()


def start(command, log, mode):
    with open(log, mode) as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    running.add(process)
    return process


class Sink(http.server.BaseHTTPRequestHandler):
    """Takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Controller:
    """A run of the controller that forwards to one target, from the store's first sample on."""

    def __init__(self, name, kind, url):
        self.config = directory / f"{name}.toml"
        plain = (directory / "controller.toml").read_text()
        self.config.write_text(f'{plain}[[forward]]\nname = "{name}"\nkind = "{kind}"\nurl = "{url}"\nmatch = [\'{{instance=~".+"}}\']\n')
        cursor = directory / "store" / "forward" / f"{name}.json"
        cursor.parent.mkdir(exist_ok=True)
        begin_ns = first_s * 10**9 - 1
        cursor.write_text(json.dumps({"done_ns": begin_ns, "doing_ns": begin_ns}))
        self.start()

    def start(self):
        log = directory / "forward.log"
        self.process = start(["build/onlooker", "controller", "--config", str(self.config)], log, "wb")
        text = wait_for("the controller", 60, lambda: "dashboard http" in log.read_text() and log.read_text())
        self.address = text.split("dashboard http://")[1].split("/")[0]

    def target(self):
        return get(self.address, "/api/onlooker/v1/status")["forward"][0]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait_until_sent(self, part):
        """Until all samples up to this part of the store's time have been sent; with lag 0 nothing has."""
        end_ms = (first_s + seconds * part) * 1e3
        wait_for(f"{part} sent", 1_800, lambda: (lag_ms := self.target()["lag_ms"]) > 0 and time.time() * 1e3 - lag_ms >= end_ms)


class Database:
    """A server of a database, which can be stopped for a while."""

    def __init__(self, command, ready):
        self.command, self.ready = command, ready
        self.start()

    def start(self):
        self.process = start(self.command, directory / "database.log", "ab")
        wait_for(self.command[0], 60, lambda: fetch(self.ready) is not None)

    def stop(self):
        self.process.terminate()
        self.process.wait()


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


def ours(address, instance):
    """All samples of a host as PromQL answers them: by labels, ms, value."""
    answer = get(address, "/api/v1/query", query=f'{{instance="{instance}"}}[{seconds + 60}s]', time=first_s + seconds)
    return {key(series["metric"]): {round(float(t) * 1e3): float(v) for t, v in series["values"]} for series in answer["data"]["result"]}


def key(labels):
    return tuple(sorted((name, value) for name, value in labels.items() if value))


def of_victoriametrics(instance):
    lines = fetch(f"http://{VICTORIAMETRICS}/api/v1/export", **{"match[]": f'{{instance="{instance}"}}'}).splitlines()
    answers = [json.loads(line) for line in lines]
    return {key(answer["metric"]): dict(zip(answer["timestamps"], answer["values"])) for answer in answers}


def of_influxdb(instance):
    query = f"SELECT value FROM /.*/ WHERE instance='{instance}' GROUP BY *"
    answer = json.loads(fetch(f"http://{INFLUXDB}/query", db="onlooker", epoch="ms", q=query))
    all_series = answer["results"][0].get("series", [])
    return {key({**series["tags"], "__name__": series["name"]}): dict(series["values"]) for series in all_series}


def disturbed(name, controller, database, answers, tolerance):
    """Stops the database once and kills the controller twice on the way, then compares."""
    begin = time.monotonic()
    controller.wait_until_sent(0.2)
    database.stop()
    wait_for("a retry", 60, lambda: controller.target()["retries"] > 0)
    retries = controller.target()["retries"]
    controller.kill()
    controller.start()
    time.sleep(down_s)
    database.start()
    controller.wait_until_sent(0.6)
    controller.kill()
    controller.start()
    controller.wait_until_sent(1)
    print(f"{name}: all sent after {time.monotonic() - begin:.1f} s")
    if name == "victoriametrics":
        fetch(f"http://{VICTORIAMETRICS}/internal/force_flush")
    compared = lost = wrong = 0
    for number in range(0, hosts, max(1, hosts // COMPARED)):
        there = answers(f"host-{number}")
        for labels, samples in ours(controller.address, f"host-{number}").items():
            own = there.get(labels, {})
            for time_ms, value in samples.items():
                compared += 1
                found = own.get(time_ms)
                if found is None:
                    lost += 1
                elif abs(found - value) > tolerance * abs(value):
                    wrong += 1
    for figure, value in {"compared": compared, "lost": lost, "wrong": wrong, "retries": retries, "dropped": controller.target()["dropped_samples"]}.items():
        print("figure", f"{name}_{figure}", value, flush=True)
    controller.kill()
    database.stop()


sink = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sink)
threading.Thread(target=sink.serve_forever, daemon=True).start()
begin = time.monotonic()
controller = Controller("sink", "prometheus", f"http://127.0.0.1:{sink.server_address[1]}/write")
# The newest samples wait until they have settled.
controller.wait_until_sent(0.95)
took_s = time.monotonic() - begin
sent = controller.target()["samples"]
print(f"sink: {sent} samples in {took_s:.1f} s")
print("figure sink_samples_per_s", round(sent / took_s), flush=True)
controller.kill()


def free_address():
    with socketserver.TCPServer(("127.0.0.1", 0), None) as server:
        return f"127.0.0.1:{server.server_address[1]}"


VICTORIAMETRICS, INFLUXDB = free_address(), free_address()
storage = [f"-storageDataPath={directory}/victoriametrics", f"-httpListenAddr={VICTORIAMETRICS}", "-retentionPeriod=10y"]
database = Database(["target/store-peers/victoria-metrics", *storage], f"http://{VICTORIAMETRICS}/health")
controller = Controller("victoriametrics", "prometheus", f"http://{VICTORIAMETRICS}/api/v1/write")
disturbed("victoriametrics", controller, database, of_victoriametrics, TOLERANCE)

home = directory / "influxdb"
(directory / "influxdb.conf").write_text(
    f'reporting-disabled = true\nbind-address = "{free_address()}"\n[meta]\ndir = "{home}/meta"\n[data]\ndir = "{home}/data"\nwal-dir = "{home}/wal"\n'
    f'[http]\nbind-address = "{INFLUXDB}"\nlog-enabled = false\n'
)
database = Database(["influxd", "-config", str(directory / "influxdb.conf")], f"http://{INFLUXDB}/ping?verbose=true")
urllib.request.urlopen(urllib.request.Request(f"http://{INFLUXDB}/query", data=b"q=CREATE DATABASE onlooker"), timeout=60).close()
controller = Controller("influxdb", "influxdb", f"http://{INFLUXDB}/write?db=onlooker&precision=ns")
disturbed("influxdb", controller, database, of_influxdb, 0)
