#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the parts of docs/format/vectors.json that the C SDK has code for into C tables: make-vectors.py VECTORS.JSON > vectors.h"""
import json
import sys


def text(data):
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


def table(declaration, rows):
    if not rows:
        sys.exit(f"make-vectors.py: no vectors for {declaration}")
    print(f"static const struct {declaration}[] = {{")
    for row in rows:
        print("    {" + ", ".join(row) + "},")
    print("};\n")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        vectors = json.load(file)
    print("/* Made by make-vectors.py from docs/format/vectors.json. */")
    table("{ const char *bytes; unsigned n; uint32_t crc; } crc_vectors",
          [(text(bytes.fromhex(v["bytes"])), str(len(v["bytes"]) // 2), v["crc"]) for v in vectors["crc32"]])
    table("{ uint32_t region, index, generation; uint64_t word; } identity_vectors",
          [(str(v["region"]), str(v["index"]), str(v["generation"]), v["word"] + "u") for v in vectors["identity"]])
    table("{ uint32_t slot, block, word; } plain_vectors",
          [(str(v["slot"]), str(v["block"]), str(v["word"])) for v in vectors["place"] if v["kind"] == "plain"])
    table("{ uint32_t version_before; uint64_t time_ns, identity; const char *block; } guarded_vectors",
          [(str(v["version_before"]) + "u", v["time_ns"] + "u", v["identity"] + "u", text(bytes.fromhex(v["block"])))
           for v in vectors["guarded"]])
    # The SDK wants fields in a table, and a key
    table("{ uint32_t key_words, value_words, row_words, rows_per_block, capacity_of_4_blocks, row, block, word; } layout_vectors",
          [(str(v["key_words"]), str(v["value_words"]), str(v["row_words"]), str(v["rows_per_block"]), str(v["capacity_of_4_blocks"]),
            *map(str, row)) for v in vectors["table_layout"] if v["value_words"] and v["key_words"] for row in v["rows"]])
    table("{ const char *text; uint32_t bytes; const char *key; } text_vectors",
          [(text(v["text"].encode()), str(v["bytes"]), text(bytes.fromhex(v["key"]))) for v in vectors["table_text"]])
    table("{ const char *address, *key; } address_vectors",
          [(text(v["address"].encode()), text(bytes.fromhex(v["key"]))) for v in vectors["table_address"]])
    table("{ unsigned g, n; uint64_t value; uint32_t index; } index_vectors",
          [(str(v["g"]), str(v["n"]), value + "u", str(index)) for v in vectors["histogram"] for value, index in v["index"]])
    table("{ unsigned g, n; uint32_t bucket; uint64_t least, greatest; } range_vectors",
          [(str(v["g"]), str(v["n"]), str(bucket), least + "u", greatest + "u")
           for v in vectors["histogram"] for bucket, least, greatest in v["range"]])
    table("{ unsigned g, n; uint32_t buckets, slots; } bucket_vectors",
          [(str(v["g"]), str(v["n"]), str(v["buckets"]), str(v["slots"])) for v in vectors["histogram"]])

    def slots(histogram, g, n):
        buckets = (n - g + 1) << g
        words = [histogram["buckets"].get(str(i), "0") + "u" for i in range(buckets)] + [histogram["sum"] + "u"]
        return "{" + ", ".join(words) + "}"

    table("{ unsigned g, n; uint64_t a[4097], b[4097], merged[4097]; } merge_vectors",
          [(str(v["g"]), str(v["n"]), *(slots(v[k], v["g"], v["n"]) for k in ("a", "b", "merged"))) for v in vectors["histogram_merge"]])
    table("{ unsigned g, n; uint64_t slots[4097], cumulative[65]; } cumulative_vectors",
          [(str(v["g"]), str(v["n"]), slots(v, v["g"], v["n"]), "{" + ", ".join(count + "u" for _, count in v["cumulative"]) + "}")
           for v in vectors["histogram_prometheus"]])


main()
