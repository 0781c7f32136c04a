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

SEC("tc")
int collect_tc(struct __sk_buff *skb)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && onlooker_collect(s, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES))
		COLLECTOR_FINISH(skb, collectors_tc);
	return collector_refuse_tc();
}

SEC("xdp")
int collect_xdp(struct xdp_md *xdp)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && onlooker_collect(s, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES))
		COLLECTOR_FINISH(xdp, collectors_xdp);
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

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#endif
