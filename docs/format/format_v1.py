# SPDX-License-Identifier: Apache-2.0
"""Reference of format v1, written from the pages beside it alone; vectors.py makes vectors.json with it.

It exists so that a person can check the vectors against the pages: short functions in the order of the pages, each citing its section, and
nothing in it is fast. Standard library only, Python 3.11.
"""

import hashlib
import ipaddress
import json
import re
import struct
import sys
from decimal import Decimal

U64 = (1 << 64) - 1


def require(condition, what):
    """What a vector says by hand and what this reference computes must agree; else one of the two is mistaken: stop."""
    if not condition:
        raise SystemExit(f"format_v1.py and vectors.py disagree: {what}")


# ---- block.md -------------------------------------------------------------------------------------------------------

BLOCK_BYTES, PLAIN_SLOTS, GUARDED_SLOTS, MAX_REGION_BLOCKS = 1024, 127, 124, 65_536


def crc32(data):
    """block.md, Guarded block: CRC-32/ISO-HDLC, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def identity(region, index, generation):
    """block.md, Identity word."""
    return index | region << 16 | generation << 40


def place(slot, slots, first_word):
    """block.md: slot of a group -> (block of the group, word of the block)."""
    return slot // slots, first_word + slot % slots


def next_version(word0):
    """block.md, Writer, steps 1 and 5: even, never 0, and past a writer that died at an odd version."""
    return ((word0 & 0xFFFFFFFE) + 2) % (1 << 32) or 2


def guarded(version, time_ns, ident, payload):
    """block.md, Guarded block: a committed block."""
    require(len(payload) <= 8 * GUARDED_SLOTS, "payload too long")
    head = struct.pack("<QQQ", version, time_ns, ident) + payload.ljust(8 * GUARDED_SLOTS, b"\0")
    return head + struct.pack("<II", version & 0xFFFFFFFF, crc32(head))


def check_guarded(block, expected):
    """block.md, Reader: the first reason that fails, or None."""
    version, high, _, ident = struct.unpack_from("<IIQQ", block)
    version_again, crc = struct.unpack_from("<II", block, 1016)
    if version == 0:
        return "unwritten"
    if version & 1:
        return "busy"
    if version != version_again or high:
        return "version"
    if crc != crc32(block[:1016]):
        return "crc"
    return None if ident == expected else "identity"


# ---- table.md -------------------------------------------------------------------------------------------------------


def rows_layout(key_words, value_words):
    """table.md: (row_words, rows_per_block)."""
    row_words = 1 + key_words + value_words
    return row_words, GUARDED_SLOTS // row_words


def row_place(row, row_words, rows_per_block):
    """table.md: row -> (block of the group, payload word of the block)."""
    return row // rows_per_block, row % rows_per_block * row_words


def cut_text(text, space):
    """table.md, Key parts: the most whole characters that fit, NUL padded."""
    while len(text.encode()) > space:
        text = text[:-1]
    return text.encode().ljust(space, b"\0")


def address(text):
    """table.md, Key parts: 16 bytes in network order."""
    parsed = ipaddress.ip_address(text)
    return parsed.packed if parsed.version == 6 else bytes(10) + b"\xff\xff" + parsed.packed


def next_row_generation(generation):
    """table.md, Row generation."""
    return (generation + 1) % (1 << 32) or 1


# ---- schema.md, Histograms ------------------------------------------------------------------------------------------


def buckets(g, n):
    return (n - g + 1) << g


def bucket_of(g, n, value):
    if value < 1 << g + 1:
        return value
    p = value.bit_length() - 1
    return min((p - g + 1 << g) + (value - (1 << p) >> p - g), buckets(g, n) - 1)


def bucket_range(g, i):
    if i < 1 << g + 1:
        return i, i
    q, r = (i >> g) - 1 + g, i % (1 << g)
    return (1 << q) + (r << q - g), (1 << q) + (r + 1 << q - g) - 1


def exported(stored, scale):
    """schema.md, Form of `scale`: a scale that is the reciprocal of a whole number divides, so that 3 * 1e-9 is 3e-9."""
    whole = round(1 / scale) if scale < 1 else 0
    if 0 < whole < 2**53 and 1 / float(whole) == scale:
        return float(stored) / whole
    return float(stored) * scale


def prometheus(g, n, counts, scale):
    """schema.md: [(le, cumulative count)] at the ranges that end at 2^k - 1, k = 0 .. n-1, then +Inf."""
    ends = [(bucket_range(g, i)[1], i) for i in range(buckets(g, n) - 1)]
    ends = [(end, i) for end, i in ends if end & end + 1 == 0]
    require([end for end, _ in ends] == [(1 << k) - 1 for k in range(n)], "power of two bounds")
    rows = [[decimal_text(exported(end, scale)), str(sum(counts[: i + 1]))] for end, i in ends]
    return rows + [["+Inf", str(sum(counts))]]


# ---- schema.md, Form: reading JSON and writing the canonical form ---------------------------------------------------


class Refused(Exception):
    """schema.md, Refused: args are the code (or a limit's name) and the place."""


REQUIRED = object()  # in place of a default
KINDS = ("plain", "guarded", "computed", "foreign", "table")
ACQUISITIONS = ("direct", "computed", "published", "sampled")
METRICS = ("counter", "gauge", "histogram", "info")
WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "i8": 1, "i16": 2, "i32": 4, "f32": 4, "u64": 8, "i64": 8, "f64": 8}
FOREIGN_TYPES = ("u8", "u16", "u32", "i8", "i16", "i32", "f32")


