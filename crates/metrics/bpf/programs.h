/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The programs of a group, all around one function, so that computed blocks, published blocks and the loader's self-check are the same code:
 *
 *   int onlooker_collect(struct onlooker_scratch *s, __u32 block)
 *
 * writes payload words of block `block` of the group into the scratch and returns 1, or 0 if it has nothing to say. It finds the payload zeroed.
 * A group's source defines it and then includes this file. Beside the answer's 128 words the scratch has room for intermediate results: COLLECT_ROOM.
 */
#ifndef ONLOOKER_COLLECT_PROGRAMS_H
#define ONLOOKER_COLLECT_PROGRAMS_H

#include "base.h"
#include "crc.h" /* the responder's */

SEC("tc")
int collect_tc(struct __sk_buff *skb)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && onlooker_collect(s, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES))
		bpf_tail_call(skb, &collectors_tc, next_collector(s));
	return collector_refuse_tc();
}

SEC("xdp")
int collect_xdp(struct xdp_md *xdp)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && onlooker_collect(s, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES))
		bpf_tail_call(xdp, &collectors_xdp, next_collector(s));
	return collector_refuse_xdp();
}

static __always_inline void clear_block(struct onlooker_scratch *s)
{
	volatile __u64 *block = COLLECTOR_BLOCK(s);

#pragma unroll
	for (int word = 0; word < ONLOOKER_BLOCK_WORDS; word++)
		block[word] = 0;
}

/* For the loader: one block into memory of its own, which no softirq uses. The request's offset says which. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_scratch);
} once SEC(".maps");

SEC("syscall")
int collect_once(void *context)
{
	__u32 zero = 0;
	struct onlooker_scratch *s = bpf_map_lookup_elem(&once, &zero);

	(void)context;
	if (!s)
		return 0;
	clear_block(s);
	return onlooker_collect(s, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES);
}

/* The published twin: the same blocks in a slab, a few each time the timer fires. Its own scratch, since it may run beside the responder. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_scratch);
} publish_scratch SEC(".maps");

/* The slab, in whose place this stands until the loader puts it here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, ONLOOKER_BLOCK_BYTES);
} published SEC(".maps");

struct publication {
	struct bpf_timer timer;
	struct onlooker_publication_facts facts;
};

_Static_assert(__builtin_offsetof(struct publication, facts) == COLLECT_TIMER_BYTES, "the facts are elsewhere in src/collect/publish.rs");

/* The timer lives as long as somebody holds or has pinned this map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct publication);
} publication SEC(".maps");

#define CLOCK_MONOTONIC 1
#define ENOENT 2
#define EBUSY 16

/*
 * docs/format/block.md, Writer. The exchanges are the fences: on all machines they order the stores around them, and if one did not, readers would retry
 * more often, no more than that.
 */
__noinline int onlooker_write_block(struct onlooker_scratch *s, __u32 index, __u64 identity)
{
	volatile __u64 *to = bpf_map_lookup_elem(&published, &index);
	__u64 odd, even, *block;
	__u32 version;

	if (!s || !to)
		return 0;
	block = COLLECTOR_BLOCK(s);
	version = (__u32)to[0] & ~1u;
	odd = version | 1;
	version += 2;
	even = version ? version : 2;
	block[0] = even;
	block[2] = identity;
	block[ONLOOKER_BLOCK_WORDS - 1] = even | (__u64)~onlooker_crc(s, ~0u, ONLOOKER_DATA_WORD, ONLOOKER_BLOCK_WORDS - 1) << 32;
	to[ONLOOKER_BLOCK_WORDS - 1] = odd;
	__sync_lock_test_and_set(&to[0], odd);
#pragma unroll
	for (int word = 1; word < ONLOOKER_BLOCK_WORDS - 1; word++)
		to[word] = block[word];
	__sync_lock_test_and_set(&to[ONLOOKER_BLOCK_WORDS - 1], block[ONLOOKER_BLOCK_WORDS - 1]);
	to[0] = even;
	return 1;
}

static __always_inline void publish_block(struct onlooker_scratch *s, struct onlooker_publication_facts *facts)
{
	__u32 block = facts->next;

	if (block >= facts->blocks)
		block = 0;
	clear_block(s);
	COLLECTOR_BLOCK(s)[COLLECTOR_TIME] = bpf_ktime_get_boot_ns();
	if (onlooker_collect(s, block) && onlooker_write_block(s, facts->first_block + block, facts->identity + block))
		facts->runs++;
	facts->next = block + 1;
}

/* Whether somebody looks after the responder, and so after its twins (CLOCK_BOOTTIME, as the responder itself has it in policy.h). */
static __always_inline int is_leased(void)
{
	__u32 zero = 0;
	__u64 *until_ns = bpf_map_lookup_elem(&lease, &zero);

	return until_ns && bpf_ktime_get_boot_ns() < *(volatile __u64 *)until_ns;
}

/*
 * Past the lease nothing is written. The timer goes on all the same, slowly: a host that was suspended outlives its lease until its agent renews it, and nobody
 * starts twins anew then.
 *
 * Turns begin at multiples of the interval, so that twins of one interval share an interrupt, which on virtual machines costs more than the blocks. Not by
 * an absolute time, which timers take from 6.4 on only.
 */
static int publish_turn(void *map, __u32 *key, struct publication *p)
{
	__u64 begin = bpf_ktime_get_ns(), end, pace_ns = p->facts.interval_ns;
	__u32 zero = 0;
	struct onlooker_scratch *s = bpf_map_lookup_elem(&publish_scratch, &zero);

	(void)map;
	(void)key;
	if (!is_leased()) {
		if (pace_ns && pace_ns < COLLECT_LAPSED_NS)
			pace_ns = COLLECT_LAPSED_NS;
	} else if (s) {
		for (__u32 turn = 0; turn < COLLECT_TURN_BLOCKS; turn++) {
			if (turn >= p->facts.turn_blocks)
				break;
			publish_block(s, &p->facts);
		}
	}
	end = bpf_ktime_get_ns();
	p->facts.spent_ns += end - begin;
	if (pace_ns)
		bpf_timer_start(&p->timer, pace_ns - end % pace_ns, 0);
	return 0;
}

/* Returns an error's number, or 0. After one it may be tried again: the timer may be there by then. */
SEC("syscall")
int publish(void *context)
{
	__u32 zero = 0;
	struct publication *p = bpf_map_lookup_elem(&publication, &zero);
	long error;

	(void)context;
	if (!p)
		return ENOENT;
	error = bpf_timer_init(&p->timer, &publication, CLOCK_MONOTONIC);
	if (!error || error == -EBUSY)
		error = bpf_timer_set_callback(&p->timer, publish_turn);
	if (!error)
		error = bpf_timer_start(&p->timer, 0, 0);
	return -error;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
