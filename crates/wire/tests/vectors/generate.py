#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes packets.txt, tcp_read.txt and dta.txt beside itself: golden bytes, derived with struct and zlib only.

It shares nothing with the crate, so that an error must be made twice to go unseen. Run it after a change of the format and
commit its output; the tests compare the crate with the files, and `--check` the files with what it makes.

File format: records separated by blank lines, each line `key: value`; lines that begin with # are comments. Numbers are
decimal, bytes are hexadecimal. In packets.txt and dta.txt a record either has the fields of a packet and its bytes, or an `error`
(the reason that the crate gives) and the bytes to be refused.
"""

import ipaddress
import os
import struct
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
OPCODES = {"read_request": 0x0C, "first": 0x0D, "middle": 0x0E, "last": 0x0F, "only": 0x10, "acknowledge": 0x11,
           "write_first": 0x06, "write_middle": 0x07, "write_last": 0x08, "write_last_immediate": 0x09, "write_only": 0x0A,
           "write_only_immediate": 0x0B, "atomic_answer": 0x12, "fetch_add": 0x14}


def pattern(n):
    return bytes((i * 31 + (i >> 8) * 7 + 5) & 0xFF for i in range(n))


def ones_sum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def with_checksum(header):
    header = header[:10] + b"\0\0" + header[12:]
    return header[:10] + struct.pack("!H", 0xFFFF ^ ones_sum(header)) + header[12:]


def ip_header(f, payload_bytes):
    source, destination = ipaddress.ip_address(f["source"]), ipaddress.ip_address(f["destination"])
    if source.version == 4:
        return with_checksum(struct.pack("!BBHHHBBH4s4s", 0x45, f["traffic_class"], 20 + payload_bytes, f["identification"],
                                         0x4000, f["hop_limit"], 17, 0, source.packed, destination.packed))
    return struct.pack("!IHBB16s16s", 6 << 28 | f["traffic_class"] << 20 | f["flow_label"], payload_bytes, 17,
                       f["hop_limit"], source.packed, destination.packed)


def icrc(ip_udp, transport):
    data = bytearray(ip_udp + transport)
    if data[0] >> 4 == 4:
        masked, udp = [1, 8, 10, 11], 20
    else:
        data[0] |= 0x0F
        masked, udp = [1, 2, 3, 7], 40
    for at in masked + [udp + 6, udp + 7, udp + 8 + 4]:
        if at < len(data):
            data[at] = 0xFF
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(data)))


def transport_of(f):
    kind, payload = f["packet"], f.get("payload", b"")
    pad = -len(payload) % 4
    ack_request = 0x80 if kind in ("read_request", "fetch_add") or f.get("ack_request") else 0
    bth = struct.pack("!BBHII", OPCODES[kind], 0x40 | pad << 4, 0xFFFF, f["destination_qp"], ack_request << 24 | f["psn"])
    extension = b""
    if kind in ("read_request", "write_first", "write_only", "write_only_immediate"):
        extension += struct.pack("!QII", f["va"], f["rkey"], f["length"])
    if kind == "fetch_add":
        extension += struct.pack("!QIQQ", f["va"], f["rkey"], f["addend"], 0)
    if "syndrome" in f:
        extension += struct.pack("!I", f["syndrome"] << 24 | f["msn"])
    if kind == "atomic_answer":
        extension += struct.pack("!Q", f["original"])
    if "immediate" in f:
        extension += struct.pack("!I", f["immediate"])
    return bth + extension + payload + bytes(pad)


def ethernet_of(f):
    tags = bytes.fromhex(f["tags"].replace(" ", "")) if f["tags"] != "-" else b""
    kind = 0x0800 if ":" not in f["source"] else 0x86DD
    return bytes.fromhex(f["destination_mac"]) + bytes.fromhex(f["source_mac"]) + tags + struct.pack("!H", kind)


def frame_of(f, transport=None):
    transport = transport if transport is not None else transport_of(f)
    udp = struct.pack("!HHHH", f["source_port"], f["destination_port"], 8 + len(transport) + 4, 0)
    ip_udp = ip_header(f, 8 + len(transport) + 4) + udp
    return ethernet_of(f) + ip_udp + transport + icrc(ip_udp, transport)


V4 = dict(destination_mac="0200000000b2", source_mac="0200000000a1", tags="-", source="10.1.2.3", destination="10.1.2.4",
          traffic_class=0, hop_limit=64, identification=0, source_port=40001, destination_port=4791)
V6 = dict(destination_mac="0200000000b2", source_mac="0200000000a1", tags="-", source="fd00::a1", destination="fd00::b2",
          traffic_class=0, hop_limit=64, flow_label=0, source_port=40001, destination_port=4791)
REQUEST = dict(packet="read_request", destination_qp=0x12ABCD, psn=0xFFFFFF, va=0xDEADBEEF12345400, rkey=0xC0FFEE11, length=1024)


def swapped(f):
    f = dict(f)
    for a, b in [("source", "destination"), ("source_mac", "destination_mac"), ("source_port", "destination_port")]:
        f[a], f[b] = f[b], f[a]
    f["traffic_class"] = 2
    return f


def answer(kind, payload, msn=0, syndrome=0x1F):
    f = dict(packet=kind, destination_qp=0x000042, psn=0xFFFFFF)
    if kind != "middle":
        f.update(syndrome=syndrome, msn=msn)
    if kind != "acknowledge":
        f["payload"] = payload
    return f


def write_of(kind, payload):
    f = dict(packet=kind, destination_qp=0x12ABCD, psn=0xFFFFFF, ack_request=1, payload=payload)
    if kind in ("write_first", "write_only", "write_only_immediate"):
        f.update(va=0xDEADBEEF12345678, rkey=0xC0FFEE11, length=len(payload))
    return f


def good():
    yield "read-request-ipv4", {**V4, **REQUEST}
    yield "read-request-ipv6", {**V6, **REQUEST}
    yield "read-request-vlan", {**V4, **REQUEST, "tags": "81000064"}
    yield "read-request-qinq", {**V6, **REQUEST, "tags": "88a8a00b 81002fff"}
    yield "read-request-numbered-marked", {**V4, **REQUEST, "identification": 0xBEEF, "traffic_class": 0xBB, "hop_limit": 1}
    yield "read-request-flow-label", {**V6, **REQUEST, "flow_label": 0xABCDE, "traffic_class": 0xBB, "hop_limit": 255}
    yield "answer-block-ipv4", {**swapped(V4), **answer("only", pattern(1024))}
    yield "answer-block-ipv6", {**swapped(V6), **answer("only", pattern(1024))}
    yield "answer-block-vlan", {**swapped(V4), **answer("only", pattern(1024)), "tags": "81000064"}
    for n in range(6):
        yield "answer-%d-bytes" % n, {**swapped(V4), **answer("only", pattern(n))}
    yield "answer-first", {**swapped(V4), **answer("first", pattern(256), msn=7)}
    yield "answer-middle", {**swapped(V4), **answer("middle", pattern(256))}
    yield "answer-last", {**swapped(V6), **answer("last", pattern(13), msn=8)}
    for name, syndrome in [("ack", 0x00), ("rnr", 0x2E), ("psn", 0x60), ("invalid", 0x61), ("access", 0x62), ("operational", 0x63)]:
        yield "acknowledge-" + name, {**swapped(V4), **answer("acknowledge", b"", msn=0xABCDEF, syndrome=syndrome)}
    yield "nak-ipv6", {**swapped(V6), **answer("acknowledge", b"", syndrome=0x62)}
    for n in (0, 1, 24, 64):
        yield "write-%d-bytes" % n, {**V4, **write_of("write_only", pattern(n))}
    yield "write-ipv6-immediate", {**V6, **write_of("write_only_immediate", pattern(32)), "immediate": 0xFEEDC0DE, "ack_request": 0}
    yield "write-first", {**V4, **write_of("write_first", pattern(1024)), "length": 3000}
    yield "write-middle", {**V4, **write_of("write_middle", pattern(1024)), "psn": 0}
    yield "write-last", {**V4, **write_of("write_last", pattern(951))}
    yield "write-last-immediate", {**V6, **write_of("write_last_immediate", pattern(952)), "immediate": 0}
    yield "fetch-add", {**V4, "packet": "fetch_add", "destination_qp": 0x12ABCD, "psn": 5, "va": 0xDEADBEEF12345678, "rkey": 0xC0FFEE11, "addend": 1 << 63 | 7}
    yield "fetch-add-ipv6", {**V6, "packet": "fetch_add", "destination_qp": 2, "psn": 6, "va": 8, "rkey": 0, "addend": 1}
    yield "atomic-answer", {**swapped(V4), "packet": "atomic_answer", "destination_qp": 0x42, "psn": 5, "syndrome": 0x1F, "msn": 9, "original": 0x0102030405060708}


def patched(frame, at, data):
    return frame[:at] + data + frame[at + len(data):]


def rebuilt(f, at, data):
    """A packet whose transport part is wrong at one place, but whose ICRC is right."""
    return frame_of(f, patched(transport_of(f), at, data))


def header_patched(frame, at, data):
    """An IPv4 header that is wrong at one place, but whose checksum is right."""
    return frame[:14] + with_checksum(patched(frame[14:34], at, data)) + frame[34:]


def bad():
    f4, f6 = {**V4, **REQUEST}, {**V6, **REQUEST}
    v4, v6 = frame_of(f4), frame_of(f6)
    only, nak = {**swapped(V4), **answer("only", pattern(8))}, {**swapped(V4), **answer("acknowledge", b"", syndrome=0x62)}
    yield "truncated", v4[:13]
    yield "truncated", v4[:33]
    yield "truncated", v6[:53]
    yield "truncated", header_patched(v4, 2, b"\x00\x1b")
    yield "truncated", frame_of(f4, b"")
    yield "truncated", frame_of(f4, transport_of(f4)[:11])
    yield "ether_type", patched(v4, 12, b"\x08\x06")
    yield "too_many_tags", v4[:12] + bytes.fromhex("88a80001810000028100000308004500")
    yield "ip_version", patched(v4, 14, b"\x65")
    yield "ip_version", patched(v6, 14, b"\x40")
    yield "ipv4_header_length", patched(v4, 14, b"\x44")
    options = patched(v4[14:34], 0, b"\x46") + b"\x01\x01\x01\x00"
    yield "ipv4_options", v4[:14] + options + v4[34:]
    yield "ipv4_fragment", header_patched(v4, 6, b"\x20\x00")
    yield "ipv4_fragment", header_patched(v4, 6, b"\x40\x01")
    yield "ipv4_flags", header_patched(v4, 6, b"\x00\x00")
    yield "ipv4_flags", header_patched(v4, 6, b"\xc0\x00")
    yield "ipv4_checksum", patched(v4, 24, bytes([v4[24] ^ 1]))
    yield "ip_length", v4[:-1]
    yield "ip_length", v6[:-1]
    yield "ip_length", header_patched(v4, 2, b"\x00\x13")
    yield "ipv6_extension", patched(v6, 20, b"\x00")
    yield "ipv6_extension", patched(v6, 20, b"\x2c")
    yield "protocol", header_patched(v4, 9, b"\x06")
    yield "protocol", patched(v6, 20, b"\x3a")
    yield "udp_length", patched(v4, 38, b"\x00\x27")
    yield "udp_length", patched(v6, 58, b"\x00\x00")
    yield "udp_length", header_patched(v4, 2, b"\x00\x38")
    for opcode in (b"\x05", b"\x13", b"\x15"):
        yield "opcode", rebuilt(f4, 0, opcode)
    yield "opcode", rebuilt(f4, 0, b"\x81")
    yield "transport_version", rebuilt(f4, 1, b"\x41")
    yield "partition_key", rebuilt(f4, 2, b"\x80\x01")
    yield "roce_length", frame_of(f4, transport_of(f4) + bytes(4))
    yield "roce_length", frame_of(f4, transport_of(f4)[:-4])
    yield "roce_length", frame_of(only, transport_of(only) + b"\0")
    yield "roce_length", frame_of(only, transport_of(only) + b"\0\0")
    yield "roce_length", frame_of(nak, transport_of(nak) + bytes(4))
    yield "roce_length", rebuilt({**only, "payload": b""}, 0, b"\x0f")
    write, last = {**V4, **write_of("write_only", pattern(8))}, {**V4, **write_of("write_last", pattern(8))}
    add = {**V4, "packet": "fetch_add", "destination_qp": 2, "psn": 6, "va": 8, "rkey": 0, "addend": 1}
    atomic = {**swapped(V4), "packet": "atomic_answer", "destination_qp": 2, "psn": 5, "syndrome": 0x1F, "msn": 9, "original": 1}
    yield "roce_length", frame_of(write, transport_of(write)[:24])
    yield "roce_length", rebuilt({**last, "payload": b""}, 0, b"\x08")
    yield "roce_length", frame_of(add, transport_of(add) + bytes(4))
    yield "roce_length", frame_of(add, transport_of(add)[:-4])
    yield "roce_length", frame_of(atomic, transport_of(atomic)[:-4])
    yield "write_length", frame_of({**write, "length": 9})
    yield "write_length", frame_of({**write, "length": 7})
    yield "write_length", rebuilt(write, 1, b"\x50")
    yield "syndrome", rebuilt(atomic, 12, b"\x60")
    yield "pad_count", rebuilt({**only, "payload": b""}, 1, b"\x70")
    yield "pad_count", rebuilt({**V4, **write_of("write_middle", pattern(8))}, 1, b"\x50")
    yield "pad_count", rebuilt(add, 1, b"\x50")
    yield "pad_count", rebuilt({**only, "packet": "first"}, 1, b"\x50")
    yield "pad_count", rebuilt(f4, 1, b"\x50")
    yield "icrc", patched(v4, len(v4) - 1, bytes([v4[-1] ^ 0x80]))
    yield "icrc", header_patched(v4, 4, b"\x00\x01")
    yield "icrc", header_patched(v4, 12, b"\x0b")
    yield "icrc", patched(v6, 40, bytes([v6[40] ^ 1]))
    yield "icrc", patched(v4, 34, b"\x00")
    yield "syndrome", rebuilt(only, 12, b"\x62")
    yield "syndrome", rebuilt(nak, 12, b"\x64")
    yield "syndrome", rebuilt(nak, 12, b"\x9f")


def text(value):
    return value.hex() if isinstance(value, bytes) else str(value)


def write(name, records):
    parts = ["# Golden bytes, written by generate.py; the format is described there.\n"]
    for record in records:
        parts.append("\n" + "".join("%s: %s\n" % (key, text(value)) for key, value in record.items()))
    path, made = os.path.join(HERE, name), "".join(parts)
    if sys.argv[1:] != ["--check"]:
        with open(path, "w", encoding="ascii") as out:
            out.write(made)
    elif made != open(path, encoding="ascii").read():
        sys.exit("%s is not what generate.py makes: run it and look at the difference" % path)


def packets():
    for name, fields in good():
        frame = frame_of(fields)
        yield {"name": name, **fields, "frame": frame}
    for number, (error, frame) in enumerate(bad()):
        yield {"name": "refused-%d" % number, "error": error, "frame": frame}


def tcp():
    reads = [(0xDEADBEEF12345400, 0xC0FFEE11, 16), (0, 1, 65536), (1 << 63, 0xFFFFFFFF, 1)]
    header = struct.pack("<IHH", 0x01020304, len(reads), 0)
    yield {"name": "request", "request_id": 0x01020304, "reads": " ".join("%d/%d/%d" % read for read in reads),
           "message": header + b"".join(struct.pack("<QII", *read) for read in reads)}
    items = [("ok", pattern(16)), ("access", b""), ("ok", b"\xa5")]
    yield {"name": "answer", "request_id": 0x01020304, "items": " ".join("%s/%s" % (s, d.hex()) for s, d in items),
           "message": header + b"".join(struct.pack("<II", 0 if s == "ok" else 1, len(d)) + d for s, d in items)}
    items = ["access", "invalid_request", "overloaded"]
    yield {"name": "refusals", "request_id": 0x01020304, "items": " ".join(s + "/" for s in items),
           "message": header + b"".join(struct.pack("<II", 1 + n, 0) for n in range(3))}


PRIMITIVES = {"probe": 0, "key_write": 1, "append": 2, "key_increment": 3}
FLOW = bytes([10, 0, 0, 1, 10, 0, 0, 2, 0x9C, 0x40, 0x01, 0xBB, 6])


def report(f):
    flags = f["importance"] << 6 | f["immediate"] << 5 | (f["sequence"] != "-") << 4
    sequence = 0 if f["sequence"] == "-" else f["sequence"]
    return struct.pack("!BBHIIIBBBB", 0x10 | PRIMITIVES[f["primitive"]], flags, f["table"], f["access"], f["reporter"], sequence,
                       f["copies"], f["generation"], len(f["key"]), len(f["payload"])) + f["key"] + f["payload"]


def reports():
    base = dict(importance=0, immediate=0, sequence="-", reporter=0xC0A80107, table=3, access=0xFEEDBEEF, generation=0, copies=2, key=FLOW, payload=pattern(20))
    unkeyed = dict(base, copies=0, key=b"")
    yield "path-of-a-flow", {"primitive": "key_write", **base}
    yield "ipv6-flow", {"primitive": "key_write", **base, "key": pattern(37), "payload": pattern(64), "copies": 4, "generation": 255}
    yield "third-copy-alone", {"primitive": "key_write", **base, "payload": b"\x07", "copies": 3 << 4}
    yield "shortest", {"primitive": "key_write", **base, "key": b"k", "payload": b"v", "copies": 1}
    yield "longest", {"primitive": "key_write", **base, "key": pattern(64), "payload": pattern(64), "copies": 4 << 4}
    yield "loss-event", {"primitive": "append", **unkeyed, "importance": 2, "immediate": 1, "sequence": 0xFFFFFFFF, "payload": pattern(18)}
    yield "first-of-a-reporter", {"primitive": "append", **unkeyed, "importance": 1, "sequence": 0, "payload": pattern(4)}
    yield "evicted-counter", {"primitive": "key_increment", **base, "payload": struct.pack("!Q", 1 << 63 | 5), "table": 0xFFFF}
    yield "probe", {"primitive": "probe", **unkeyed, "sequence": 77, "importance": 2, "payload": struct.pack("!I", 70)}


def wrong_reports():
    all_good = {name: report(fields) for name, fields in reports()}
    write, append = all_good["path-of-a-flow"], all_good["loss-event"]
    increment, probe = all_good["evicted-counter"], all_good["probe"]
    for length in (0, 1, 19):
        yield "truncated", write[:length]
    yield "version", patched(write, 0, b"\x21")
    yield "version", patched(write, 0, b"\xf1")
    yield "primitive", patched(write, 0, b"\x14")
    yield "primitive", patched(write, 0, b"\x1f")
    yield "flags", patched(write, 1, b"\xc0")
    yield "flags", patched(write, 1, b"\x01")
    yield "flags", patched(patched(probe, 1, b"\x80"), 12, bytes(4))
    yield "sequence", patched(write, 15, b"\x01")
    yield "length", write[:-1]
    yield "length", write + b"\0"
    yield "key_length", patched(write, 18, b"\x00\x21")
    yield "key_length", patched(write, 18, b"\x41\x01") + bytes(33)
    yield "key_length", patched(append, 18, b"\x01\x11")
    yield "key_length", patched(probe, 18, b"\x01") + b"\0"
    yield "payload_length", patched(write, 18, b"\x21\x00")
    yield "payload_length", patched(write, 18, b"\x0d\x41") + bytes(45)
    yield "payload_length", patched(append, 19, b"\x00")[:20]
    yield "payload_length", increment[:-1][:19] + b"\x07" + increment[20:-1]
    yield "payload_length", patched(probe, 19, b"\x05") + b"\0"
    yield "payload_length", patched(probe, 19, b"\x00")[:20]
    for copies in (0x00, 0x05, 0x11, 0x50, 0xF0):
        yield "copies", patched(write, 16, bytes([copies]))
    yield "copies", patched(append, 16, b"\x01")


def answers():
    for verdict, bits, congested in [("received", 0, 0), ("missing", 1, 0), ("unknown", 4, 0), ("received", 0, 1), ("missing", 1, 1), ("unknown", 4, 1)]:
        fields = dict(verdict=verdict, congested=congested, reporter=0xC0A80107, sequence=0x80000001, access=0xFEEDBEEF)
        yield verdict, fields, struct.pack("!BBHIII", 0x1F, bits | congested << 1, 0, fields["reporter"], fields["sequence"], fields["access"])


def prototypes():
    """The prototype's layout, without and with a sequence number: its headers are those of the published Reporter."""
    for sequence, kept in (("-", 0), (0, 1), (255, 1), (9, 0)):
        numbered = sequence != "-"
        head = lambda opcode, immediate: bytes([opcode]) + (bytes([sequence]) if numbered else b"") + bytes([immediate << 7 | kept << 6])
        fields = lambda primitive, immediate: dict(primitive=primitive, immediate=immediate, sequence=sequence if kept else "-")
        for words in range(1, 8):
            data = pattern(4 * words)
            yield "key-write-%d" % words, {**fields("key_write", 0), "copies": 2, "key": FLOW[:4], "payload": data}, head(1, 0) + b"\x02" + FLOW[:4] + data
        yield "append", {**fields("append", 1), "list": 0x01020304, "payload": b"\xca\xfe\xba\xbe"}, head(2, 1) + struct.pack("!I", 0x01020304) + b"\xca\xfe\xba\xbe"
        yield "key-increment", {**fields("key_increment", 0), "copies": 4, "key": FLOW[:4], "payload": struct.pack("!Q", 7)}, head(3, 0) + b"\x04" + FLOW[:4] + struct.pack("!Q", 7)