class Object(dict):
    """A read object: keys in canonical order, those at their default not stored but answered."""

    def __init__(self, keys):
        super().__init__()
        self.keys_and_defaults = keys

    def __missing__(self, key):
        return self.keys_and_defaults[key][0]


def integer(value, at):
    if type(value) is not int or not 0 <= value <= U64:
        raise Refused("wrong_type", at)
    return value


def scale(value, at):
    if type(value) not in (int, float):
        raise Refused("wrong_type", at)
    if not 0 < value <= sys.float_info.max:
        raise Refused("bad_scale", at)
    return float(value)


def boolean(value, at):
    if type(value) is not bool:
        raise Refused("wrong_type", at)
    return value


def text(value, at):
    if type(value) is not str:
        raise Refused("wrong_type", at)
    return value


def one_of(*names):
    def read(value, at):
        if text(value, at) not in names:
            raise Refused("unknown_value", at)
        return value

    return read


def list_of(read):
    def read_list(value, at):
        if type(value) is not list:
            raise Refused("wrong_type", at)
        return [read(element, f"{at}[{i}]") for i, element in enumerate(value)]

    return read_list


def labels(value, at):
    if type(value) is not dict:
        raise Refused("wrong_type", at)
    return {key: text(value[key], f"{at}.{key}") for key in sorted(value, key=str.encode)}


def object_of(keys):
    def read(value, at):
        if type(value) is not dict:
            raise Refused("wrong_type", at)
        for key in value:
            if key not in keys:
                raise Refused("unknown_key", f"{at}.{key}")
        out = Object(keys)
        for key, (default, read_value) in keys.items():
            if key not in value and default is REQUIRED:
                raise Refused("missing_key", f"{at}.{key}")
            if key in value and (stored := read_value(value[key], f"{at}.{key}")) != default:
                out[key] = stored
        return out

    return read


