# SPDX-License-Identifier: Apache-2.0
"""Plants causes of alerts and looks at what an Alertmanager hears of them; for bench/bench-alerts.

Usage: alerts.py DIRECTORY DISK MEMORY LINK. DIRECTORY has the configuration of the controller, DISK is a file system that may be filled, MEMORY a control group with little memory,
LINK the device on the way to the host that is cut off. Prints lines `figure NAME VALUE`; rules are evaluated every second, so that a second is an interval.
"""

import atexit
import pathlib
import subprocess
import sys
import time
import urllib.error

from controller import get
from crash_peers import moment

directory, disk, memory = map(pathlib.Path, sys.argv[1:4])
link = sys.argv[4]
CONTROLLER, ALERTMANAGER = "127.0.0.1:7180", "127.0.0.1:9093"
CAUSES = ["DiskFull", "HostSilent", "OomKill"]


def start():
    with open(directory / "controller.log", "ab") as log:
        process = subprocess.Popen(["build/onlooker", "controller", "--config", str(directory / "controller.toml")], stdout=log, stderr=log)
    atexit.register(process.kill)
    return process


def until(what, check, most_s=60):
    """The first answer that is not empty, and when it came."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        try:
            found = check()
        except (urllib.error.URLError, ConnectionError):
            found = None
        if found:
            return found, time.time()
        time.sleep(0.02)
    sys.exit(f"{what}: not within {most_s} s")


def ours(name, state):
    return [alert for alert in get(CONTROLLER, "/api/v1/alerts")["data"]["alerts"] if alert["labels"]["alertname"] == name and alert["state"] == state]


def theirs(name):
    return [alert for alert in get(ALERTMANAGER, "/api/v2/alerts", active="true") if alert["labels"]["alertname"] == name]


def nothing(name):
    return not ours(name, "firing") and not ours(name, "pending")


def set_link(state):
    subprocess.run(["ip", "link", "set", link, state], check=True)


def eat():
    """A process that takes more memory than its control group has."""
    eater = f"import os; open('{memory}/cgroup.procs', 'w').write(str(os.getpid())); x = b'x' * (256 << 20)"
    assert subprocess.run([sys.executable, "-c", eater]).returncode == -9, "nothing was killed"


plant = {"DiskFull": lambda: (disk / "full").write_bytes(bytes(62 << 20)), "HostSilent": lambda: set_link("down"), "OomKill": eat}
# An OOM kill is over by itself.
mend = {"DiskFull": (disk / "full").unlink, "HostSilent": lambda: set_link("up"), "OomKill": lambda: None}

controller = start()
until("Alertmanager", lambda: get(ALERTMANAGER, "/api/v2/status"))
for query in ['node_filesystem_avail_bytes{mountpoint="%s"}' % disk, 'beacon_number{instance="host"}', 'rate(node_vmstat_oom_kill{instance="machine"}[10s])']:
    until(query, lambda: get(CONTROLLER, "/api/v1/query", query=query)["data"]["result"])
for name in CAUSES:
    until(f"no {name}", lambda: nothing(name))
pending = received = resolved = 0
received_after, resolved_after, changed = [], [], 0
for name in CAUSES:
    plant[name]()
    until(f"{name} pending", lambda: ours(name, "pending"))
    pending += 1
    until(f"{name} firing", lambda: ours(name, "firing"))
    (told, *more), at = until(f"{name} received", lambda: theirs(name))
    received += 1 - len(more)
    received_after.append(at - moment(told["startsAt"]))
    if name != "OomKill":
        # Killed while it fires: nothing ends, nothing begins again.
        controller.kill()
        controller.wait()
        controller = start()
        until(f"{name} firing again", lambda: ours(name, "firing"))
        rounds = get(CONTROLLER, "/api/v1/rules")["data"]["groups"][0]["lastEvaluation"]
        until("five evaluations", lambda: moment(get(CONTROLLER, "/api/v1/rules")["data"]["groups"][0]["lastEvaluation"]) > moment(rounds) + 5)
        changed += [alert["startsAt"] for alert in theirs(name)] != [told["startsAt"]]
    mend[name]()
    _, over = until(f"{name} over", lambda: nothing(name))
    _, at = until(f"{name} resolved", lambda: not theirs(name))
    resolved += 1
    resolved_after.append(at - over)
    print(f"{name}: received {received_after[-1]:.2f} s after it fired, resolved {resolved_after[-1]:.2f} s after it was over", file=sys.stderr)
controller.kill()
print("figure pending", pending)
print("figure received", received)
print("figure received_after_s", round(max(received_after), 3))
print("figure resolved", resolved)
print("figure resolved_after_s", round(max(resolved_after), 3))
print("figure changed", changed)
