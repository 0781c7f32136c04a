// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Region node_packed: the collector that each of its READs comes to first. It has no words of its own (bpf/packed.h). */
#include "base.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_packed_block);
} packed_blocks SEC(".maps");

static __always_inline int begin(struct onlooker_scratch *s)
{
	__u32 number = s->request.offset_bytes / ONLOOKER_BLOCK_BYTES;
	struct onlooker_packed_block *block = bpf_map_lookup_elem(&packed_blocks, &number);

	if (!block || !block->pieces)
		return 0;
	PACKED_REST(s)->block = *block;
	PACKED_REST(s)->next = 0;
	s->request.packed = PACKED;
	return 1;
}

SEC("tc")
int collect_tc(struct __sk_buff *skb)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && begin(s))
		bpf_tail_call(skb, &collectors_tc, next_collector(s));
	return collector_refuse_tc();
}

SEC("xdp")
int collect_xdp(struct xdp_md *xdp)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && begin(s))
		bpf_tail_call(xdp, &collectors_xdp, next_collector(s));
	return collector_refuse_xdp();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
