#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vectors.json, the test vectors of format v1, with the reference in format_v1.py.

    python3 docs/format/vectors.py            rewrites vectors.json
    python3 docs/format/vectors.py --check    exits 1 if vectors.json is not what this file makes

Inputs and every expected refusal are written here by hand; the reference must agree with them. One function a section of the file.
"""

import base64
import hashlib
import json
import struct
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import format_v1 as f  # noqa: E402
from format_v1 import require  # noqa: E402

HEADER = {
    "format": "onlooker v1",
    "made_by": "docs/format/vectors.py from the pages in docs/format; do not edit",
    "numbers": "64-bit quantities are decimal strings, whatever their size; JSON numbers are used only for what has 32 bits or fewer. "
    "Words, identities and addresses are hex strings with 0x and 16 digits.",
    "bytes": "Blocks, ids and other bytes are lower-case hex in memory order, without 0x.",
    "doubles": "Decimal text as schema.md defines it for scale, in a string.",
    "schema_codes": "Refusal codes are those of schema.md, Refused; upper-case codes are names of limits. Each refused schema breaks one rule.",
}


def word(value):
    return f"0x{value:016x}"


def pattern(count, seed):
    """Payload words that differ in every byte; a test takes them from the block's hex."""
    return b"".join(struct.pack("<Q", (seed + i) * 0x9E3779B97F4A7C15 & f.U64) for i in range(count))


# ---- block.md -------------------------------------------------------------------------------------------------------


def crc_vectors():
    require(f.crc32(b"123456789") == 0xCBF43926, "check value of block.md")
    inputs = [(b"", "empty"), (b"123456789", "the check value"), (bytes(1), "one zero"), (bytes(1016), "a block of zeros"),
              (b"\xff" * 4, "all ones"), (bytes(range(256)), "0 to 255"), (b"onlooker", "text")]  # fmt: skip
    return [{"what": what, "bytes": data.hex(), "crc": f"0x{f.crc32(data):08x}"} for data, what in inputs]


def identity_vectors():
    rows = [(0, 0, 1), (1, 0, 1), (17, 2, 9128731), (0, 0xFFFF, 0xFFFFFF), (0xFFFFFF, 0, 1), (0xFFFFFF, 0xFFFF, 0xFFFFFF),
            (1, 0xFFFF, 1), (0x123456, 0x789A, 0xBCDEF0)]  # fmt: skip
    return [{"region": r, "index": i, "generation": g, "word": word(f.identity(r, i, g))} for r, i, g in rows]


def place_vectors():
    plain = [0, 1, 125, 126, 127, 128, 253, 254, 1000, 127 * 65536 - 1]
    guarded = [0, 1, 122, 123, 124, 125, 247, 248, 1000, 124 * 65536 - 1]
    rows = [("plain", s, *f.place(s, f.PLAIN_SLOTS, 1)) for s in plain] + [("guarded", s, *f.place(s, f.GUARDED_SLOTS, 3)) for s in guarded]
    return [{"kind": k, "slot": s, "block": b, "word": w} for k, s, b, w in rows]


def guarded_vectors():
    """Commits: version of word 0 before -> the block after; a writer must produce it, a reader accept it."""
    out = []
    rows = [(0, "first commit of a zeroed block"), (2, "second commit"), (7, "commit after a writer died at odd version 7"),
            (2**32 - 4, "highest version"), (2**32 - 2, "wraps to 2, not 0"), (2**32 - 1, "wraps after a dead writer")]  # fmt: skip
    for i, (before, what) in enumerate(rows):
        version, ident, time_ns = f.next_version(before), f.identity(17, i, 9128731), 81_234_567_890 + i
        require(version == {0: 2, 2: 4, 7: 8, 2**32 - 4: 2**32 - 2, 2**32 - 2: 2, 2**32 - 1: 2}[before], "next version")
        block = f.guarded(version, time_ns, ident, pattern(124, 1 + 1000 * i))
        require(f.check_guarded(block, ident) is None, what)
        out.append({"what": what, "version_before": before, "version": version, "time_ns": str(time_ns), "identity": word(ident),
                    "block": block.hex()})  # fmt: skip
    return out


