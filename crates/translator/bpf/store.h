/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a report does to a table's memory: entries of keys, counters. Memory is written by words of 8 bytes. */
#ifndef ONLOOKER_DTA_STORE_H
#define ONLOOKER_DTA_STORE_H

#include "hash.h"
#include "maps.h"

#define WORDS_OF_BLOCK ONLOOKER_BLOCK_WORDS
#define SLAB_BLOCKS_LOG2 20 /* a table goes on in the next slab where one is full */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DTA_MAX_TABLES);
	__type(key, __u32);
	__type(value, struct onlooker_dta_table);
} dta_tables SEC(".maps");

/* The block that has the byte at `offset` of a table. */
static __always_inline __u64 *block_at(const struct onlooker_dta_table *table, __u64 offset)
{
	__u64 at = table->first_block + offset / ONLOOKER_BLOCK_BYTES;
	__u32 slab = table->slab + (__u32)(at >> SLAB_BLOCKS_LOG2);
	__u32 block = at & ((1u << SLAB_BLOCKS_LOG2) - 1);
	void *memory = bpf_map_lookup_elem(&slabs, &slab);

	return memory ? bpf_map_lookup_elem(memory, &block) : NULL;
}

/* Word `at` of an entry behind its check: stamp, payload, zeros. With a check of 8 bytes the payload begins in the middle of a word. */
static __always_inline __u64 entry_word(const struct dta_scratch *s, __u32 at, __u32 stamp, __u32 is_wide)
{
	__u32 bytes = s->header.payload_bytes, from = is_wide ? at * 8 - 12 : at * 8 - 8;

	if (is_wide && at == 1)
		return payload_word(s, 0) << 32 | stamp;
	return from < bytes ? word_at(s, (s->payload_at & 127) + (from & 63)) : 0;
}

/* An entry, with a check that is given, into a slot. Not inlined, as onlooker_dta_hash. */
__noinline int onlooker_dta_write_entry(__u32 number, __u32 slot, __u64 check, __u32 stamp)
{
	struct onlooker_dta_table *table = bpf_map_lookup_elem(&dta_tables, &number);
	__u32 zero = 0, words, is_wide;
	struct dta_scratch *s = bpf_map_lookup_elem(&dta_scratch, &zero);
	volatile __u64 *block;
	__u64 offset;

	if (!table || !s)
		return DTA_SLAB;
	offset = (__u64)slot * table->slot_bytes;
	block = block_at(table, offset);
	if (!block)
		return DTA_SLAB;
	is_wide = table->check_bytes == 8;
	words = table->slot_bytes / 8;
	block[offset / 8 % WORDS_OF_BLOCK] = is_wide ? check : (__u32)check | (__u64)stamp << 32;
	for (__u32 at = 1; at < 2 * DTA_MAX_PAYLOAD_BYTES / 8; at++) {
		if (at >= words)
			break;
		block[(offset / 8 + at) % WORDS_OF_BLOCK] = entry_word(s, at, stamp, is_wide);
	}
	return DTA_STORED;
}

static __always_inline int key_write(const struct dta_scratch *s, const struct onlooker_dta_table *table, __u32 number)
{
	__u32 stamp = stamp_of(bpf_ktime_get_boot_ns());
	__u64 sealed = seal(0, stamp), check;
	int exit = DTA_STORED;

	if (onlooker_dta_hash(table->seed[0], table->seed[1]))
		return DTA_SLAB;
	for (__u32 at = 0; at < DTA_MAX_PAYLOAD_BYTES / 8; at++) {
		if (at * 8 >= table->payload_bytes)
			break;
		sealed = seal(sealed, payload_word(s, at));
	}
	check = s->check ^ sealed;
	if (table->check_bytes != 8)
		check ^= check >> 32;
	for (__u32 copy = 0; copy < DTA_MAX_COPIES; copy++) {
		if (s->copies >> copy & 1)
			exit = onlooker_dta_write_entry(number, slot_of(s->place, copy, table->slots_mask), check, stamp);
		if (exit != DTA_STORED)
			break;
	}
	return exit;
}

static __always_inline int key_increment(const struct dta_scratch *s, const struct onlooker_dta_table *table)
{
	__u64 addend = bpf_be64_to_cpu(payload_word(s, 0));

	if (onlooker_dta_hash(table->seed[0], table->seed[1]))
		return DTA_SLAB;
	for (__u32 copy = 0; copy < DTA_MAX_COPIES; copy++) {
		__u64 offset = (__u64)slot_of(s->place, copy, table->slots_mask) * 8;
		__u64 *block;

		if (!(s->copies >> copy & 1))
			continue;
		block = block_at(table, offset);
		if (!block)
			return DTA_SLAB;
		__sync_fetch_and_add(&block[offset / 8 % WORDS_OF_BLOCK], addend);
	}
	return DTA_STORED;
}

#endif
