# SPDX-License-Identifier: Apache-2.0
"""The registration protocol (docs/format/registration.md) and its blocks by hand, without an SDK's manners; for bench/attack."""

import array
import json
import mmap
import os
import socket
import struct
import time

from format_v1 import BLOCK_BYTES, PLAIN_SLOTS, guarded, identity


class Refused(Exception):
    """The agent does not do it, or has closed the connection."""


class Connection:
    """A connection to the agent."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        try:
            self.socket.connect(path)
        except OSError as error:
            raise Refused(str(error)) from None
        self.ask(op="hello", version=1, sdk="by hand 1")

    def ask(self, **request):
        try:
            self.socket.send(json.dumps(request).encode())
            data, ancillary, _, _ = self.socket.recvmsg(1 << 17, socket.CMSG_SPACE(64))
        except OSError as error:
            raise Refused(str(error)) from None
        fds = array.array("i")
        for _, _, packed in ancillary:
            fds.frombytes(packed[: len(packed) // fds.itemsize * fds.itemsize])
        answer = json.loads(data) if data else {"ok": False, "message": "closed"}
        if not answer["ok"]:
            for fd in fds:
                os.close(fd)
            raise Refused(answer.get("message", "?"))
        return answer, list(fds)

    def close(self):
        self.socket.close()


class Region:
    """A region of this program, mapped; its blocks are written by hand."""

    def __init__(self, connection, name, groups, keep=None, **more):
        answer, (slab, *_) = connection.ask(op="create", name=name, schema={"name": "by_hand", "groups": groups}, **more)
        self.connection, self.groups = connection, groups
        told = answer["region"]
        self.id, self.generation, self.bytes = told["id"], told["generation"], told["bytes"]
        self.memory = mmap.mmap(slab, told["mapped_bytes"], offset=told["offset"])
        if keep is None:
            os.close(slab)
        else:
            keep.append(slab)
        at = 0
        for group in groups:
            for block in range(group["blocks"]):
                # A group of plain blocks is zero but for its identities; others are written by who knows what they hold.
                struct.pack_into("<Q", self.memory, at * BLOCK_BYTES, identity(self.id, at, self.generation))
                at += 1

    def publish(self):
        self.connection.ask(op="publish", region=self.id)
        return self

    def remove(self):
        try:
            self.connection.ask(op="remove", region=self.id)
        finally:
            self.memory.close()

    def block(self, at, words):
        """Plain block: what follows its identity."""
        struct.pack_into(f"<{len(words)}Q", self.memory, at * BLOCK_BYTES + 8, *words)

    def commit(self, at, payload, version=2):
        """Guarded block."""
        block = guarded(version, time.clock_gettime_ns(time.CLOCK_BOOTTIME), identity(self.id, at, self.generation), payload)
        self.memory[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES] = block


def field(name, metric="gauge", type="u64", **more):
    return {"name": name, "metric": metric, "type": type, **more}


def plain(fields, slots, **more):
    return {"kind": "plain", "blocks": -(-slots // PLAIN_SLOTS), "fields": fields, **more}