def edited(block, *edits):
    """edits: (byte offset, bytes)."""
    block = bytearray(block)
    for offset, data in edits:
        block[offset : offset + len(data)] = data
    return bytes(block)


def resealed(block):
    """The CRC made to match whatever bytes 0-1015 are."""
    return edited(block, (1020, struct.pack("<I", f.crc32(block[:1016]))))


def rejected_vectors():
    expected = f.identity(17, 0, 9128731)
    good = f.guarded(4, 81_234_567_890, expected, pattern(124, 1))
    newer = f.guarded(6, 81_234_567_999, expected, pattern(124, 500))
    u32 = lambda value: struct.pack("<I", value)  # noqa: E731
    flip = lambda offset: (offset, bytes([good[offset] ^ 1]))  # noqa: E731
    identity = lambda r, i, g: resealed(edited(good, (16, struct.pack("<Q", f.identity(r, i, g)))))  # noqa: E731
    rows = [
        ("unwritten", "zeros: never written, or a freed range", bytes(1024)),
        ("unwritten", "version 0 in both places, CRC right", resealed(edited(good, (0, u32(0)), (1016, u32(0))))),
        ("unwritten", "version 0, although the high half of word 0, word 127 and the identity are wrong too",
         edited(good, (0, u32(0)), (4, u32(9)), (16, bytes(8)))),
        ("busy", "a writer between its first and last stores", edited(good, (0, u32(5)), (1016, u32(5) + u32(0)))),
        ("busy", "odd in word 0 only, as in an ascending copy that a commit overtook", edited(good, (0, u32(5)))),
        ("busy", "highest odd version, CRC right", resealed(edited(good, (0, u32(2**32 - 1)), (1016, u32(2**32 - 1))))),
        ("version", "odd in word 127 only", edited(good, (1016, u32(5) + u32(0)))),
        ("version", "even but different, CRC of bytes 0-1015 right", edited(good, (1016, u32(6)))),
        ("version", "high half of word 0 not zero, CRC right", resealed(edited(good, (4, u32(1))))),
        ("version", "first half old, second half new; the CRC is wrong too", good[:512] + newer[512:]),
        ("crc", "one bit of the payload flipped", edited(good, flip(24))),
        ("crc", "one bit of the last payload byte flipped", edited(good, flip(1015))),
        ("crc", "one bit of the time flipped", edited(good, flip(8))),
        ("crc", "one bit of the CRC flipped", edited(good, flip(1023))),
        ("crc", "a cache line of a newer commit between equal versions", good[:512] + newer[512:576] + good[576:]),
        ("crc", "CRC made with the odd version", edited(good, (1020, u32(f.crc32(u32(5) + good[4:1016]))))),
        ("crc", "another identity and a stale CRC", edited(good, flip(16))),
        ("identity", "another generation, CRC right", identity(17, 0, 9128730)),
        ("identity", "another region, CRC right", identity(18, 0, 9128731)),
        ("identity", "another block of the region, CRC right", identity(17, 1, 9128731)),
        ("identity", "zero identity, CRC right", identity(0, 0, 0)),
    ]
    for reason, what, block in rows:
        require(f.check_guarded(block, expected) == reason and len(block) == 1024, what)
    return [{"reason": reason, "what": what, "expected": word(expected), "block": block.hex()} for reason, what, block in rows]


# ---- table.md -------------------------------------------------------------------------------------------------------

TABLE_SCHEMA = {
    "name": "shop_connection",
    "groups": [{
        "kind": "table", "blocks": 4, "acquisition": "published", "max_age_ns": 10000000,
        "key": [{"name": "device", "type": "text", "bytes": 16}, {"name": "peer", "type": "address"}, {"name": "inode", "type": "u64"}],
        "fields": [
            {"name": "shop_received_bytes_total", "metric": "counter", "type": "u64", "slot": 0, "unit": "bytes",
             "help": "Bytes that the peer sent and the program took.", "labels": {"direction": "in"}},
            {"name": "shop_load_ratio", "metric": "gauge", "type": "f64", "slot": 1, "unit": "ratio", "help": "Share of the time that the peer kept the connection busy."},
            {"name": "shop_state_info", "metric": "info", "type": "text", "slot": 2, "bytes": 32},
            {"name": "shop_offset_seconds", "metric": "gauge", "type": "i64", "slot": 6, "unit": "seconds", "scale": 1e-9,
             "help": "How far the peer's clock is ahead (\u2212: behind)."},
            {"name": "shop_latency_seconds", "metric": "histogram", "type": "u64", "slot": 8, "unit": "seconds", "scale": 1e-9,
             "help": "From request to answer, as the program saw it.",
             "histogram": {"grouping_power": 1, "max_power": 13}},
        ],
    }],
}  # fmt: skip