# The tables of schema.md, Form: key -> (default, how to read it), in canonical order.
KEY_PART = {"name": (REQUIRED, text), "type": (REQUIRED, one_of("text", "u64", "address")), "bytes": (0, integer)}
ARRAY = {"label": (REQUIRED, text), "count": (REQUIRED, integer), "stride": (REQUIRED, integer), "values": (None, list_of(text))}
HISTOGRAM = {"grouping_power": (REQUIRED, integer), "max_power": (REQUIRED, integer)}
SUM = {"name": ("", text), "help": ("", text), "labels": (None, labels), "handed_over": (False, boolean)}
FIELD = {
    "name": (REQUIRED, text),
    "metric": (REQUIRED, one_of(*METRICS)),
    "type": (REQUIRED, one_of("text", *WIDTHS)),
    "slot": (0, integer),
    "bytes": (0, integer),
    "unit": ("", text),
    "scale": (1.0, scale),
    "help": ("", text),
    "labels": ({}, labels),
    "resolution_ns": (0, integer),
    "array": (None, object_of(ARRAY)),
    "histogram": (None, object_of(HISTOGRAM)),
    "sum": (None, object_of(SUM)),
}
GROUP = {
    "kind": (REQUIRED, one_of(*KINDS)),
    "blocks": (REQUIRED, integer),
    "acquisition": ("direct", one_of(*ACQUISITIONS)),
    "max_age_ns": (0, integer),
    "twin_of": (None, integer),
    "key": (None, list_of(object_of(KEY_PART))),
    "fields": (REQUIRED, list_of(object_of(FIELD))),
}
SCHEMA = {"name": (REQUIRED, text), "groups": (REQUIRED, list_of(object_of(GROUP)))}


def once(pairs):
    if len(dict(pairs)) < len(pairs):
        raise Refused("duplicate_key", "object")
    return dict(pairs)


def not_json(_):
    raise Refused("bad_json", "number")  # NaN and Infinity, which Python would take


def load(json_text):
    """JSON text -> the schema's objects."""
    try:
        value = json.loads(json_text, object_pairs_hook=once, parse_constant=not_json)
        json.dumps(value, ensure_ascii=False).encode()  # fails for a lone surrogate
    except ValueError as error:
        raise Refused("bad_json", str(error)) from None
    return object_of(SCHEMA)(value, "schema")


def decimal_text(number):
    """schema.md: decimal text of a double. repr gives the shortest digits; the layout is ours."""
    if number == 0:
        return "0.0"
    _, digits, exponent = Decimal(repr(number)).as_tuple()
    digits = "".join(map(str, digits))
    point = len(digits) + exponent  # digits before the point
    digits = digits.rstrip("0")
    if point > 16 or point < -4:
        return digits[0] + ("." + digits[1:] if digits[1:] else "") + f"e{point - 1}"
    if point <= 0:
        return "0." + "0" * -point + digits
    return digits[:point].ljust(point, "0") + "." + (digits[point:] or "0")


SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quote(string):
    return '"' + "".join(SHORT_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in string) + '"'


