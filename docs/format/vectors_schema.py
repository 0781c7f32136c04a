# SPDX-License-Identifier: Apache-2.0
"""Schema vectors for vectors.py: accepted schemas with their canonical form, and refused ones with the rule that each breaks (schema.md)."""

import json

import format_v1 as f
from format_v1 import require


def field(name="a_total", metric="counter", type="u64", **more):
    return {"name": name, "metric": metric, "type": type} | more


def group(*fields, kind="plain", blocks=1, **more):
    return {"kind": kind, "blocks": blocks, **more, "fields": list(fields)}


def schema(*groups, name="shop"):
    return json.dumps({"name": name, "groups": list(groups)}, separators=(",", ":"))


def of_field(**more):
    """A plain schema of one field."""
    return schema(group(field(**more)))


def raw_scale(*texts):
    """Fields whose scale is written as given; Python would rewrite it."""
    fields = ",".join(f'{{"name":"a{i}","metric":"gauge","type":"f64","slot":{i},"scale":{text}}}' for i, text in enumerate(texts))
    return f'{{"name":"shop","groups":[{{"kind":"plain","blocks":1,"fields":[{fields}]}}]}}'


def raw_field(members):
    return '{"name":"shop","groups":[{"kind":"plain","blocks":1,"fields":[{' + members + "}]}]}"


def parts(name, metric="counter", type="u64", first=0, **more):
    """A field of two elements that is summed up."""
    values = [str(first), str(first + 1)]
    return field(name, metric, type, **({"array": {"label": "cpu", "count": 2, "stride": 1, "values": values}, "sum": {}} | more))


FIELD = '"name":"a_total","metric":"counter","type":"u64"'
HISTOGRAM = {"grouping_power": 2, "max_power": 8}  # 28 buckets, 29 slots
PART = {"name": "device", "type": "text", "bytes": 16}
CASES_OF_SCALE = ["1e-9", "0.001", "1000.0", "1024", "1e-5", "0.00001", "0.000010", "1e-6", "0.0000099999", "15e-8", "0.1e3", "1E3", "1e+3",
                  "123.456", "1e15", "9999999999999998", "1e16", "123456789012345680", "1.5e300", "18446744073709551616", "9007199254740993",
                  "5e-324", "2.2250738585072014e-308", "1.7976931348623157e308", "1e23", "0.1", "0.3333333333333333", "0.9560423041144269",
                  "0.0901610339621723e-7", "0.577218518222254189e23", "0.18401107043419254122e-14"]  # fmt: skip


