# SPDX-License-Identifier: Apache-2.0
"""Starts a controller over a filled store again and again, with no file in memory, and kills it; for bench/bench-open.

Usage: open.py DIRECTORY HOSTS NOW ROUNDS. DIRECTORY has the store and the configuration of a controller over it, NOW is when its last sample was taken.
Prints lines `figure NAME VALUE`.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time

from controller import get

directory, hosts, now, rounds = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
listens_ms, answers_ms = [], []
for _ in range(rounds):
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    begin = time.monotonic()
    command = ["build/onlooker", "controller", "--config", str(directory / "controller.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as controller:
        try:
            line = next((line for line in controller.stderr if "dashboard http://" in line), "")
            listens_ms.append((time.monotonic() - begin) * 1e3)
            address = line.split("dashboard http://")[1].split("/")[0]
            answer = get(address, "/api/v1/query", query="count(node_load1)", time=now)
            answers_ms.append((time.monotonic() - begin) * 1e3)
            assert answer["data"]["result"][0]["value"][1] == str(hosts), answer
        finally:
            controller.kill()
print(f"listens after {', '.join(f'{ms:.0f}' for ms in listens_ms)} ms, has answered after {', '.join(f'{ms:.0f}' for ms in answers_ms)} ms", file=sys.stderr)
for name, all_ms in {"listens": listens_ms, "answers": answers_ms}.items():
    print(f"figure {name}_median_ms", round(statistics.median(all_ms)))
    print(f"figure {name}_max_ms", round(max(all_ms)))