def canonical(value):
    """schema.md, canonical form. Objects already are in order and without defaults."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(key)}:{canonical(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return str(value).lower()
    return decimal_text(value) if isinstance(value, float) else str(value)


def schema_id(canonical_text):
    return hashlib.sha256(canonical_text.encode()).digest()[:16]


# ---- schema.md, Refused and Limits ----------------------------------------------------------------------------------


def limit(amount, most, name, at):
    if amount > most:
        raise Refused(name, at)


def check_name(name, code, pattern, at):
    if not re.fullmatch(pattern, name):
        raise Refused(code, at)
    limit(len(name.encode()), 128, "MAX_NAME_BYTES", at)


def check_label_name(name, at):
    check_name(name, "bad_label_name", "[a-zA-Z_][a-zA-Z0-9_]*", at)
    if name.startswith("__"):
        raise Refused("reserved_label", at)


def check_label_value(value, at):
    if not value or "\0" in value:
        raise Refused("bad_label_value", at)
    limit(len(value.encode()), 256, "MAX_LABEL_VALUE_BYTES", at)


def field_width(field, kind):
    """Slots (foreign: bytes) of one element."""
    if field["histogram"]:
        slots = buckets(*field["histogram"].values()) + 1
        return 8 * slots if kind == "foreign" else slots
    if field["type"] == "text":
        return field["bytes"] if kind == "foreign" else field["bytes"] // 8
    return WIDTHS[field["type"]] if kind == "foreign" else 1


def field_count(field):
    return field["array"]["count"] if field["array"] else 1


def field_end(field, kind):
    stride = field["array"]["stride"] if field["array"] else 0
    return field["slot"] + (field_count(field) - 1) * stride + field_width(field, kind)


def elements(field, kind):
    """(first, end) of each element, in slots (foreign: bytes)."""
    width, stride = field_width(field, kind), field["array"]["stride"] if field["array"] else 0
    return [(field["slot"] + i * stride, field["slot"] + i * stride + width) for i in range(field_count(field))]


def check_field(field, kind, key_names, at):
    """The rules that concern a field alone."""
    check_name(field["name"], "bad_metric_name", "[a-zA-Z_:][a-zA-Z0-9_:]*", at)
    limit(len(field["unit"].encode()), 32, "MAX_UNIT_BYTES", at)
    limit(len(field["help"].encode()), 512, "MAX_HELP_BYTES", at)
    limit(len(field["labels"]), 16, "MAX_LABELS", at)
    info, histogram = field["metric"] == "info", field["metric"] == "histogram"
    if (
        (field["type"] in FOREIGN_TYPES and kind != "foreign")
        or (field["type"] == "text") != info
        or (histogram and field["type"] != "u64")
    ):
        raise Refused("bad_type", at)
    check_text_bytes(field, at)
    limit(field["bytes"], 256, "MAX_LABEL_VALUE_BYTES", at)
    if histogram != (field["histogram"] is not None):
        raise Refused("bad_histogram", at)
    if histogram:
        g, n = field["histogram"].values()
        if not g < n <= 64:
            raise Refused("bad_histogram", at)
        limit(buckets(g, n), 4096, "MAX_HISTOGRAM_BUCKETS", at)
    check_array(field["array"], at)
    check_field_labels(field, key_names, at)
    check_sum(field, key_names, at)
    if kind == "foreign" and field["type"] != "text":
        width = WIDTHS[field["type"]]
        if field["slot"] % width or (field["array"] and field["array"]["stride"] % width):
            raise Refused("misaligned", at)


def check_text_bytes(part, at):
    """Of a field or a key part."""
    if (part["bytes"] != 0) != (part["type"] == "text") or part["bytes"] % 8:
        raise Refused("bad_bytes", at)


def check_array(array, at):
    if array is None:
        return
    if array["count"] == 0:
        raise Refused("empty", at)
    limit(array["count"], 65_536, "MAX_COLUMNS", at)
    if array["values"] is not None:
        for value in array["values"]:
            check_label_value(value, at)
        if len(array["values"]) != array["count"] or len(set(array["values"])) != array["count"]:
            raise Refused("bad_array", at)


def check_field_labels(field, key_names, at):
    names = list(field["labels"]) + ([field["array"]["label"]] if field["array"] else [])
    for name in names:
        check_label_name(name, at)
    for value in field["labels"].values():
        check_label_value(value, at)
    names += key_names + {"info": ["value"], "histogram": ["le"]}.get(field["metric"], [])
    if len(set(names)) < len(names):
        raise Refused("duplicate_label", at)


def sum_of(field):
    """Name and labels of the sum that the field's elements are parts of."""
    own = field["labels"] if field["sum"]["labels"] is None else field["sum"]["labels"]
    return field["sum"]["name"] or field["name"], own


def check_sum(field, key_names, at):
    if field["sum"] is None:
        return
    types = {"counter": ["u64"], "gauge": ["u64", "i64"]}.get(field["metric"], [])
    if field["type"] not in types or field["array"] is None or field["sum"]["name"] == field["name"]:
        raise Refused("bad_sum", at)
    name, own = sum_of(field)
    check_name(name, "bad_metric_name", "[a-zA-Z_:][a-zA-Z0-9_:]*", at)
    limit(len(field["sum"]["help"].encode()), 512, "MAX_HELP_BYTES", at)
    limit(len(own), 16, "MAX_LABELS", at)
    for label, value in own.items():
        check_label_name(label, at)
        check_label_value(value, at)
    if set(own) & set(key_names):
        raise Refused("duplicate_label", at)


