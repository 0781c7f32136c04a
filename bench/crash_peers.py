# SPDX-License-Identifier: Apache-2.0
"""Where a controller that is killed forwards to and tells its alerts, and what of it must have arrived; for bench/crash.py."""

import datetime
import gzip
import http.server
import json
import threading
import time

# Always given, and given for some seconds at a time: the beacon counts some eighty times a second.
RULES = """groups:
  - name: beacon
    interval: 200ms
    rules:
      - {alert: Counts, expr: beacon_number > 0, for: 500ms}
      - {alert: ComesAndGoes, expr: beacon_number % 400 < 200, for: 300ms}
"""


class Peers:
    """A database that takes InfluxDB's line protocol, and an Alertmanager: one server for both."""

    def __init__(self):
        self.samples, self.alerts, self.wrong, self.lock = {}, {}, 0, threading.Lock()
        peers = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                with peers.lock:
                    (peers.take_alerts if self.path.startswith("/api/v2/alerts") else peers.take_lines)(body.decode())
                self.send_response(204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        # A controller that is killed resets its connections.
        self.server.handle_error = lambda *_: None
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def configuration(self, directory):
        """Lines for a controller's configuration."""
        (directory / "rules.yaml").write_text(RULES)
        url = f"http://127.0.0.1:{self.server.server_port}"
        return (
            f'[rules]\nshipped = false\nfiles = ["{directory}/rules.yaml"]\nalertmanagers = ["{url}"]\n'
            f'[[forward]]\nname = "peer"\nkind = "influxdb"\nurl = "{url}/write?db=peer&precision=ns"\nmatch = ["beacon_number"]\nmax_age = "1s"\n'
        )

    def take_lines(self, text):
        for line in text.splitlines():
            series, value, time_ns = line.rsplit(" ", 2)
            tags = dict(tag.split("=", 1) for tag in series.split(",")[1:])
            key = tags["instance"], int(float(value.removeprefix("value=").rstrip("iu")))
            # What comes twice is the same.
            self.wrong += self.samples.setdefault(key, int(time_ns)) != int(time_ns)

    def take_alerts(self, text):
        for alert in json.loads(text):
            labels = alert["labels"]
            self.alerts.setdefault((labels["alertname"], labels["instance"]), {})[moment(alert["startsAt"])] = moment(alert["endsAt"])

    def compare(self, host, rows):
        """Of a host's rows, by their times in ms, the times of those whose number has not come, and of those that came with another time."""
        with self.lock:
            came = {at: self.samples.get((host, number)) for at, (number, *_) in rows.items()}
        # Our own interface has microseconds.
        return [at for at, ns in came.items() if ns is None], [at for at, ns in came.items() if ns is not None and abs(ns / 1e6 - at) > 0.002]

    def judge_alerts(self, firing):
        """How many alerts were told, of how many nobody has heard that they are over or that they fire, and how many began before the one before was over.

        `firing` has what fires, by rule and host."""
        now, told, lost, doubled = time.time(), 0, 0, 0
        with self.lock:
            for key in self.alerts.keys() | firing:
                alerts = sorted(self.alerts.get(key, {}).items())
                told += len(alerts)
                # While one fires its end is some minutes ahead.
                lost += abs(sum(1 for _, end in alerts if end > now) - (key in firing))
                doubled += sum(1 for (_, end), (start, _) in zip(alerts, alerts[1:]) if end > start)
        return told, lost, doubled


def moment(text):
    """A time of RFC 3339 in UTC, with up to nine digits, as s."""
    whole, _, rest = text.rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(whole + "+00:00").timestamp() + (float("0." + rest) if rest else 0.0)
