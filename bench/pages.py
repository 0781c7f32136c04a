# SPDX-License-Identifier: Apache-2.0
"""How long a controller takes to stop while pages are open; for bench/soak-fleet.

Usage: pages.py ADDRESS PID PAGES. Opens the live streams of so many pages, each of which has had rows, sends SIGTERM, and prints `figure stop_ms MS` once the process is gone.
"""

import os
import select
import signal
import socket
import sys
import time

from controller import get

SOURCES = 8
address, pid, pages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
host, port = address.rsplit(":", 1)
watched = [one["name"] for one in get(address, "/api/onlooker/v1/hosts")["hosts"]]


def page(number):
    """A stream from one of several addresses of this machine, since each may have a few only; once its first event has come."""
    stream = socket.create_connection((host, int(port)), timeout=30, source_address=(f"127.0.0.{2 + number % SOURCES}", 0))
    query = f"host={watched[number % len(watched)]}&match=beacon_*&every_ms=100"
    stream.sendall(f"GET /api/onlooker/v1/live?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = b""
    while b"\ndata:" not in answer:
        part = stream.recv(65_536)
        if not part or not (answer + part).startswith(b"HTTP/1.1 200"):
            sys.exit(f"no live stream: {(answer + part)[:300]!r}")
        answer += part
    return stream


streams = [page(number) for number in range(pages)]
gone = os.pidfd_open(pid)
begin = time.monotonic()
os.kill(pid, signal.SIGTERM)
select.select([gone], [], [], 60)
print("figure stop_ms", round((time.monotonic() - begin) * 1e3))
