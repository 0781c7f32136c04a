/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a reporter is told: the packet that came goes back as an answer (docs/format/dta.md), with the responder's headers around it. */
#ifndef ONLOOKER_DTA_TOLD_H
#define ONLOOKER_DTA_TOLD_H

#include "answer.h"
#include "maps.h"
#include "report.h"

#define DTA_ANSWER 0x1f
#define DTA_MISSING 1
#define DTA_UNKNOWN 4

struct dta_answer {
	__u8 kind;
	__u8 verdict;
	__u16 zero;
	__be32 reporter;
	__be32 sequence;
	__be32 access;
};

static __always_inline int is_told(int exit)
{
	return exit == DTA_PROBE || exit == DTA_GAP || exit == DTA_UNKNOWN_REPORTER;
}

static __always_inline struct dta_answer answer_of(const struct dta_scratch *s, int exit)
{
	__be32 last = bpf_htonl(s->last);
	struct dta_answer answer = { .kind = DTA_ANSWER, .reporter = s->header.reporter, .sequence = last, .access = s->header.access };

	if (exit == DTA_UNKNOWN_REPORTER)
		answer.verdict = DTA_UNKNOWN;
	else if (exit == DTA_GAP || last != s->header.sequence)
		answer.verdict = DTA_MISSING;
	return answer;
}

/* RFC 8200 8.1: a socket does not take a datagram over IPv6 that has no checksum. Addresses and ports are those of the headers just written. */
static __always_inline __u16 udp6_checksum(const struct onlooker_scratch *r, const struct dta_answer *answer)
{
	const __u32 *words = (const __u32 *)answer;
	__u64 sum = 2 * (__u64)bpf_htons(sizeof(struct udphdr) + sizeof(*answer)) + bpf_htons(IPPROTO_UDP);

#pragma unroll
	for (int half = 6; half < 15; half++)
		sum += r->packet.halves[half];
#pragma unroll
	for (int word = 0; word < 4; word++)
		sum += words[word];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
	return sum ? sum : 0xffff;
}

static __always_inline long store_bytes(void *context, int is_xdp, __u32 to, void *from, __u32 bytes)
{
	return is_xdp ? bpf_xdp_store_bytes(context, to, from, bytes) : bpf_skb_store_bytes(context, to, from, bytes, 0);
}

/* The scratch with which headers are written. */
static __always_inline struct onlooker_scratch *begin_answer(const struct place *place)
{
	struct onlooker_scratch *r = scratch_get();

	if (r) {
		r->request.l3_offset = place->l3_offset;
		r->request.ipv6 = place->ipv6;
	}
	return r;
}

/* Behind the headers, which are written. */
static __always_inline int finish_answer(void *context, int is_xdp, struct onlooker_scratch *r, const struct place *place, int exit)
{
	__u32 zero = 0, udp = place->l3_offset + ip_bytes(place->ipv6);
	struct dta_scratch *s = bpf_map_lookup_elem(&dta_scratch, &zero);
	struct dta_answer answer;

	if (!s)
		return 0;
	answer = answer_of(s, exit);
	if (place->ipv6) {
		__u16 checksum = udp6_checksum(r, &answer);

		if (store_bytes(context, is_xdp, udp + 6, &checksum, sizeof(checksum)))
			return 0;
	}
	return !store_bytes(context, is_xdp, udp + sizeof(struct udphdr), &answer, sizeof(answer));
}

static __always_inline __u32 answer_bytes(const struct place *place)
{
	return place->l3_offset + ip_bytes(place->ipv6) + sizeof(struct udphdr) + sizeof(struct dta_answer);
}

/* Whether there is an answer in the packet now. */
static __always_inline int tell_tc(struct __sk_buff *skb, const struct place *place, int exit)
{
	struct onlooker_scratch *r = begin_answer(place);

	return r && !bpf_skb_change_tail(skb, answer_bytes(place), 0) &&
	       !answer_headers((void *)(long)skb->data, (void *)(long)skb->data_end, r, sizeof(struct dta_answer)) &&
	       finish_answer(skb, 0, r, place, exit);
}

static __always_inline int tell_xdp(struct xdp_md *xdp, const struct place *place, int exit)
{
	struct onlooker_scratch *r = begin_answer(place);
	__s64 bytes = (long)xdp->data_end - (long)xdp->data;

	asm volatile("" : "+r"(bytes));
	return r && !bpf_xdp_adjust_tail(xdp, (int)answer_bytes(place) - (int)bytes) &&
	       !answer_headers((void *)(long)xdp->data, (void *)(long)xdp->data_end, r, sizeof(struct dta_answer)) &&
	       finish_answer(xdp, 1, r, place, exit);
}

#endif