def check_sums(groups):
    """Between fields: names of what is shown, parts that agree, elements that are parts once."""
    live = [(group, field) for group in groups if group["twin_of"] is None for field in group["fields"]]
    shown = {field["name"] for _, field in live if field["sum"] is None or field["sum"]["name"]}
    like, elements = {}, set()
    for group, field in live:
        if field["sum"] is None:
            continue
        name, own = sum_of(field)
        if name in shown:
            raise Refused("bad_sum", name)
        series = (name, tuple(sorted(own.items())))
        facts = [field[key] for key in ("metric", "type", "unit", "scale")] + [field["array"]["label"], group["key"], field["sum"]["handed_over"]]
        if like.setdefault(series, facts) != facts:
            raise Refused("bad_sum", name)
        for value in field["array"]["values"] or [str(i) for i in range(field["array"]["count"])]:
            if (series, value) in elements:
                raise Refused("bad_sum", name)
            elements.add((series, value))


def check_key(group, at):
    """A table's key parts; returns their names."""
    if (group["kind"] == "table") != (group["key"] is not None):
        raise Refused("bad_key", at)
    parts = group["key"] or []
    if group["key"] == []:
        raise Refused("empty", at)
    limit(len(parts), 8, "MAX_KEY_PARTS", at)
    for part in parts:
        check_label_name(part["name"], at)
        check_text_bytes(part, at)
    limit(8 * key_words(group), 64, "MAX_KEY_BYTES", at)
    names = [part["name"] for part in parts]
    if len(set(names)) < len(names):
        raise Refused("duplicate_label", at)
    return names


