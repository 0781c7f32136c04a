# SPDX-License-Identifier: Apache-2.0
"""An unprivileged program that does its worst to the agent of its machine, and through it to the controller; for bench/attack.

Usage: intruder.py SOCKET SECONDS VICTIM_PID VICTIM_PROGRAM. Each attack is a process of its own that repeats until the time is over, whatever it is refused, and then says
what it did: `attack NAME TRIED DONE`. Everything in it is within what the registration protocol lets any local user ask for.
"""

import json
import os
import random
import socket
import struct
import sys
import time

from format_v1 import BLOCK_BYTES, GUARDED_SLOTS, PLAIN_SLOTS
from registrant import Connection, Refused, Region, field, plain

path, seconds, victim_pid, victim_program = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
end = time.monotonic() + seconds
LINGER_S = 15
HISTOGRAM = {"grouping_power": 6, "max_power": 64}
HISTOGRAM_SLOTS = (64 - 6 + 1) * 2**6 + 1


def tracks():
    """As many values as fit: rows of tens of thousands of columns."""
    connection, regions = Connection(path), []
    while time.monotonic() < end:
        try:
            values = field("intruder_values", array={"label": "n", "count": 65_000, "stride": 1})
            regions.append(Region(connection, f"wide_{len(regions)}", [plain([values], 65_000)]).publish())
            yield True
        except Refused:
            yield False
            for region in regions:
                region.block(0, [random.getrandbits(64)])
            time.sleep(0.1)


def churn():
    """Regions of many groups that are there for a moment: each is as many definitions in a store."""
    number = 0
    connection = Connection(path)
    while time.monotonic() < end:
        groups = [plain([field(f"intruder_brief_{number}_{group}")], 1) for group in range(32)]
        number += 1
        try:
            region = Region(connection, "brief", groups, instance=str(number)).publish()
            time.sleep(0.05)
            region.remove()
            yield True
        except Refused:
            yield False
            time.sleep(0.05)


def spoof():
    """Another program's series, by labels of fields and a better way of acquisition."""
    labels = {"pid": victim_pid, "program": victim_program}
    fields = [field(name, slot=slot, labels=labels) for slot, name in enumerate(["beacon_number", "beacon_check", "node_load1", "node_memory_MemTotal_bytes"])]
    while time.monotonic() < end:
        connection = Connection(path)
        for acquisition in ("computed", "published", "sampled", "direct"):
            region = Region(connection, f"spoof_{acquisition}", [plain(fields, 4, acquisition=acquisition)])
            region.block(0, [666] * 4)
            region.publish()
            yield True
        time.sleep(2)
        connection.close()


def blank():
    """The kernel's series with labels that are there and empty."""
    key = [{"name": name, "type": "text", "bytes": 8} for name in ("pid", "program")]
    table = {"kind": "table", "blocks": 1, "key": key, "fields": [field("node_load1"), field("node_load5", slot=1)]}
    while time.monotonic() < end:
        connection = Connection(path)
        region = Region(connection, "blank", [table])
        row = struct.pack("<QQQQQ", 1 | 1 << 32, 0, 0, 99, 99)
        region.commit(0, row.ljust(8 * GUARDED_SLOTS, b"\0"))
        region.publish()
        yield True
        time.sleep(2)
        connection.close()


def types():
    """Names of the kernel's metrics with other types, again and again, until a generation comes first."""
    names = ["node_load1", "node_load5", "node_memory_MemFree_bytes", "node_context_switches_total", "beacon_number", "beacon_events_total"]
    fields = [field(name, "counter" if at % 2 == 0 else "gauge", slot=at, help="Something else.") for at, name in enumerate(names)]
    connection = Connection(path)
    while time.monotonic() < end:
        try:
            region = Region(connection, "a_types", [plain(fields, len(names))]).publish()
            yield True
            time.sleep(0.5)
            region.remove()
        except Refused:
            yield False
            time.sleep(0.2)