def layout_vectors():
    out = []
    for key, value in [(1, 0), (1, 1), (2, 4), (5, 35), (8, 8), (8, 52), (8, 53), (8, 54), (1, 60), (1, 61), (1, 122)]:
        row_words, per_block = f.rows_layout(key, value)
        places = [[r, *f.row_place(r, row_words, per_block)] for r in sorted({0, 1, per_block - 1, per_block, 1000})]
        out.append({"key_words": key, "value_words": value, "row_words": row_words, "rows_per_block": per_block,
                    "rows": places, "capacity_of_4_blocks": 4 * per_block})  # fmt: skip
    return out


def text_key_vectors():
    rows = [("eth0", 8), ("12345678", 8), ("123456789", 8), ("", 8), ("größenwahn", 8), ("1234567é", 8), ("123456é", 8), ("12345€", 8),
            ("123456€", 8), ("12345😀", 8), ("1234😀", 8), ("schnittstelle-ä", 16), ("schnittstelle-äö", 16)]  # fmt: skip
    return [{"text": text, "bytes": space, "key": f.cut_text(text, space).hex()} for text, space in rows]


def address_vectors():
    texts = ["192.0.2.1", "0.0.0.0", "2001:db8::1", "::", "::1", "fe80::1:0:0:1", "2001:db8:0:1:1:1:1:1"]
    return [{"address": text, "key": f.address(text).hex()} for text in texts]


def row(generation, device, peer, inode, values):
    """A live row of TABLE_SCHEMA: 1 + 5 + 35 words."""
    received, ratio, state, offset, counts, total = values
    out = struct.pack("<II", generation, 1)
    out += f.cut_text(device, 16) + f.address(peer) + struct.pack("<Q", inode)
    out += struct.pack("<Qd", received, ratio) + f.cut_text(state, 32) + struct.pack("<qQ", offset, 0)  # slot 7 has no field
    out += struct.pack("<26QQ", *[counts.get(i, 0) for i in range(26)], total)
    require(len(out) == 8 * 41, "row")
    return out


def table_block_vectors():
    schema, canonical = f.accept(json.dumps(TABLE_SCHEMA))
    group = schema["groups"][0]
    layout = f.rows_layout(f.key_words(group), f.value_words(group))
    require(layout == (41, 3), "three rows fill the block but for one word")
    first = (2**64 - 2, 0.25, "angehalten, größer als der Platz", -1_500_000_000, {0: 3, 5: 1, 25: 2}, 12345)
    second = (42, 1e16, "ok", 2**62, {}, 0)
    payload = row(7, "schnittstelle-äö", "192.0.2.1", 2**64 - 1, first)
    payload += struct.pack("<Q", 5).ljust(8 * 41, b"\0")
    payload += row(2**32 - 1, "eth0", "2001:db8::1", 4026531840, second)
    ident = f.identity(18, 1, 77)
    block = f.guarded(10, 5_000_000_000, ident, payload)
    require(f.check_guarded(block, ident) is None, "table block")
    require(f.next_row_generation(2**32 - 1) == 1 and f.next_row_generation(0) == 1, "row generation")
    rows = [
        {"row": 3, "state": "live", "generation": 7, "next_generation": 8,
         "key": {"device": "schnittstelle-ä", "peer": "192.0.2.1", "inode": "18446744073709551615"},
         "values": {"shop_received_bytes_total": str(2**64 - 2), "shop_load_ratio": "0.25",
                    "shop_state_info": "angehalten, größer als der Pla", "shop_offset_seconds": "-1500000000",
                    "shop_latency_seconds": {"buckets": {"0": "3", "5": "1", "25": "2"}, "sum": "12345"}}},
        {"row": 4, "state": "free", "generation": 5, "next_generation": 6},
        {"row": 5, "state": "live", "generation": 2**32 - 1, "next_generation": 1,
         "key": {"device": "eth0", "peer": "2001:db8::1", "inode": "4026531840"},
         "values": {"shop_received_bytes_total": "42", "shop_load_ratio": "1e16", "shop_state_info": "ok",
                    "shop_offset_seconds": str(2**62), "shop_latency_seconds": {"buckets": {}, "sum": "0"}}},
    ]  # fmt: skip
    for given in ("schnittstelle-äö", "angehalten, größer als der Platz"):
        require(len(given.encode()) > (16 if "äö" in given else 32), "the text does not fit")
    return [{"what": "block 1 of the group: rows 3 (live), 4 (free, used before) and 5 (live); stored values, before scale; "
                     "device and state of row 3 were cut at a character's end", "schema": canonical, "identity": word(ident),
             "time_ns": "5000000000", "block": block.hex(), "rows": rows}]  # fmt: skip