def accepted_cases(table_schema):
    twin_fields = [field("load", "gauge", "f64", slot=123), field("cpu_seconds_total", slot=0, scale=1e-9, array={"label": "cpu", "count": 8, "stride": 15})]
    return [
        ("smallest", schema(group())),
        ("one counter", of_field()),
        ("defaults spelt out are left out", raw_field(
            FIELD + ',"slot":0,"bytes":0,"unit":"","scale":1.0,"help":"","labels":{},"resolution_ns":0').replace(
            '"blocks":1', '"blocks":1,"acquisition":"direct","max_age_ns":0')),
        ("scale 1, 1.0, 1e0, 10e-1 are the default", raw_scale("1", "1.0", "1e0", "10e-1")),
        ("keys in any order, white space", ' {\n "groups" : [ { "fields":[{"type":"u64","slot":3,\t"metric":"counter","name":"a_total",'
         '"resolution_ns":4000000,"unit":"seconds","scale":1e-2,"help":"Time."}],"blocks":2,"kind":"plain"}],\r\n "name":"shop" } '),
        ("labels sorted by bytes", of_field(labels={"b": "2", "a": "1", "_c": "3", "B": "4", "a1": "5", "aa": "6"})),
        ("escapes", raw_field(FIELD + r',"unit":"\u0061\/b","help":"q\" b\\ s\/ \u0041 \u00e9 \u20ac \ud83d\ude00 \b\f\n\r\t \u0000\u0001\u001F \u007f\u2028 é€😀"')),
        ("labels of escapes and non-ASCII", raw_field(FIELD + r',"labels":{"b":"x\ty\"\\","\u0061":"\u00fcber"}')),
        ("not normalised: e with combining accent is not é", raw_field(FIELD + r',"help":"e\u0301 é"')),
        ("scale forms; reading must round correctly", raw_scale(*CASES_OF_SCALE)),
        ("integers up to 2^64-1", schema(group(field(resolution_ns=2**64 - 1), max_age_ns=2**53 + 1))),
        ("array numbered by itself, to the group's last slot", of_field(slot=119, array={"label": "cpu", "count": 8, "stride": 1})),
        ("array by values; keys of array in another order", of_field(array={"values": ["user", "system"], "stride": 2, "count": 2, "label": "mode"})),
        ("arrays that interleave", schema(group(field("a", array={"label": "cpu", "count": 60, "stride": 2}),
                                                field("b", slot=1, array={"label": "cpu", "count": 60, "stride": 2})))),
        ("one element, stride 0", of_field(array={"label": "cpu", "count": 1, "stride": 0})),
        ("one name, different labels", schema(group(field(labels={"mode": "user"}), field(slot=1, labels={"mode": "system"}), field(slot=2)))),
        ("one name, constant labels beside an array", schema(group(field(labels={"cpu": "8"}, slot=8), field(array={"label": "cpu", "count": 8, "stride": 1})))),
        ("histogram", of_field(name="a_seconds", metric="histogram", histogram={"max_power": 8, "grouping_power": 2}, scale=1e-9)),
        ("histogram that spans plain blocks, array of histograms", schema(group(
            field("h", "histogram", slot=100, histogram=HISTOGRAM, array={"label": "cpu", "count": 4, "stride": 30}), blocks=2))),
        ("histogram of 4096 buckets", schema(group(field("h", "histogram", histogram={"grouping_power": 11, "max_power": 12}), blocks=33))),
        ("text in a plain group", schema(group(field("v_info", "info", "text", slot=2, bytes=256), field("b", slot=34)))),
        ("guarded: last slot, array that spans blocks, text up to a block's end", schema(group(
            field("a", slot=247), field("b", slot=100, array={"label": "cpu", "count": 30, "stride": 1}), field("v_info", "info", "text", slot=92, bytes=64),
            kind="guarded", blocks=2, acquisition="published", max_age_ns=10_000_000))),
        ("computed group and its published twin", schema(
            group(*twin_fields, kind="computed", blocks=1, acquisition="computed", max_age_ns=100_000),
            group(*twin_fields, kind="guarded", blocks=1, acquisition="published", twin_of=0))),
        ("twin before its computed group; fields written differently", schema(
            group(field("x"), kind="guarded", twin_of=1), group(field("x", slot=0, scale=1), kind="computed"))),
        ("sums: instead of the elements, beside them, with labels of their own, of parts in two groups", schema(
            group(parts("a_total"), parts("b", "gauge", "i64", slot=2, sum={"help": "All of it.", "name": "b_all"}),
                  parts("c_total", slot=4, labels={"type": "RX"}, sum={"name": "d_total", "labels": {"vector": "rx"}, "handed_over": False}),
                  parts("e_total", slot=6, sum={"labels": {}, "handed_over": True}), kind="computed"),
            group(parts("a_total", first=2), kind="guarded"))),
        ("sums of a table's rows", schema(
            group(parts("a_total"), kind="table", key=[PART]), group(parts("a_total", first=2), kind="table", key=[PART]))),
        ("a sum in a twin", schema(
            group(parts("a_total"), kind="computed"), group(parts("a_total"), kind="guarded", twin_of=0))),
        ("foreign: all types, bytes, alignment, text at an odd offset", schema(group(
            field("f_u8", "gauge", "u8", slot=1), field("f_u16", "gauge", "u16", slot=2), field("f_u32", "gauge", "u32", slot=4),
            field("f_u64", "gauge", "u64", slot=8), field("f_i8", "gauge", "i8", slot=16), field("f_i16", "gauge", "i16", slot=18),
            field("f_i32", "gauge", "i32", slot=20), field("f_i64", "gauge", "i64", slot=24), field("f_f32", "gauge", "f32", slot=32),
            field("f_f64", "gauge", "f64", slot=40), field("f_info", "info", "text", slot=49, bytes=8),
            field("f_a", "gauge", "u16", slot=58, array={"label": "i", "count": 3, "stride": 6}),
            field("f_h", "histogram", slot=792, histogram=HISTOGRAM), kind="foreign"))),
        ("table: key parts, histogram in a row", json.dumps(table_schema)),
        ("table: key only, 8 parts, 64 bytes", schema(group(kind="table", key=[{"name": f"k{i}", "type": "u64", "bytes": 0} for i in range(8)]))),
        ("table: longest row", schema(group(field(slot=120), kind="table", blocks=9, key=[{"name": "peer", "type": "address"}]))),
        ("several groups; one metric in two tables of different keys", schema(
            group(field("a"), blocks=2), group(field("b"), kind="table", blocks=3, key=[PART]),
            group(field("b"), kind="table", blocks=4, key=[PART | {"name": "disk"}]), group(field("c"), kind="guarded", blocks=5))),
        ("limits reached: names, labels, unit, help", schema(group(field("m" * 128, unit="u" * 32, help="h" * 510 + "é", labels=
            {"l" * 128: "v" * 254 + "é"} | {f"l{i}": "x" for i in range(15)})), name="C:" + "c" * 126)),
        ("limits reached: 65,536 blocks and columns", schema(group(field(array={"label": "i", "count": 65536, "stride": 127}), blocks=65536))),
        ("limits reached: 64 groups", schema(*[group()] * 64)),
    ]  # fmt: skip


