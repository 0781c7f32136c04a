# SPDX-License-Identifier: Apache-2.0
"""What databases take a core for reports of flows' paths: Debian's InfluxDB by its line protocol, Debian's Prometheus by remote write; for bench/bench-dta.

    python3 bench/telemetry_peers.py DIRECTORY REPORTS

Each report is of one of 90,000 flows, by which it can be asked for. Requests have 5,000 of them. The database has core 1, this program core 0; counted is the time
that the database has run until it has answered the last request.
"""

import os
import pathlib
import struct
import sys
import time
import urllib.request

from forwarding import Database, InfluxDB, fetch, free_address

AT_ONCE = 5000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
directory, reports = pathlib.Path(sys.argv[1]), int(sys.argv[2])
os.sched_setaffinity(0, {0})


class DebiansPrometheus(Database):
    def __init__(self, directory):
        address = free_address()
        directory.mkdir()
        (directory / "prometheus.yml").write_text("")
        flags = {"config.file": directory / "prometheus.yml", "storage.tsdb.path": directory / "data", "web.listen-address": address}
        command = ["prometheus", "--web.enable-remote-write-receiver", "--log.level=error", *(f"--{name}={value}" for name, value in flags.items())]
        super().__init__(directory, command, address, "/-/ready")
        self.url = f"http://{address}/api/v1/write"


def flow(number):
    # InfluxDB takes 100,000 values of a tag: each flow is reported twice.
    number %= 90_000
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:40000>10.0.0.2:443/tcp"


def lines(numbers, now_ns):
    return "".join(f'path,flow={flow(number)} hops="1,2,3,4,5" {now_ns}\n' for number in numbers).encode()


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def label(name, value):
    return field(1, field(1, name.encode()) + field(2, value.encode()))


def write_request(numbers, now_ns):
    """Remote write 1.0, in snappy's block format without any compression."""
    now = varint(2 << 3) + varint(now_ns // 1_000_000)
    sample = field(2, varint(1 << 3 | 1) + struct.pack("<d", 1.0) + now)
    series = (label("__name__", "path") + label("flow", flow(number)) + label("hops", "1,2,3,4,5") + sample for number in numbers)
    plain = b"".join(field(1, one) for one in series)
    pieces = (plain[at : at + 65536] for at in range(0, len(plain), 65536))
    return varint(len(plain)) + b"".join(bytes([61 << 2]) + struct.pack("<H", len(piece) - 1) + piece for piece in pieces)


def ran_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def measure(name, database, encode, headers):
    os.sched_setaffinity(database.process.pid, {1})
    for task in pathlib.Path(f"/proc/{database.process.pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), {1})
    bodies = [encode(range(at, min(at + AT_ONCE, reports)), time.time_ns()) for at in range(0, reports, AT_ONCE)]
    before_s = ran_s(database.process.pid)
    for body in bodies:
        urllib.request.urlopen(urllib.request.Request(database.url, data=body, headers=headers), timeout=600).close()
    per_s = reports / (ran_s(database.process.pid) - before_s)
    print(f"{name}: {per_s / 1e6:.4f} million a second and core", flush=True)
    print(f"figure dta_{name} {per_s:.0f} reports_per_s_and_core", flush=True)
    return database


influxdb = measure("influxdb", InfluxDB(directory / "influxdb"), lines, {})
answer = fetch(f"http://{influxdb.address}/query", db="onlooker", q=f"SELECT hops FROM path WHERE flow = '{flow(reports - 1)}'")
if b"1,2,3,4,5" not in answer:
    sys.exit(f"InfluxDB does not know what it was sent: {answer}")
influxdb.remove()
kinds = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"}
prometheus = measure("prometheus", DebiansPrometheus(directory / "prometheus"), write_request, kinds)
answer = fetch(f"http://{prometheus.address}/api/v1/query", query=f'path{{flow="{flow(reports - 1)}"}}')
if b"1,2,3,4,5" not in answer:
    sys.exit(f"Prometheus does not know what it was sent: {answer}")
prometheus.remove()