# ---- schema.md: histograms ------------------------------------------------------------------------------------------

SHAPES = [(0, 1), (0, 4), (0, 64), (1, 13), (2, 8), (4, 30), (5, 64), (6, 64), (11, 12), (3, 4)]


def histogram_shape_vectors():
    out = []
    for g, n in SHAPES:
        count, end = f.buckets(g, n), -1
        for i in range(count):  # the ranges are gapless, begin at 0, and index and range are inverse
            low, high = f.bucket_range(g, i)
            require(low == end + 1 and f.bucket_of(g, n, low) == f.bucket_of(g, n, high) == i, "ranges")
            end = high
        require(end == (1 << n) - 1, "last range")
        chosen = sorted({0, 1, count // 2, count - 2, count - 1, min(2 << g, count - 1), (2 << g) - 1})
        values = sorted({v for k in (1, g, g + 1, g + 2, n - 1, n, 63) for v in (2**k - 1, 2**k, 2**k + 1)} | {0, 1000, f.U64} | {3 << n - 2 if n > 1 else 1})
        values = [v for v in values if v <= f.U64]
        out.append({"g": g, "n": n, "buckets": count, "slots": count + 1, "index": [[str(v), f.bucket_of(g, n, v)] for v in values],
                    "range": [[i, *map(str, f.bucket_range(g, i))] for i in chosen]})  # fmt: skip
    return out


def merge_vectors():
    a, b = {0: 1, 3: f.U64, 7: 5}, {3: 2, 8: 9, 27: 4}
    merged = {i: (a.get(i, 0) + b.get(i, 0)) & f.U64 for i in sorted(a | b)}
    text = lambda counts: {str(i): str(c) for i, c in counts.items()}  # noqa: E731
    return [{"what": "buckets not named are 0; a bucket and the sum wrap", "g": 2, "n": 8, "a": {"buckets": text(a), "sum": str(f.U64 - 9)},
             "b": {"buckets": text(b), "sum": "20"}, "merged": {"buckets": text(merged), "sum": "10"}}]  # fmt: skip


def prometheus_vectors():
    out = []
    rows = [("latencies in ns; last bucket open-ended", 2, 8, {0: 2, 1: 1, 2: 5, 5: 1, 8: 3, 11: 1, 12: 4, 26: 2, 27: 6}, 1e-9, 4321),
            ("whole numbers", 0, 4, {0: 1, 1: 2, 2: 3, 3: 4, 4: 5}, 1.0, 100),
            ("smallest shape", 0, 1, {0: 7, 1: 9}, 0.001, 16),
            ("upper ends beyond 2^53 are rounded to doubles", 0, 64, {0: 1, 64: 1}, 1e-9, 1)]  # fmt: skip
    for what, g, n, counts, scale, total in rows:
        dense = [counts.get(i, 0) for i in range(f.buckets(g, n))]
        out.append({"what": what, "g": g, "n": n, "scale": f.decimal_text(scale), "buckets": {str(i): str(c) for i, c in counts.items()},
                    "sum": str(total), "cumulative": f.prometheus(g, n, dense, scale), "scaled_sum": f.decimal_text(f.exported(total, scale))})  # fmt: skip
    return out


# ---- control.md -----------------------------------------------------------------------------------------------------

MACHINE_ID = "0123456789abcdef0123456789abcdef"
BOOT_ID = "5f0c1b6e-9d2a-4f3c-8b7e-00112233ff44"
CONTROL_GENERATION, CONTROL_VA = 7123, 0x1122334455667800
HEADER_BLOCK = {
    "format_version": 1, "block_bytes": 1024, "generation": 67, "host_id": f.host_id(MACHINE_ID), "boot_id": bytes.fromhex(BOOT_ID.replace("-", "")),
    "entry_blocks": 2, "live_entries": 3, "schema_first_block": 9, "schema_blocks": 2, "control_blocks": 64, "began_ns": 81_234_567_890,
}  # fmt: skip


def commits():
    """A host whose 67 commits went to block 1, and each third to block 2."""
    return [(generation, 2 if generation % 3 == 0 else 1) for generation in range(1, 68)]


def shown(record):
    """A decoded record: bytes as hex, 64-bit fields as the header says."""
    out = {}
    for key, value in record.items():
        if isinstance(value, bytes):
            value = value.hex()
        elif key in ("identity", "va"):
            value = word(value)
        elif key in ("generation", "began_ns", "created_ns", "length"):
            value = str(value)
        out[key] = value
    return out


def control_entries():
    canonical = f.accept(json.dumps(TABLE_SCHEMA))[1]
    ident = f.schema_id(canonical)
    region = {"kind": 1, "flags": 0, "identity": f.identity(18, 0, 77), "va": 0xFEDCBA9876540000, "length": 4096, "rkey": 0x12345678,
              "device_rkey": 0, "responders": 3, "schema_id": ident, "pid": 4242, "uid": 1000, "created_ns": 90_000_000_001, "name": "shop_connection",
              "labels": {"pid": "4242", "program": "shopd", "shard": "größe"}}  # fmt: skip
    schema = {"kind": 2, "flags": 0, "identity": 0, "va": CONTROL_VA + 9 * 1024, "length": len(canonical.encode()), "rkey": 0x9ABCDEF0,
              "responders": 3, "schema_id": ident, "pid": 0, "uid": 0, "created_ns": 90_000_000_000, "name": "shop_connection", "labels": {}}  # fmt: skip
    orphan = region | {"flags": 1, "identity": f.identity(19, 0, 16777215), "va": 0xFEDCBA9876542000, "rkey": 0xFFFFFFFF, "device_rkey": 0x87654321, "responders": 7,
                       "name": "n" * 128, "labels": {"a": "v" * 256, "bb": "w" * 25}, "pid": 2**32 - 1, "uid": 2**32 - 1, "created_ns": f.U64}  # fmt: skip
    require(len("a") + 1 + 256 + 1 + len("bb") + 1 + 25 + 1 == 288, "labels fill their space")
    return canonical, [region, schema, orphan]


def control_vectors():
    canonical, (region, schema, orphan) = control_entries()
    ring = f.change_ring(commits())
    blocks = [
        (0, "header", HEADER_BLOCK | {"ring": ring}, f.header_payload(HEADER_BLOCK | {"ring": ring})),
        (1, "entry block: a data region and its schema", [region, schema], f.entry(region) + f.entry(schema)),
        (2, "entry block: an orphan with name and labels that fill their space, and a free entry", [orphan, {"kind": 0}],
         f.entry(orphan) + bytes(f.ENTRY_BYTES)),
    ]  # fmt: skip
    data = canonical.encode()
    require(f.SCHEMA_TEXT_BYTES < len(data) <= 2 * f.SCHEMA_TEXT_BYTES, "schema text takes two blocks")
    blocks += [(9 + i, f"schema text, part {i + 1} of 2; decoded is the whole text", canonical, data[992 * i : 992 * i + 992]) for i in (0, 1)]
    out = []
    for index, what, decoded, payload in blocks:
        ident, time_ns = f.identity(0, index, CONTROL_GENERATION), 90_000_000_100 + index
        block = f.guarded(2 * (index + 1), time_ns, ident, payload)
        require(f.check_guarded(block, ident) is None, what)
        if isinstance(decoded, dict):
            decoded = shown(decoded)
        elif isinstance(decoded, list):
            decoded = [shown(one) for one in decoded]
        out.append({"what": what, "index": index, "identity": word(ident), "time_ns": str(time_ns), "block": block.hex(), "decoded": decoded})
    return out


def ring_vectors():
    few = [(1, 1), (2, 1), (3, 2), (4, 7)]
    return [{"what": what, "commits": [[str(g), b] for g, b in rows], "ring": f.change_ring(rows)}
            for what, rows in [("no commit yet", []), ("four commits", few), ("the ring has gone round", commits())]]  # fmt: skip


def read_vectors():
    few = f.change_ring([(g, g) for g in range(1, 6)])
    around = f.change_ring([(g, 1 + g % 7) for g in range(1, 201)])
    outside = f.change_ring([(1, 1), (2, 9)])
    rows = [
        ("first read: all", None, 5, 5, few, [1, 2, 3, 4, 5]),
        ("nothing new", 5, 5, 5, few, []),
        ("one commit", 4, 5, 5, few, [5]),
        ("three commits", 2, 5, 5, few, [3, 4, 5]),
        ("from an empty directory", 0, 5, 5, few, [1, 2, 3, 4, 5]),
        ("empty directory, first read", None, 0, 0, [0] * 64, []),
        ("64 behind: each block once", 136, 200, 9, around, [1, 2, 3, 4, 5, 6, 7]),
        ("65 behind: all", 135, 200, 9, around, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("ten behind", 190, 200, 9, around, [1, 2, 3, 4, 5, 6, 7]),
        ("three behind", 197, 200, 9, around, [3, 4, 5]),
        ("seen below known: all", 201, 200, 9, around, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("the ring names a block beyond E: all", 0, 2, 3, outside, [1, 2, 3]),
        ("the ring names block 0: all", 5, 6, 5, few, [1, 2, 3, 4, 5]),
        ("far behind, near 2^64", 5, f.U64, 3, few, [1, 2, 3]),
    ]
    for what, known, seen, count, ring, read in rows:
        require(f.entry_blocks_to_read(known, seen, count, ring) == read, what)
    return [{"what": what, "known": None if known is None else str(known), "seen": str(seen), "entry_blocks": count, "ring": ring, "read": read}
            for what, known, seen, count, ring, read in rows]  # fmt: skip


def host_id_vectors():
    texts = [MACHINE_ID, "f" * 32, "b08dfa6083e7567a1921a715000001fb"]
    return [{"machine_id": text, "file": text + "\n", "host_id": f.host_id(text).hex()} for text in texts]


# ---- bootstrap.md ---------------------------------------------------------------------------------------------------


def base64url(data):
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def token_vectors():
    out = []
    one, two = hashlib.sha256(b"certificate").digest(), bytes(range(32))
    a, b = base64url(one), base64url(two)
    ones = base64url(b"\xff" * 32)
    good = [("certificate: the bytes `certificate`", one, two, f"onlk1.{a}.{b}"), ("plain mode", None, two, f"onlk1.-.{b}"),
            ("zeros and ones", bytes(32), b"\xff" * 32, f"onlk1.{'A' * 43}.{ones}")]  # fmt: skip
    for what, fingerprint, secret, token in good:
        require(f.parse_token(token) == ("-" if fingerprint is None else base64url(fingerprint), base64url(secret)), what)
        out.append({"what": what, "token": token, "valid": True, "fingerprint": fingerprint and fingerprint.hex(), "secret": secret.hex()})
    bad = [
        ("empty", ""), ("prefix only", "onlk1"), ("no secret", f"onlk1.{a}"), ("empty secret", f"onlk1.{a}."),
        ("empty fingerprint", f"onlk1..{b}"), ("another version", f"onlk2.{a}.{b}"), ("upper case prefix", f"ONLK1.{a}.{b}"),
        ("a fourth part", f"onlk1.{a}.{b}.{b}"), ("a dot at the end", f"onlk1.{a}.{b}."), ("secret -", f"onlk1.{a}.-"),
        ("padding", f"onlk1.{a}=.{b}="), ("secret of 42 characters", f"onlk1.{a}.{b[:-1]}"), ("secret of 44 characters", f"onlk1.{a}.{b}A"),
        ("base64 with + instead of -", f"onlk1.{a}.{'+' * 42}A"), ("base64 with / instead of _", f"onlk1.{a}.{'/' * 42}A"),
        ("unused bits of the secret not zero", f"onlk1.{a}.{'A' * 42}B"), ("unused bits of the fingerprint not zero", f"onlk1.{'A' * 42}D.{b}"),
        ("line end", f"onlk1.{a}.{b}\n"), ("space before", f" onlk1.{a}.{b}"), ("space inside", f"onlk1.{a[:20]} {a[21:]}.{b}"),
        ("hex fingerprint", f"onlk1.{one.hex()}.{b}"), ("not ASCII", f"onlk1.{a}.{b[:-2]}é{b[-1]}"),
    ]  # fmt: skip
    for what, token in bad:
        require(f.parse_token(token) is None, what)
        out.append({"what": what, "token": token, "valid": False})
    return out


# ---- the file -------------------------------------------------------------------------------------------------------


def document():
    from vectors_schema import WITHOUT_VECTOR, accepted_vectors, refused_codes, refused_vectors

    codes = refused_codes()
    page = Path(__file__).with_name("schema.md").read_text()
    for code in codes + WITHOUT_VECTOR:
        require(f"`{code}`" in page or f"| {code}" in page or f"/ {code}" in page, f"{code} is on the page")
    header = HEADER | {"codes": codes, "codes_without_vector": WITHOUT_VECTOR}
    return header, {
        "crc32": crc_vectors(), "identity": identity_vectors(), "place": place_vectors(),
        "guarded": guarded_vectors(), "guarded_rejected": rejected_vectors(),
        "table_layout": layout_vectors(), "table_text": text_key_vectors(), "table_address": address_vectors(), "table_block": table_block_vectors(),
        "schema": accepted_vectors(TABLE_SCHEMA), "schema_refused": refused_vectors(),
        "histogram": histogram_shape_vectors(), "histogram_merge": merge_vectors(), "histogram_prometheus": prometheus_vectors(),
        "control": control_vectors(), "control_ring": ring_vectors(), "control_read": read_vectors(), "host_id": host_id_vectors(),
        "join_token": token_vectors(),
    }  # fmt: skip


def render(header, sections):
    """One vector a line, ASCII only, so that diffs and invisible characters can be read."""
    parts = ['"header": ' + json.dumps(header, indent=1)]
    for name, vectors in sections.items():
        parts.append(f'"{name}": [\n' + ",\n".join(json.dumps(v, separators=(",", ":")) for v in vectors) + "\n]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def first_difference(old, new):
    olds, news = old.splitlines(), new.splitlines()
    for i in range(max(len(olds), len(news))):
        a, b = olds[i] if i < len(olds) else "(end)", news[i] if i < len(news) else "(end)"
        if a != b:
            at = next((j for j, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            start = max(0, at - 60)
            return f"line {i + 1}, column {at + 1}:\n  file: {a[:40]} ... {a[start:at + 60]}\n  made: {b[:40]} ... {b[start:at + 60]}"
    return "line ends"


def main(arguments):
    if arguments not in ([], ["--check"]):
        raise SystemExit(__doc__)
    path = Path(__file__).with_name("vectors.json")
    made = render(*document())
    json.loads(made)
    if not arguments:
        path.write_bytes(made.encode())
        return
    found = path.read_bytes().decode() if path.exists() else ""
    if found != made:
        raise SystemExit(f"{path.name} is not what vectors.py makes; run vectors.py without --check and look at the diff.\n" + first_difference(found, made))


if __name__ == "__main__":
    main(sys.argv[1:])
