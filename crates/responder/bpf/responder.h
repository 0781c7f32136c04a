/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The responder between its two hooks: a request is taken (parsed, checked, its data copied into the scratch) without touching the packet, then the
 * packet is given the answer's size, then the answer is written. Computed blocks leave by a tail call in between and come back to `finish`.
 */
#ifndef ONLOOKER_RESPONDER_H
#define ONLOOKER_RESPONDER_H

#include <linux/pkt_cls.h>
#include "answer.h"
#include "copy.h"
#include "options.h"
#include "read.h"

/* The programs that look at frames that are not for this responder: slot 0. While it is empty they cost a no-op. A program array holds programs of one type. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} next_tc SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} next_xdp SEC(".maps");

/* The scratch as a collector finds it: zeros, but for the time and what `finish` adds. */
static __always_inline void prepare_computed(struct onlooker_scratch *s, const struct onlooker_region *region)
{
	volatile __u64 *block = &s->packet.words[ONLOOKER_DATA_WORD];

	/* The block index is the identity's low 16 bits. */
	s->request.identity = region->identity + s->request.offset_bytes / ONLOOKER_BLOCK_BYTES;
#pragma unroll
	for (int word = 0; word < ONLOOKER_BLOCK_WORDS; word++)
		block[word] = 0;
	block[1] = s->request.now_ns;
}

/* On ONLOOKER_GO_ON the request is in the scratch, and so is the data, unless the region is computed. */
static __always_inline int take_request(void *data, void *end, __u32 frame_bytes, struct place *place)
{
	struct onlooker_scratch *s = scratch_get();
	struct onlooker_region *region;
	int exit;

	if (!s)
		return ONLOOKER_SLAB;
	exit = check_request(data, end, frame_bytes, place, s, &region);
	if (exit)
		return exit;
	if (region->kind == ONLOOKER_KIND_MEMORY)
		return copy_memory(s, region);
	prepare_computed(s, region);
	return ONLOOKER_GO_ON;
}

/* Headers beyond the linear part are pulled into it, but only for frames that could be ours or end within them. */
__noinline int onlooker_tc_take(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct place place = { .device = skb->ifindex };
	int found;

	/* The outer tag is not in the frame any more. */
	if (skb->vlan_present && skb->vlan_tci & VLAN_ID)
		return FRAME_PASS;
	found = find_place(data, end, &place);
	if (found == FRAME_PASS)
		return FRAME_PASS;
	if (data + ONLOOKER_MAX_REQUEST_BYTES > end && data + skb->len > end) {
		__u32 bytes = skb->len < ONLOOKER_MAX_REQUEST_BYTES ? skb->len : ONLOOKER_MAX_REQUEST_BYTES;

		if (bpf_skb_pull_data(skb, bytes))
			return FRAME_PASS;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		found = find_place(data, end, &place);
	}
	if (found == FRAME_OPTIONS && is_own(&place))
		return onlooker_tc_options(skb, place.l3_offset, place.ipv6);
	if (found || !is_own(&place))
		return FRAME_PASS;
	/* The headers would describe one datagram of several: none of them could be answered rightly. */
	if (skb->gso_size)
		return place.roce ? FRAME_PASS : ONLOOKER_AGGREGATED;
	return take_request(data, end, skb->len, &place);
}

/* Opaque to the compiler, which would otherwise mix the pointers into 32-bit arithmetic, and the verifier refuses that. */
static __always_inline int xdp_frame_bytes(struct xdp_md *xdp)
{
	__s64 bytes = (long)xdp->data_end - (long)xdp->data;

	asm volatile("" : "+r"(bytes));
	return bytes;
}

__noinline int onlooker_xdp_take(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct place place = { .device = xdp->ingress_ifindex };
	int found = find_place(data, end, &place);

	if (found == FRAME_OPTIONS && is_own(&place))
		return onlooker_xdp_options(xdp, place.l3_offset, place.ipv6);
	if (found || !is_own(&place))
		return FRAME_PASS;
	return take_request(data, end, xdp_frame_bytes(xdp), &place);
}

/* Where the answer's BTH goes, and how many bytes from there on. */
static __always_inline __u32 transport_offset(const struct onlooker_scratch *s)
{
	return s->request.l3_offset + ip_bytes(s->request.ipv6) + sizeof(struct udphdr);
}

/*
 * The device would drop a longer answer without a count of ours. Attaching checks that the longest one fits; but an MTU can be lowered later. The helper
 * takes the length of the IP packet and does not count Ethernet header and tags.
 */
static __always_inline int beyond_mtu(void *context, const struct onlooker_scratch *s, __u32 transport_bytes)
{
	__u32 l3_bytes = ip_bytes(s->request.ipv6) + sizeof(struct udphdr) + transport_bytes;

	return bpf_check_mtu(context, 0, &l3_bytes, 0, 0) != 0;
}

