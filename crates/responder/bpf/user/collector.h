/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For collectors of your own, in BPF C: docs/user-collectors.md. Write one function that fills the slots of a block, and name it:
 *
 *   static __always_inline int fill(__u64 *slots, __u32 block) { slots[0] = bpf_jiffies64(); return 1; }
 *   ONLOOKER_COLLECTOR(fill)
 *
 *   clang -O2 -g -target bpf -mcpu=v3 -I <this directory> -I /usr/include/$(uname -m)-linux-gnu -c mine.bpf.c -o mine.bpf.o
 *
 * `slots` are the COLLECTOR_SLOTS words of block number `block`, all zero; return 0 where nothing may be told, and the READ stays without an answer. Slots
 * are written at constant places: unroll what would be a loop. Nothing may jump backwards, all functions are __always_inline, and of the kernel's helpers
 * only those are allowed that look (the page lists them).
 *
 * `counters` is the object's own, in place of the responder's: a refusal is counted there.
 */
#ifndef ONLOOKER_USER_COLLECTOR_H
#define ONLOOKER_USER_COLLECTOR_H

#include "../collector.h"

/* Addresses that the loader has found, in the order of `addresses` in the collector's TOML; a variable that each CPU has takes one for each, CPU 0 first. */
#define ONLOOKER_ADDRESSES(count) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(max_entries, count); \
		__type(key, __u32); \
		__type(value, __u64); \
	} addresses SEC(".maps"); \
	static __always_inline __u64 onlooker_address(__u32 index) \
	{ \
		__u64 *address = bpf_map_lookup_elem(&addresses, &index); \
\
		return address ? *address : 0; \
	}

#define ONLOOKER_COLLECTOR(fill) \
	SEC("tc") int fill##_tc(struct __sk_buff *skb) \
	{ \
		struct onlooker_scratch *s = scratch_get(); \
\
		if (s && fill(COLLECTOR_BLOCK(s) + COLLECTOR_PAYLOAD, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES)) \
			COLLECTOR_FINISH(skb, collectors_tc); \
		return collector_refuse_tc(); \
	} \
	SEC("xdp") int fill##_xdp(struct xdp_md *xdp) \
	{ \
		struct onlooker_scratch *s = scratch_get(); \
\
		if (s && fill(COLLECTOR_BLOCK(s) + COLLECTOR_PAYLOAD, s->request.offset_bytes / ONLOOKER_BLOCK_BYTES)) \
			COLLECTOR_FINISH(xdp, collectors_xdp); \
		return collector_refuse_xdp(); \
	} \
	char LICENSE[] SEC("license") = "Dual BSD/GPL"

#endif
