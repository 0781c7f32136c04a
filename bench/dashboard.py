# SPDX-License-Identifier: Apache-2.0
"""Loads a dashboard again and again from a controller that reads a fleet, or lets it read; for bench/bench-dashboard.

Usage: dashboard.py ADDRESS HOSTS SECONDS PANELS CONTROLLER_PID. The queries are those of the dashboard for Grafana that we ship, of all hosts and then of one, until there are
PANELS (0: none); a browser asks six at a time. For SECONDS a load begins every five seconds. Prints lines `figure NAME VALUE`, also of what rules did.
"""

import concurrent.futures
import http.client
import json
import sys
import threading
import time
import urllib.parse

from controller import TICK, body, get, ticks

CONNECTIONS = 6
REFRESH_S = 5
RANGE_S = 300
STEP_S = 1

address, hosts, seconds, panels, controller = sys.argv[1], *map(int, sys.argv[2:])
own = threading.local()


def queries(instance):
    with open("packaging/grafana/dashboards/hosts.json", encoding="utf-8") as file:
        dashboard = json.load(file)
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    return [text.replace("$instance", instance).replace("$__rate_interval", f"{4 * STEP_S}s") for text in texts]


def ask(query):
    """How many series there are, over a connection that stays. They are not parsed: that would take more of the machine than a browser does."""
    if not hasattr(own, "connection"):
        own.connection = http.client.HTTPConnection(address, timeout=60)
    end = int(time.time())
    asked = {"query": query, "start": end - RANGE_S, "end": end, "step": STEP_S}
    own.connection.request("GET", "/api/v1/query_range?" + urllib.parse.urlencode(asked))
    answer = own.connection.getresponse()
    text = answer.read()
    assert answer.status == 200 and text.startswith(b'{"status":"success"'), text[:300]
    return text.count(b'{"metric":{')


def of_rules(what):
    """The sum of a counter of rules, of all groups."""
    lines = body(address, "/metrics").decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"onlooker_controller_rule_{what}_total{{"))


def all_read():
    there = get(address, "/api/onlooker/v1/hosts")["hosts"]
    return len(there) == hosts and all(host["state"] == "reading" and host["cycles"] > 100 for host in there)


for _ in range(600):
    if all_read():
        break
    time.sleep(0.1)
else:
    sys.exit("not all hosts are read")
wanted = (queries(".+") + queries("host-00") * 2)[:panels]
assert len(wanted) == panels
begin, begin_ticks, loads, series = time.monotonic(), ticks(controller), [], 0
with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
    while time.monotonic() - begin < seconds:
        if panels:
            load = time.monotonic()
            series = sum(pool.map(ask, wanted))
            loads.append((time.monotonic() - load) * 1e3)
        time.sleep(max(0.0, min(begin + seconds, begin + REFRESH_S * (len(loads) or 1e9)) - time.monotonic()))
passed_s = time.monotonic() - begin
there = get(address, "/api/onlooker/v1/hosts")["hosts"]
cycles, gaps = sum(host["cycles"] for host in there), sum(sum(host["gaps"].values()) for host in there)
print("figure lateness_p99_us", max(host["lateness_us"]["p99"] for host in there))
print("figure gap_ratio", round(gaps / (cycles + gaps), 6))
for what, name in {"evaluated": "evaluations", "failed": "evaluation_failures", "missed": "group_iterations_missed"}.items():
    print(f"figure {what}", round(of_rules(name)))
print("figure cpu_percent", round((ticks(controller) - begin_ticks) / TICK / passed_s * 100, 1))
if loads:
    loads.sort()
    print("figure loads", len(loads))
    print("figure series", series)
    print("figure load_p50_ms", round(loads[len(loads) // 2], 1))
    print("figure load_p99_ms", round(loads[min(len(loads) - 1, int(len(loads) * 0.99))], 1))