def key_words(group):
    return sum({"text": part["bytes"] // 8, "u64": 1, "address": 2}[part["type"]] for part in group["key"] or [])


def value_words(group):
    """table.md: 1 + the highest slot that a field covers, 0 without fields."""
    return max((field_end(field, "table") for field in group["fields"]), default=0)


def check_places(group, at):
    """out_of_group, row_too_long, spans_blocks, overlap."""
    kind = group["kind"]
    per_block = {"plain": PLAIN_SLOTS, "foreign": BLOCK_BYTES}.get(kind, GUARDED_SLOTS)
    if kind == "table":
        if 1 + key_words(group) + value_words(group) > GUARDED_SLOTS:
            raise Refused("row_too_long", at)
    elif any(field_end(field, kind) > per_block * group["blocks"] for field in group["fields"]):
        raise Refused("out_of_group", at)
    taken = sorted(element for field in group["fields"] for element in elements(field, kind))
    if any(end > next_first for (_, end), (next_first, _) in zip(taken, taken[1:])):
        raise Refused("overlap", at)
    if kind in ("guarded", "computed") and any(first // per_block != (end - 1) // per_block for first, end in taken):
        raise Refused("spans_blocks", at)


def series_of(field, key_names):
    """What the element's series are told apart by, as far as the schema knows."""
    array = field["array"]
    values = [None] if array is None else array["values"] or [str(i) for i in range(array["count"])]
    for value in values:
        all_labels = field["labels"] | ({array["label"]: value} if array else {})
        yield field["name"], tuple(sorted(all_labels.items())), tuple(sorted(key_names))


def check_twin(groups, group, at):
    of = groups[group["twin_of"]] if group["twin_of"] < len(groups) else None
    twins = sum(other["twin_of"] == group["twin_of"] for other in groups)
    if of is None or of["kind"] != "computed" or group["kind"] != "guarded" or twins != 1:
        raise Refused("bad_twin", at)
    if group["blocks"] != of["blocks"] or group["fields"] != of["fields"]:
        raise Refused("bad_twin", at)


def accept(json_text):
    """A schema in any form -> (schema, canonical text), or Refused."""
    schema = load(json_text)
    groups = schema["groups"]
    check_name(schema["name"], "bad_class_name", "[a-zA-Z_:][a-zA-Z0-9_:]*", "name")
    if not groups or any(group["blocks"] == 0 for group in groups):
        raise Refused("empty", "groups")
    limit(len(groups), 64, "MAX_GROUPS", "groups")
    limit(sum(group["blocks"] for group in groups), MAX_REGION_BLOCKS, "MAX_REGION_BLOCKS", "groups")
    limit(sum(len(group["fields"]) for group in groups), 4096, "MAX_FIELDS", "groups")
    series = set()
    for i, group in enumerate(groups):
        key_names = check_key(group, f"groups[{i}]")
        for j, field in enumerate(group["fields"]):
            check_field(field, group["kind"], key_names, f"groups[{i}].fields[{j}]")
    limit(columns(schema), 65_536, "MAX_COLUMNS", "groups")
    for i, group in enumerate(groups):
        check_places(group, f"groups[{i}]")
        if group["twin_of"] is not None:
            check_twin(groups, group, f"groups[{i}]")
            continue
        for field in group["fields"]:
            for one in series_of(field, [part["name"] for part in group["key"] or []]):
                if one in series:
                    raise Refused("duplicate_series", f"groups[{i}]: {one}")
                series.add(one)
    check_sums(groups)
    out = canonical(schema)
    limit(len(out.encode()), 65_536, "MAX_SCHEMA_BYTES", "schema")
    return schema, out


def columns(schema):
    return sum(field_count(field) for group in schema["groups"] for field in group["fields"])


# ---- control.md -----------------------------------------------------------------------------------------------------

RING, ENTRY_BYTES, SCHEMA_TEXT_BYTES = 64, 496, 992


def host_id(machine_id_text):
    """control.md, Host id."""
    return hashlib.sha256(b"onlooker-host-id" + machine_id_text.encode()).digest()[:16]


def change_ring(commits):
    """control.md, p60-p91: from (generation, entry block) of every commit so far."""
    ring = [0] * RING
    for generation, block in commits:
        ring[generation % RING] = block
    return ring


def header_payload(h):
    """control.md, Header: p0-p123."""
    out = b"ONLOOKER" + struct.pack("<IIQ", h["format_version"], h["block_bytes"], h["generation"])
    out += h["host_id"] + h["boot_id"]
    out += struct.pack("<IIII", h["entry_blocks"], h["live_entries"], h["schema_first_block"], h["schema_blocks"])
    out += struct.pack("<IIQ", h["control_blocks"], 0, h["began_ns"])
    require(len(out) == 8 * 11, "p11 follows")
    return out.ljust(8 * 60, b"\0") + struct.pack("<64I", *h["ring"])


def entry(e):
    """control.md, Entry: 62 words."""
    label_bytes = b"".join(k.encode() + b"\0" + v.encode() + b"\0" for k, v in sorted(e["labels"].items()))
    require(len(e["name"].encode()) <= 128 and len(label_bytes) <= 288, "entry text")
    out = struct.pack("<BB6xQQQ", e["kind"], e["flags"], e["identity"], e["va"], e["length"])
    out += struct.pack("<II", e["rkey"], e["responders"]) + e["schema_id"]
    out += struct.pack("<IIQII", e["pid"], e["uid"], e["created_ns"], e.get("device_rkey", 0), 0)
    return out + e["name"].encode().ljust(128, b"\0") + label_bytes.ljust(288, b"\0")


def entry_blocks_to_read(known, seen, entry_blocks, ring):
    """control.md, below the header: the entry blocks that a reader reads; known is None at its first read."""
    everything = list(range(1, entry_blocks + 1))
    if known is None or not 0 <= seen - known <= RING:
        return everything
    named = sorted({ring[g % RING] for g in range(known + 1, seen + 1)})
    return named if set(named) <= set(everything) else everything


# ---- bootstrap.md, Join token ---------------------------------------------------------------------------------------

KEY_32 = "[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]"  # 43 characters, the last one's two unused bits zero


def parse_token(token):
    """bootstrap.md, Join token: (fingerprint or "-", secret), or None."""
    match = re.fullmatch(rf"onlk1\.(-|{KEY_32})\.({KEY_32})", token)
    return match and match.groups()