def accepted_vectors(table_schema):
    out = []
    for what, given in accepted_cases(table_schema):
        try:
            read, canonical = f.accept(given)
        except f.Refused as refused:
            raise SystemExit(f"{what}: refused {refused}") from None
        require(f.accept(canonical)[1] == canonical, f"{what}: the canonical form is its own canonical form")
        out.append({"what": what, "given": given, "canonical": canonical, "id": f.schema_id(canonical).hex(),
                    "blocks": sum(g["blocks"] for g in read["groups"]), "columns": f.columns(read)})  # fmt: skip
    return out


def table(*fields, key=(PART,), **more):
    return schema(group(*fields, kind="table", key=list(key), **more))


def array(**more):
    return of_field(array={"label": "cpu", "count": 2, "stride": 1} | more)


def two(a, b, **more):
    return schema(group(field("a", **a), field("b", **b), **more))


def refused_cases():
    good = of_field()
    h = {"metric": "histogram", "name": "h"}
    pair = {"array": {"label": "cpu", "count": 2, "stride": 1}}
    twin = lambda **more: schema(group(kind="computed"), group(**({"kind": "guarded", "twin_of": 0} | more)))  # noqa: E731
    return [
        ("bad_json", "empty", ""),
        ("bad_json", "cut off", good[:-1]),
        ("bad_json", "something behind it", good + "x"),
        ("bad_json", "lone surrogate", raw_field(FIELD + r',"help":"\ud800"')),
        ("bad_json", "NaN", raw_scale("NaN")),
        ("bad_json", "control character in a string", raw_field(FIELD + ',"help":"a\tb"')),
        ("duplicate_key", "of a field", raw_field(FIELD + ',"slot":1,"slot":1')),
        ("duplicate_key", "of labels", raw_field(FIELD + ',"labels":{"a":"1","a":"2"}')),
        ("duplicate_key", "of labels, one escaped", raw_field(FIELD + r',"labels":{"a":"1","\u0061":"1"}')),
        ("unknown_key", "of the schema", good.replace('"groups"', '"version":1,"groups"')),
        ("unknown_key", "of a group", schema(group(size=1))),
        ("unknown_key", "of a field", of_field(Slot=1)),
        ("unknown_key", "of a key part", table(key=[PART | {"label": "x"}])),
        ("unknown_key", "of array", array(labels=[])),
        ("unknown_key", "of histogram", of_field(**h, histogram=HISTOGRAM | {"sum": 1})),
        ("missing_key", "name of the schema", good.replace('"name":"shop",', "")),
        ("missing_key", "groups", '{"name":"shop"}'),
        ("missing_key", "blocks", good.replace('"blocks":1,', "")),
        ("missing_key", "fields", '{"name":"shop","groups":[{"kind":"plain","blocks":1}]}'),
        ("missing_key", "type of a field", raw_field('"name":"a_total","metric":"counter"')),
        ("missing_key", "stride of array", of_field(array={"label": "cpu", "count": 2})),
        ("missing_key", "max_power", of_field(**h, histogram={"grouping_power": 2})),
        ("wrong_type", "schema is a list", "[]"),
        ("wrong_type", "schema as a list of its values", '["shop",[{"kind":"plain","blocks":1,"fields":[]}]]'),
        ("wrong_type", "histogram as a list of its values", of_field(**h, histogram=[2, 8])),
        ("wrong_type", "groups is an object", '{"name":"shop","groups":{}}'),
        ("wrong_type", "slot is a text", of_field(slot="1")),
        ("wrong_type", "slot is 1.0", of_field(slot=1.0)),
        ("wrong_type", "slot is 1e0", raw_field(FIELD + ',"slot":1e0')),
        ("wrong_type", "slot is negative", of_field(slot=-1)),
        ("wrong_type", "slot is a boolean", of_field(slot=True)),
        ("wrong_type", "2^64", of_field(resolution_ns=2**64)),
        ("wrong_type", "scale is a text", of_field(scale="1")),
        ("wrong_type", "null for a default", of_field(unit=None)),
        ("wrong_type", "null for an absent key", of_field(array=None)),
        ("wrong_type", "twin_of null", schema(group(twin_of=None))),
        ("wrong_type", "label value is a number", of_field(labels={"cpu": 0})),
        ("unknown_value", "kind", schema(group(kind="plane"))),
        ("unknown_value", "acquisition", schema(group(acquisition="Direct"))),
        ("unknown_value", "metric", of_field(metric="summary")),
        ("unknown_value", "type", of_field(type="u128")),
        ("unknown_value", "type of a key part", table(key=[{"name": "x", "type": "i64"}])),
        ("empty", "no groups", schema()),
        ("empty", "no blocks", schema(group(blocks=0))),
        ("empty", "no key parts", table(key=[])),
        ("empty", "array of no elements", array(count=0)),
        ("bad_class_name", "empty", schema(group(), name="")),
        ("bad_class_name", "hyphen", schema(group(), name="my-shop")),
        ("bad_metric_name", "empty", of_field(name="")),
        ("bad_metric_name", "begins with a digit", of_field(name="1a")),
        ("bad_metric_name", "hyphen", of_field(name="a-b")),
        ("bad_metric_name", "not ASCII", of_field(name="größe")),
        ("bad_metric_name", "line end", of_field(name="a\n")),
        ("bad_label_name", "colon", of_field(labels={"a:b": "1"})),
        ("bad_label_name", "empty", of_field(labels={"": "1"})),
        ("bad_label_name", "of an array", array(label="cpu core")),
        ("bad_label_name", "of a key part", table(key=[PART | {"name": "0"}])),
        ("reserved_label", "constant", of_field(labels={"__name__": "x"})),
        ("reserved_label", "of an array", array(label="__cpu")),
        ("reserved_label", "of a key part", table(key=[PART | {"name": "__"}])),
        ("bad_label_value", "empty", of_field(labels={"a": ""})),
        ("bad_label_value", "NUL", of_field(labels={"a": "x\0y"})),
        ("bad_label_value", "empty, of an array", array(values=["a", ""])),
        ("duplicate_label", "constant and array", of_field(labels={"cpu": "0"}, array={"label": "cpu", "count": 2, "stride": 1})),
        ("duplicate_label", "constant and key part", table(field(labels={"device": "x"}))),
        ("duplicate_label", "array and key part", table(field(array={"label": "device", "count": 2, "stride": 1}))),
        ("duplicate_label", "two key parts", table(key=[PART, PART])),
        ("duplicate_label", "value of info", of_field(name="v", metric="info", type="text", bytes=8, labels={"value": "x"})),
        ("duplicate_label", "le of a histogram", of_field(**h, histogram=HISTOGRAM, labels={"le": "1"})),
        ("bad_scale", "0", of_field(scale=0)),
        ("bad_scale", "negative", of_field(scale=-1)),
        ("bad_scale", "rounds to 0", raw_scale("1e-400")),
        ("bad_type", "foreign type in a plain group", of_field(type="u32")),
        ("bad_type", "text without info", of_field(type="text", bytes=8)),
        ("bad_type", "info without text", of_field(metric="info")),
        ("bad_type", "histogram of f64", of_field(**h, type="f64", histogram=HISTOGRAM)),
        ("bad_bytes", "without text", of_field(bytes=8)),
        ("bad_bytes", "missing", of_field(metric="info", type="text")),
        ("bad_bytes", "not a multiple of 8", of_field(metric="info", type="text", bytes=12)),
        ("bad_bytes", "text key part without bytes", table(key=[{"name": "x", "type": "text"}])),
        ("bad_bytes", "number key part with bytes", table(key=[{"name": "x", "type": "u64", "bytes": 8}])),
        ("bad_key", "table without key", schema(group(kind="table"))),
        ("bad_key", "key in a guarded group", schema(group(kind="guarded", key=[PART]))),
        ("bad_array", "fewer values than elements", array(values=["a"])),
        ("bad_array", "no values", array(values=[])),
        ("bad_array", "equal values", array(values=["a", "a"])),
        ("unknown_key", "of sum", of_field(sum={"names": "x"}, **pair)),
        ("wrong_type", "handed_over is a number", of_field(sum={"handed_over": 1}, **pair)),
        ("wrong_type", "labels of a sum null", of_field(sum={"labels": None}, **pair)),
        ("bad_metric_name", "of a sum", of_field(sum={"name": "a-b"}, **pair)),
        ("duplicate_label", "of a sum and a key part", table(parts("a", sum={"labels": {"device": "x"}}))),
        ("bad_sum", "of one number", of_field(sum={})),
        ("bad_sum", "of f64", of_field(metric="gauge", type="f64", sum={}, **pair)),
        ("bad_sum", "of histograms", of_field(name="h", metric="histogram", histogram=HISTOGRAM, sum={}, array={"label": "i", "count": 2, "stride": 29})),
        ("bad_sum", "own name written out", of_field(sum={"name": "a_total"}, **pair)),
        ("bad_sum", "name of another field", schema(group(parts("a", sum={"name": "b"}), field("b", slot=2)))),
        ("bad_sum", "instead of elements that another field shows", schema(group(parts("a"), field("a", slot=2, labels={"x": "y"})))),
        ("bad_sum", "parts of two scales", schema(group(parts("a", sum={"name": "s"}), parts("b", slot=2, first=2, scale=0.5, sum={"name": "s"})))),
        ("bad_sum", "a counter and a gauge", schema(group(parts("a", sum={"name": "s"}), parts("b", "gauge", slot=2, first=2, sum={"name": "s"})))),
        ("bad_sum", "handed over or not", schema(group(parts("a"), parts("a", slot=2, first=2, sum={"handed_over": True})))),
        ("bad_sum", "one element twice", schema(group(parts("a", sum={"name": "s"}), parts("b", slot=2, first=1, sum={"name": "s"})))),
        ("bad_sum", "in tables of two keys", schema(
            group(parts("a", sum={"name": "s"}), kind="table", key=[PART]),
            group(parts("b", first=2, sum={"name": "s"}), kind="table", key=[PART | {"name": "disk"}]))),
        ("MAX_HELP_BYTES", "of a sum, 513", of_field(sum={"help": "h" * 513}, **pair)),
        ("bad_histogram", "no parameters", of_field(**h)),
        ("bad_histogram", "parameters for a counter", of_field(histogram=HISTOGRAM)),
        ("bad_histogram", "g = n", of_field(**h, histogram={"grouping_power": 8, "max_power": 8})),
        ("bad_histogram", "n = 65", of_field(**h, histogram={"grouping_power": 0, "max_power": 65})),
        ("bad_twin", "of no group", twin(twin_of=2)),
        ("bad_twin", "of itself", twin(twin_of=1)),
        ("bad_twin", "of a plain group", schema(group(), group(kind="guarded", twin_of=0))),
        ("bad_twin", "is plain", twin(kind="plain")),
        ("bad_twin", "other length", twin(blocks=2)),
        ("bad_twin", "other fields", schema(group(field("x"), kind="computed"), group(field("y"), kind="guarded", twin_of=0))),
        ("bad_twin", "two twins", schema(group(kind="computed"), group(kind="guarded", twin_of=0), group(kind="guarded", twin_of=0))),
        ("misaligned", "u32 at 2", schema(group(field(type="u32", slot=2), kind="foreign"))),
        ("misaligned", "stride 4 of u64", schema(group(field(array={"label": "i", "count": 2, "stride": 12}), kind="foreign"))),
        ("misaligned", "histogram at 4", schema(group(field("h", "histogram", slot=4, histogram=HISTOGRAM), kind="foreign"))),
        ("out_of_group", "plain slot 127 of one block", of_field(slot=127)),
        ("out_of_group", "guarded slot 124 of one block", schema(group(field(slot=124), kind="guarded"))),
        ("out_of_group", "last element of an array", of_field(slot=120, array={"label": "cpu", "count": 8, "stride": 1})),
        ("out_of_group", "sum of a histogram", of_field(**h, slot=99, histogram=HISTOGRAM)),
        ("out_of_group", "end of a text", of_field(metric="info", type="text", slot=126, bytes=16)),
        ("out_of_group", "foreign u32 at 1024", schema(group(field(type="u32", slot=1024), kind="foreign"))),
        ("out_of_group", "slot 2^64-1", of_field(slot=2**64 - 1)),
        ("out_of_group", "stride 2^64-1", array(stride=2**64 - 1)),
        ("row_too_long", "125 words", table(field(slot=121))),
        ("row_too_long", "whatever the number of blocks", table(field(array={"label": "i", "count": 122, "stride": 1}), blocks=9)),
        ("spans_blocks", "guarded text", schema(group(field("v", "info", "text", slot=123, bytes=16), kind="guarded", blocks=2))),
        ("spans_blocks", "computed histogram", schema(group(field("h", "histogram", slot=96, histogram=HISTOGRAM), kind="computed", blocks=2))),
        ("spans_blocks", "one histogram of an array", schema(group(
            field("h", "histogram", histogram=HISTOGRAM, array={"label": "i", "count": 5, "stride": 29}), kind="guarded", blocks=2))),
        ("overlap", "one slot", two({}, {})),
        ("overlap", "element of an array", two({"array": {"label": "i", "count": 4, "stride": 2}}, {"slot": 6})),
        ("overlap", "sum of a histogram", schema(group(field("h", "histogram", histogram=HISTOGRAM), field("b", slot=28)))),
        ("overlap", "array elements with themselves", array(stride=0)),
        ("overlap", "text elements with themselves", of_field(metric="info", type="text", bytes=16, array={"label": "i", "count": 2, "stride": 1})),
        ("overlap", "foreign bytes", schema(group(field("a", type="u32"), field("b", type="u8", slot=3), kind="foreign"))),
        ("overlap", "in a row", table(field("a"), field("b"))),
        ("duplicate_series", "same name, no labels", schema(group(field(), field(slot=1)))),
        ("duplicate_series", "in two groups", schema(group(field()), group(field(), kind="guarded"))),
        ("duplicate_series", "labels in another order", schema(group(field(labels={"a": "1", "b": "2"}), field(slot=1, labels={"b": "2", "a": "1"})))),
        ("duplicate_series", "constant label and an array's element", schema(group(
            field(labels={"cpu": "3"}, slot=8), field(array={"label": "cpu", "count": 8, "stride": 1})))),
        ("duplicate_series", "in two tables of the same key names", schema(
            group(field(), kind="table", key=[PART]), group(field(), kind="table", key=[{"name": "device", "type": "u64"}]))),
        ("MAX_NAME_BYTES", "metric, 129", of_field(name="m" * 129)),
        ("MAX_NAME_BYTES", "class, 129", schema(group(), name="c" * 129)),
        ("MAX_NAME_BYTES", "label, 129", of_field(labels={"l" * 129: "x"})),
        ("MAX_LABEL_VALUE_BYTES", "257 bytes in 256 characters", of_field(labels={"a": "v" * 255 + "é"})),
        ("MAX_LABEL_VALUE_BYTES", "text of 264 bytes", schema(group(field(metric="info", type="text", bytes=264)))),
        ("MAX_LABELS", "17", of_field(labels={f"l{i}": "x" for i in range(17)})),
        ("MAX_HELP_BYTES", "513", of_field(help="h" * 513)),
        ("MAX_UNIT_BYTES", "33", of_field(unit="u" * 33)),
        ("MAX_KEY_BYTES", "72", table(key=[PART | {"bytes": 72}])),
        ("MAX_GROUPS", "65", schema(*[group()] * 65)),
        ("MAX_REGION_BLOCKS", "in two groups", schema(group(blocks=65536), group())),
        ("MAX_COLUMNS", "in one array", schema(group(field(array={"label": "i", "count": 65537, "stride": 1}), blocks=1000))),
        ("MAX_COLUMNS", "in two fields", schema(group(field("a", array={"label": "i", "count": 65536, "stride": 1}), field("b", slot=65536), blocks=1000))),
        ("MAX_HISTOGRAM_BUCKETS", "6,144", schema(group(field("h", "histogram", histogram={"grouping_power": 11, "max_power": 13}), blocks=50))),
    ]  # fmt: skip


def refused_vectors():
    out = []
    for code, what, given in refused_cases():
        try:
            f.accept(given)
            found = "accepted"
        except f.Refused as refused:
            found = refused.args[0]
        require(found == code, f"{code}, {what}: {found}")
        out.append({"code": code, "what": what, "given": given})
    return out


# Two would be too large for this file; nine key parts have 72 bytes, so that MAX_KEY_BYTES is broken with them.
WITHOUT_VECTOR = ["MAX_FIELDS", "MAX_SCHEMA_BYTES", "MAX_KEY_PARTS"]


def refused_codes():
    return list(dict.fromkeys(code for code, _, _ in refused_cases()))
