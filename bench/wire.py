# SPDX-License-Identifier: Apache-2.0
"""A wire between two network devices of this namespace, good or bad; for bench/bench-bad-hosts.

Usage: wire.py ONE OTHER KIND. It carries every frame that comes in at one end to the other. KIND says what becomes of
UDP: `good` nothing; `silent` none arrives; `slow` each takes 60 ms; `late` each takes 400 ms; `lying` one in five has a byte
changed; `twice` one in five comes two times, and one in five after the next one.
"""

import collections
import random
import select
import socket
import sys
import time

OUTGOING = 4  # PACKET_OUTGOING of linux/if_packet.h: a frame that we sent ourselves
ALL = 0x0003  # ETH_P_ALL
UDP = 17
SOL_PACKET = 263
VNET_HEADER = 15  # PACKET_VNET_HDR: what the kernel knows of checksums and segments goes along, before the frame
VNET_BYTES = 10
HEADERS_BYTES = VNET_BYTES + 14 + 20 + 8
DELAYS_S = {"slow": 0.06, "late": 0.4}

one, other, kind = sys.argv[1:4]
ends = []
for name in (one, other):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    end.setsockopt(SOL_PACKET, VNET_HEADER, 1)
    end.bind((name, ALL))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    end.setblocking(False)
    ends.append(end)
to = {ends[0]: ends[1], ends[1]: ends[0]}
waiting = collections.deque()
held = {}


def send(end, frame):
    try:
        end.send(frame)
    except OSError:
        pass  # down: the frame is lost


def carry(end, frame):
    is_udp = frame[VNET_BYTES + 12 : VNET_BYTES + 14] == b"\x08\x00" and frame[VNET_BYTES + 23] == UDP
    if not is_udp or kind == "good":
        send(end, frame)
    elif kind in DELAYS_S:
        waiting.append((time.monotonic() + DELAYS_S[kind], end, frame))
    elif kind == "lying":
        if random.random() < 0.2:
            changed = bytearray(frame)
            changed[random.randrange(HEADERS_BYTES, len(frame))] ^= 1 << random.randrange(8)
            frame = bytes(changed)
        send(end, frame)
    elif kind == "twice":
        if end not in held and random.random() < 0.2:
            held[end] = frame
            return
        send(end, frame)
        if random.random() < 0.2:
            send(end, frame)
        if end in held:
            send(end, held.pop(end))


while True:
    timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else 0.05
    for end in select.select(ends, [], [], timeout)[0]:
        for _ in range(64):
            try:
                frame, address = end.recvfrom(65536)
            except OSError:
                break  # nothing more, or the device is down
            if address[2] != OUTGOING:
                carry(to[end], frame)
    while waiting and waiting[0][0] <= time.monotonic():
        _, end, frame = waiting.popleft()
        send(end, frame)
    for end in list(held):
        if random.random() < 0.05:
            send(end, held.pop(end))