def wrong_prototypes():
    yield "truncated", b""
    yield "primitive", bytes(11)
    yield "primitive", b"\x04\x00" + bytes(9)
    yield "length", b"\x01\x00\x01" + bytes(4)
    yield "length", b"\x01\x00\x01" + bytes(4 + 32)
    yield "length", b"\x01\x00\x01" + bytes(4 + 6)
    yield "length", b"\x02\x00" + bytes(7)
    yield "length", b"\x02\x00" + bytes(10)
    yield "length", b"\x03\x00\x01" + bytes(11)
    yield "copies", b"\x01\x00\x00" + bytes(8)
    yield "copies", b"\x01\x00\x10" + bytes(8)
    yield "copies", b"\x03\x00\x05" + bytes(12)


def dta():
    for name, fields in reports():
        yield {"kind": "report", "name": name, **fields, "datagram": report(fields)}
    for error, datagram in wrong_reports():
        yield {"kind": "report", "name": "refused", "error": error, "datagram": datagram}
    for name, fields, datagram in answers():
        yield {"kind": "answer", "name": name, **fields, "datagram": datagram}
    answer = struct.pack("!BBHIII", 0x1F, 0, 0, 1, 2, 3)
    for error, datagram in [("truncated", answer[:15]), ("length", answer + b"\0"), ("version", b"\x2f" + answer[1:]), ("primitive", b"\x11" + answer[1:]),
                            ("verdict", b"\x1f\x05" + answer[2:]), ("verdict", b"\x1f\x08" + answer[2:])]:
        yield {"kind": "answer", "name": "refused", "error": error, "datagram": datagram}
    for name, fields, datagram in prototypes():
        yield {"kind": "prototype", "name": name, **fields, "datagram": datagram}
    for error, datagram in wrong_prototypes():
        yield {"kind": "prototype", "name": "refused", "error": error, "datagram": datagram}


write("packets.txt", packets())
write("tcp_read.txt", tcp())
write("dta.txt", dta())