#define MOST_TRANSPORT_BYTES (sizeof(struct bth) + 4 + ONLOOKER_MAX_READ_BYTES + 4)

static __always_inline int tc_answer(struct __sk_buff *skb, struct onlooker_scratch *s, int computed)
{
	__u64 bytes = answer_transport_bytes(s->request.length_bytes);
	__u64 size_less_one;
	int exit;

	if (beyond_mtu(skb, s, bytes))
		return ONLOOKER_MTU;
	if (bpf_skb_change_tail(skb, transport_offset(s) + bytes, 0))
		return ONLOOKER_ROOM;
	exit = answer_headers((void *)(long)skb->data, (void *)(long)skb->data_end, s, bytes);
	if (exit)
		return exit;
	answer_transport(s, computed);
	/*
	 * Not seen to fail: the packet is linear, its own and long enough since it grew (net/core/filter.c, __bpf_skb_change_tail and bpf_skb_store_bytes).
	 * 6.1's verifier wants a size's bounds freshly compared, and its least value by addition.
	 */
	size_less_one = bytes - 1;
	asm volatile("" : "+r"(size_less_one));
	if (size_less_one >= MOST_TRANSPORT_BYTES ||
	    bpf_skb_store_bytes(skb, transport_offset(s), &s->packet.words[ONLOOKER_TRANSPORT_WORD], size_less_one + 1, 0))
		return ONLOOKER_ROOM;
	return ONLOOKER_ANSWERED;
}

static __always_inline int xdp_answer(struct xdp_md *xdp, struct onlooker_scratch *s, int computed)
{
	__u64 bytes = answer_transport_bytes(s->request.length_bytes);
	int have = xdp_frame_bytes(xdp);
	__u64 size_less_one;
	int exit;

	if (beyond_mtu(xdp, s, bytes))
		return ONLOOKER_MTU;
	if (bpf_xdp_adjust_tail(xdp, (int)(transport_offset(s) + bytes) - have))
		return ONLOOKER_ROOM;
	exit = answer_headers((void *)(long)xdp->data, (void *)(long)xdp->data_end, s, bytes);
	if (exit)
		return exit;
	answer_transport(s, computed);
	size_less_one = bytes - 1;
	asm volatile("" : "+r"(size_less_one));
	if (size_less_one >= MOST_TRANSPORT_BYTES ||
	    bpf_xdp_store_bytes(xdp, transport_offset(s), &s->packet.words[ONLOOKER_TRANSPORT_WORD], size_less_one + 1))
		return ONLOOKER_ROOM;
	return ONLOOKER_ANSWERED;
}

/* Out of the device it came in by; a VLAN tag that the driver or the stack took into the skb goes out again with it. */
static __always_inline int tc_end(struct __sk_buff *skb, int exit)
{
	count(exit);
	if (exit == ONLOOKER_PASSED)
		return TC_ACT_UNSPEC;
	return exit == ONLOOKER_ANSWERED ? bpf_redirect(skb->ifindex, 0) : TC_ACT_SHOT;
}

static __always_inline int xdp_end(int exit)
{
	count(exit);
	if (exit == ONLOOKER_PASSED)
		return XDP_PASS;
	return exit == ONLOOKER_ANSWERED ? XDP_TX : XDP_DROP;
}

static __always_inline int tc_respond(struct __sk_buff *skb)
{
	int exit = onlooker_tc_take(skb);
	struct onlooker_scratch *s;

	if (exit == FRAME_PASS) {
		bpf_tail_call(skb, &next_tc, 0);
		return TC_ACT_UNSPEC;
	}
	if (exit)
		return tc_end(skb, exit);
	s = scratch_get();
	if (!s)
		return tc_end(skb, ONLOOKER_SLAB);
	if (s->request.kind == ONLOOKER_KIND_MEMORY)
		return tc_end(skb, tc_answer(skb, s, 0));
	bpf_tail_call(skb, &collectors_tc, s->request.kind);
	return tc_end(skb, ONLOOKER_COLLECTOR);
}

static __always_inline int xdp_respond(struct xdp_md *xdp)
{
	int exit = onlooker_xdp_take(xdp);
	struct onlooker_scratch *s;

	if (exit == FRAME_PASS) {
		bpf_tail_call(xdp, &next_xdp, 0);
		return XDP_PASS;
	}
	if (exit)
		return xdp_end(exit);
	s = scratch_get();
	if (!s)
		return xdp_end(ONLOOKER_SLAB);
	if (s->request.kind == ONLOOKER_KIND_MEMORY)
		return xdp_end(xdp_answer(xdp, s, 0));
	bpf_tail_call(xdp, &collectors_xdp, s->request.kind);
	return xdp_end(ONLOOKER_COLLECTOR);
}

#endif
