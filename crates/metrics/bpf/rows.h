/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tables whose rows come and go with what they tell of (docs/format/table.md): who gets a row, and how a row is changed
 * while others read it. A group's row has a `sequence`, which is odd while it is being changed, and a `generation`.
 *
 * One program at a time changes rows: a program that finds `busy` set serves what is there and leaves changes to others.
 */
#ifndef ONLOOKER_COLLECT_ROWS_H
#define ONLOOKER_COLLECT_ROWS_H

#include "base.h"
#include "percpu.h"

/* In a row's first word, above its generation: there is something in the row. */
#define ROW_LIVE (1ull << 32)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_table);
} tables SEC(".maps");

/*
 * Rows that are free again, a stack of `free`: an array, since 6.1 lets sleepable programs (the loader's check) use no
 * stack map.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u32);
} free_rows SEC(".maps");

/*
 * A generation is never 0 once something was in the row, and begins anywhere: rows of an earlier installation are not
 * mistaken for these.
 */
static __always_inline __u32 next_generation(__u32 generation)
{
	generation = generation ? generation + 1 : bpf_get_prandom_u32();
	return generation ? generation : 1;
}

static __always_inline void change_begins(__u32 *sequence)
{
	__sync_lock_test_and_set(sequence, *sequence | 1);
}

static __always_inline void change_ends(__u32 *sequence)
{
	__sync_lock_test_and_set(sequence, (*sequence | 1) + 1);
}

/* A row that was given back, else one that nobody ever had. 0: there is none. */
static __always_inline int take_row(__u32 *free, __u32 *used, __u32 capacity, __u32 *number)
{
	__u32 last = *free - 1, *row;

	if (*free) {
		row = bpf_map_lookup_elem(&free_rows, &last);
		if (!row)
			return 0;
		*free = last;
		*number = *row;
		return 1;
	}
	if (*used >= capacity)
		return 0;
	*number = (*used)++;
	return 1;
}

static __always_inline void give_row_back(__u32 *free, __u32 number)
{
	if (bpf_map_update_elem(&free_rows, free, &number, BPF_ANY) == 0)
		++*free;
}

/* A word of the answer. */
static __always_inline void put(struct onlooker_scratch *s, __u32 slot, __u64 value)
{
	/* Opaque, so that the verifier sees the bound of the very number that is used. */
	asm volatile("" : "+r"(slot));
	if (slot < COLLECTOR_SLOTS)
		COLLECT_PAYLOAD(s)[slot] = value;
}

#endif
