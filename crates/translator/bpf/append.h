/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Lists. A list's open batch has two sides: while one is written to the ring the other one fills. Whoever fills a side, or finds that it has waited
 * long enough, takes the next place in the ring under the lock and writes there without it.
 */
#ifndef ONLOOKER_DTA_APPEND_H
#define ONLOOKER_DTA_APPEND_H

#include "store.h"

#define CLOCK_BOOTTIME 7
#define OPEN_WORDS (DTA_MAX_BATCH * DTA_MAX_PAYLOAD_BYTES / 8)

/* How long an entry waits for others of its batch, ns. */
const volatile __u64 wait_ns = 10000000;

#define LOCK_TRIES 64

/*
 * The lock is a word that is exchanged: it is held for a few loads and stores, by programs that no other one interrupts (softirq, timers included),
 * and a bpf_spin_lock with its saved interrupts would take as long as all of the rest.
 */
struct dta_list {
	__u32 is_locked;
	__u32 count; /* of the side that fills */
	__u32 side;
	__u32 busy;  /* a bit for each side that is being written to the ring; changed in one step each, with the lock or without */
	__u32 table;
	__u32 is_timed; /* the timer runs */
	struct bpf_timer timer;
	__u64 since_ns; /* when the first entry came */
	__u64 batch;    /* number of the next one, and of its first entry */
	__u64 entry;
	union {
		__u64 words[2][OPEN_WORDS + DTA_MAX_PAYLOAD_BYTES / 8]; /* the last entry is copied by whole words */
	} open;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DTA_MAX_LISTS);
	__type(key, __u32);
	__type(value, struct dta_list);
} dta_lists SEC(".maps");

/* Whether it could be had; whoever has it on another processor may have lost that to a hypervisor. */
static __always_inline int lock_list(struct dta_list *list)
{
	for (__u32 attempt = 0; attempt < LOCK_TRIES; attempt++) {
		if (!__sync_lock_test_and_set(&list->is_locked, 1))
			return 1;
	}
	return 0;
}

static __always_inline void unlock_list(struct dta_list *list)
{
	/* A plain store would be no barrier everywhere. */
	__sync_lock_test_and_set(&list->is_locked, 0);
}

/* A side that was taken, and where it belongs. */
struct dta_taken {
	__u32 side;
	__u32 count; /* 0: none was */
	__u64 batch;
	__u64 entry;
};

/* Under the lock. */
static __always_inline void take_side(struct dta_list *list, struct dta_taken *taken)
{
	taken->side = list->side & 1;
	taken->count = list->count;
	taken->batch = list->batch;
	taken->entry = list->entry;
	list->batch++;
	list->entry += list->count;
	list->count = 0;
	__sync_fetch_and_or(&list->busy, 1u << taken->side);
	list->side = !taken->side;
}

/*
 * A side on its way to the ring. Its words are walked by bpf_loop, a cache line a time: the verifier then looks at one of them, and not at each with
 * each length.
 */
#define CHUNK_WORDS 8

struct dta_batch {
	const struct dta_list *list;
	volatile __u64 *block;
	__u64 sealed;
	__u64 header[DTA_BATCH_HEADER_WORDS];
	__u32 side;
	__u32 end_bytes;
	__u32 first; /* word of the batch that the block's part begins with */
	__u32 at;    /* and its place there */
};

/* Word `at` of the entries. Behind the last one are zeros. */
static __always_inline __u64 open_word(const struct dta_batch *b, __u32 at)
{
	__u64 word;

	if (at * 8 >= b->end_bytes || at >= OPEN_WORDS)
		return 0;
	word = b->list->open.words[b->side & 1][at];
	if (at * 8 + 8 > b->end_bytes)
		word &= (1ULL << b->end_bytes % 8 * 8) - 1;
	return word;
}

static long write_chunk(__u32 chunk, struct dta_batch *b)
{
	__u32 first = b->first + chunk * CHUNK_WORDS, at = (b->at + chunk * CHUNK_WORDS) % WORDS_OF_BLOCK / CHUNK_WORDS * CHUNK_WORDS;
	__u32 from = first - DTA_BATCH_HEADER_WORDS;
	__u64 sealed = b->sealed;

	if (from < OPEN_WORDS && (from + CHUNK_WORDS) * 8 <= b->end_bytes) {
		const __u64 *words = &b->list->open.words[b->side & 1][from];

#pragma unroll
		for (__u32 word = 0; word < CHUNK_WORDS; word++) {
			b->block[at + word] = words[word];
			sealed = seal(sealed, words[word]);
		}
		b->sealed = sealed;
		return 0;
	}
#pragma unroll
	for (__u32 word = 0; word < CHUNK_WORDS; word++) {
		__u32 entry_word = from + word;
		__u64 value;

		if (first + word < DTA_BATCH_HEADER_WORDS) {
			b->block[at + word] = b->header[word % DTA_BATCH_HEADER_WORDS];
			continue;
		}
		value = open_word(b, entry_word);
		b->block[at + word] = value;
		if (entry_word * 8 < b->end_bytes)
			sealed = seal(sealed, value);
	}
	b->sealed = sealed;
	return 0;
}

