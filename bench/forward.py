# SPDX-License-Identifier: Apache-2.0
"""Lets controllers send a filled store to other databases, disturbs both sides, and compares what arrived; for bench/bench-forward.

Usage: forward.py DIRECTORY HOSTS FROM SECONDS DOWN. DIRECTORY has the store and the configuration of a controller over it, FROM is when its first sample was taken.
Prints lines `figure NAME VALUE`.
"""

import http.server
import pathlib
import socketserver
import sys
import threading
import time

from forwarding import Controller, InfluxDB, Prometheus, VictoriaMetrics, differences, samples, wait_for

directory = pathlib.Path(sys.argv[1])
hosts, first_s, seconds, down_s = map(int, sys.argv[2:])
# Of how many hosts every sample is compared.
COMPARED = 3


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


def sending(name, kind, url):
    return Controller(directory, name, kind, url, since_ns=first_s * 10**9 - 1)


def wait_until_sent(controller, part):
    controller.wait_until_sent(first_s + seconds * part)


def disturbed(name, database):
    """Stops the database once and kills the controller twice on the way, then compares."""
    controller = sending(name, database.kind, database.url)
    begin = time.monotonic()
    wait_until_sent(controller, 0.2)
    database.stop()
    wait_for("a retry", 60, lambda: controller.target()["retries"] > 0)
    retries = controller.target()["retries"]
    controller.kill()
    controller.start()
    time.sleep(down_s)
    database.start()
    wait_until_sent(controller, 0.6)
    controller.kill()
    controller.start()
    wait_until_sent(controller, 1)
    print(f"{name}: all sent after {time.monotonic() - begin:.1f} s")
    database.flush()
    compared = lost = wrong = 0
    for number in range(0, hosts, max(1, hosts // COMPARED)):
        asked = {"instance": f"host-{number}"}, first_s * 1000, (first_s + seconds) * 1000
        found = differences(samples(controller.address, *asked), database.samples(*asked), database.tolerance)
        compared, lost, wrong = compared + found[0], lost + found[1], wrong + found[2]
    for figure, value in {"compared": compared, "lost": lost, "wrong": wrong, "retries": retries, "dropped": controller.target()["dropped_samples"]}.items():
        print("figure", f"{name}_{figure}", value, flush=True)
    controller.kill()
    database.stop()


sink = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Sink)
threading.Thread(target=sink.serve_forever, daemon=True).start()
begin = time.monotonic()
controller = sending("sink", "prometheus", f"http://127.0.0.1:{sink.server_address[1]}/write")
# The newest samples wait until they have settled.
wait_until_sent(controller, 0.95)
took_s = time.monotonic() - begin
sent = controller.target()["samples"]
print(f"sink: {sent} samples in {took_s:.1f} s")
print("figure sink_samples_per_s", round(sent / took_s), flush=True)
controller.kill()
for name, database in {"victoriametrics": VictoriaMetrics, "influxdb": InfluxDB, "prometheus": Prometheus}.items():
    disturbed(name, database(directory / name))