def flood():
    """Values that no codec packs, all of them new at every reading."""
    connection = Connection(path)
    regions = [Region(connection, f"noise_{n}", [plain([field("intruder_noise", array={"label": "n", "count": 20_000, "stride": 1})], 20_000)]).publish() for n in range(3)]
    while time.monotonic() < end:
        for region in regions:
            for at in range(region.bytes // BLOCK_BYTES):
                region.memory[at * BLOCK_BYTES + 8 : (at + 1) * BLOCK_BYTES] = os.urandom(BLOCK_BYTES - 8)
            yield True
        time.sleep(0.02)


def histogram():
    """A histogram of thousands of buckets that moves all the time: what range queries are long for."""
    connection = Connection(path)
    fields = [field("intruder_seconds", "histogram", histogram=HISTOGRAM)]
    region = Region(connection, "long", [plain(fields, HISTOGRAM_SLOTS)]).publish()
    count = 0
    while time.monotonic() < end:
        count += 1
        for at in range(region.bytes // BLOCK_BYTES):
            region.block(at, [count] * PLAIN_SLOTS)
        yield True
        time.sleep(0.005)


def linger():
    """A descriptor whose last close() waits: unsent data, a peer that does not read, and a linger time."""
    listener, held = socket.create_server(("127.0.0.1", 0)), []
    while time.monotonic() < end:
        mine = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        mine.setblocking(False)
        try:
            while True:
                mine.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
        agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            agent.connect(path)
            socket.send_fds(agent, [b'{"op":"hello","version":1,"sdk":"intruder 1"}'], [mine.fileno()])
            yield True
        except OSError:
            yield False
        # Ours goes first, so that the agent's is the last.
        mine.close()
        time.sleep(0.5)
        agent.close()
        # A peer that closes would end the wait.
        held.append(theirs)


def slabs():
    """Slabs that are kept by their descriptors while the regions in them are left."""
    kept = []
    while time.monotonic() < end:
        try:
            connection = Connection(path)
            Region(connection, "kept", [plain([field("intruder_kept")], 1)], keep=kept)
            connection.close()
            yield True
        except Refused:
            yield False
            time.sleep(0.1)
        if len(kept) > 900:
            # As many as this program may have open; each is 4 MiB, if each is another one.
            os.close(kept.pop(0))


def entries():
    """Every entry of the directory that can be had: a region and a schema each."""
    connection, number = Connection(path), 0
    while time.monotonic() < end:
        number += 1
        try:
            Region(connection, "entry", [plain([field(f"intruder_entry_{number}")], 1)], instance=str(number)).publish()
            yield True
        except Refused:
            yield False
            time.sleep(0.1)


def connections():
    """As many connections as there may be, and packets that are no requests."""
    held = []
    while time.monotonic() < end:
        try:
            held.append(Connection(path))
            held[-1].socket.send(b"{" * 60_000)
            yield True
        except (Refused, OSError):
            yield False
            time.sleep(0.2)


def schemas():
    """Schemas that take long to read, on connections that all wait."""
    values = [field(f"intruder_large_{slot}", slot=slot) for slot in range(600)]
    create = {"op": "create", "name": "large", "schema": {"name": "large", "groups": [plain(values, 600)]}}
    packet = json.dumps(create).encode()
    mine = [Connection(path) for _ in range(20)]
    while time.monotonic() < end:
        for one in mine:
            one.socket.send(packet)
        for one in mine:
            yield json.loads(one.socket.recv(131_072)).get("ok", False)


def repeat(attack):
    tried = done = 0
    while time.monotonic() < end:
        try:
            for succeeded in attack():
                tried += 1
                done += succeeded
        except (Refused, OSError, ValueError):
            # Whatever ended it: from the beginning.
            tried += 1
            time.sleep(0.1)
    # Whole, though others write to the same pipe.
    os.write(1, f"attack {attack.__name__} {tried} {done}\n".encode())


# The first are those that the others would take the room of.
attacks = [histogram, flood, spoof, blank, types, linger, slabs, churn, tracks, schemas, connections, entries]
children = []
for attack in attacks:
    child = os.fork()
    if child == 0:
        os.closerange(3, 1024)
        try:
            repeat(attack)
        finally:
            os._exit(0)
    children.append(child)
    time.sleep(0.2)
for child in children:
    os.waitpid(child, 0)