/* Writes a side that was taken to the ring, its seal last. `taken` is side and count, one byte each. Verified by itself, whatever leads here. */
__noinline int onlooker_dta_write_side(__u32 list_index, __u32 number, __u32 taken, __u64 batch, __u64 entry)
{
	struct onlooker_dta_table *table = bpf_map_lookup_elem(&dta_tables, &number);
	struct dta_batch b = { .list = bpf_map_lookup_elem(&dta_lists, &list_index), .side = taken & 1 };
	__u32 count = taken >> 8 & 0xff, words, begin;
	volatile __u64 *seal_at = NULL;
	__u64 offset;

	/* What waited for a list may find another table there when its time has come: that one's memory is not a ring. */
	if (!b.list || !table || table->primitive != DTA_PRIMITIVE_APPEND || table->list != list_index)
		return DTA_SLAB;
	offset = (batch & table->slots_mask) * table->slot_bytes;
	b.end_bytes = count * table->payload_bytes;
	/* Behind a full batch are zeros already. */
	words = count < table->batch ? table->slot_bytes / 8 : DTA_BATCH_HEADER_WORDS + (b.end_bytes + 7) / 8;
	b.header[1] = batch + 1;
	b.header[2] = entry;
	b.header[3] = stamp_of(bpf_ktime_get_boot_ns()) | (__u64)count << 32;
	b.sealed = seal(seal(seal(0, b.header[1]), b.header[2]), b.header[3]);
	begin = offset / 8 % WORDS_OF_BLOCK;
	b.at = begin;
	for (__u32 part = 0; part < DTA_MAX_BATCH_WORDS / WORDS_OF_BLOCK; part++) {
		__u32 left = words - b.first;

		b.block = (volatile __u64 *)block_at(table, offset + b.first * 8);
		if (!b.block)
			return DTA_SLAB;
		if (!part)
			seal_at = b.block;
		left = left < WORDS_OF_BLOCK ? left : WORDS_OF_BLOCK;
		bpf_loop((left + CHUNK_WORDS - 1) / CHUNK_WORDS, write_chunk, &b, 0);
		b.first += WORDS_OF_BLOCK;
		if (b.first >= words)
			break;
	}
	if (!seal_at)
		return DTA_SLAB;
	seal_at[begin % WORDS_OF_BLOCK] = b.sealed;
	return DTA_STORED;
}

static __always_inline int finish_side(struct dta_list *list, __u32 list_index, __u32 number, const struct dta_taken *taken)
{
	int exit = onlooker_dta_write_side(list_index, number, taken->side | taken->count << 8, taken->batch, taken->entry);

	__sync_fetch_and_and(&list->busy, ~(1u << taken->side));
	return exit;
}

/* Writes what has waited long enough; comes again as long as something waits. */
static int flush_list(void *map, __u32 *number, struct dta_list *list)
{
	__u64 now_ns = bpf_ktime_get_boot_ns(), waited_ns = 0;
	struct dta_taken taken = {};
	__u32 index = *number, waits = 1;

	(void)map;
	if (lock_list(list)) {
		if (list->count) {
			waited_ns = now_ns - list->since_ns;
			if (waited_ns >= wait_ns && !(list->busy >> !(list->side & 1) & 1))
				take_side(list, &taken);
		}
		waits = list->count;
		list->is_timed = waits != 0;
		unlock_list(list);
	}
	if (taken.count)
		finish_side(list, index, list->table, &taken);
	if (waits)
		bpf_timer_start(&list->timer, waited_ns < wait_ns ? wait_ns - waited_ns : wait_ns, 0);
	return 0;
}

static __always_inline void begin_timer(struct dta_list *list)
{
	/* Made once and then there; but programs that were replaced shall not be called any more. */
	bpf_timer_init(&list->timer, &dta_lists, CLOCK_BOOTTIME);
	bpf_timer_set_callback(&list->timer, flush_list);
	bpf_timer_start(&list->timer, wait_ns, 0);
}

static __always_inline int append(const struct dta_scratch *s, const struct onlooker_dta_table *table, __u32 number)
{
	__u32 index = table->list, bytes = table->payload_bytes, must_time = 0;
	struct dta_list *list = bpf_map_lookup_elem(&dta_lists, &index);
	struct dta_taken taken = {};
	__u64 offset;
	__u8 *to;

	if (!list)
		return DTA_SLAB;
	if (!lock_list(list))
		return DTA_BUSY;
	if (list->busy >> (list->side & 1) & 1) {
		unlock_list(list);
		return DTA_BUSY;
	}
	offset = list->count * bytes;
	to = (__u8 *)list->open.words[list->side & 1] + (offset & (OPEN_WORDS * 8 - 1));
	for (__u32 at = 0; at < DTA_MAX_PAYLOAD_BYTES / 8; at++) {
		if (at * 8 >= bytes)
			break;
		*(__u64 *)(to + at * 8) = payload_word(s, at);
	}
	if (!list->count)
		list->since_ns = bpf_ktime_get_boot_ns();
	list->table = number;
	if (++list->count >= table->batch || s->header.flags & DTA_IMMEDIATE) {
		take_side(list, &taken);
	} else if (!list->is_timed) {
		list->is_timed = must_time = 1;
	}
	unlock_list(list);
	if (must_time)
		begin_timer(list);
	return taken.count ? finish_side(list, index, number, &taken) : DTA_STORED;
}

#endif
