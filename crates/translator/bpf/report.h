/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* From a frame to a report: its lengths, and its bytes in the scratch, behind which are zeros. */
#ifndef ONLOOKER_DTA_REPORT_H
#define ONLOOKER_DTA_REPORT_H

#include "frame.h"
#include "options.h"
#include "dta.h"

#define DTA_VERSION_1 1
#define DTA_RETRANSMITTABLE 0x10
#define DTA_IMMEDIATE 0x20
#define DTA_RESERVED 0x0f
#define DTA_IMPORTANCES 3
#define IPV4_MORE_FRAGMENTS 0x2000

struct dta_header {
	__u8 kind; /* version, primitive */
	__u8 flags;
	__be16 table;
	__be32 access;
	__be32 reporter;
	__be32 sequence;
	__u8 copies;
	__u8 generation;
	__u8 key_bytes;
	__u8 payload_bytes;
};

#define DTA_MAX_REPORT_BYTES (sizeof(struct dta_header) + DTA_MAX_KEY_BYTES + DTA_MAX_PAYLOAD_BYTES)

struct dta_scratch {
	__u32 copies;     /* a bit for each that is written */
	__u32 last;       /* the number that a reporter is told */
	__u64 place;      /* halves of the key's hash */
	__u64 check;
	__u32 payload_at; /* of `raw` */
	union {
		struct dta_header header;
		__u8 raw[DTA_MAX_REPORT_BYTES + 2 * DTA_MAX_PAYLOAD_BYTES]; /* whatever is read by whole words is within it */
	};
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct dta_scratch);
} dta_scratch SEC(".maps");

/* Eight bytes of a report, wherever they begin: alignment is of no matter to the processors that we are for. */
static __always_inline __u64 word_at(const struct dta_scratch *s, __u64 at)
{
	return *(const __u64 *)(s->raw + at);
}

/* Word `at` of the key. Behind the last one are zeros. */
static __always_inline __u64 key_word(const struct dta_scratch *s, __u32 at)
{
	__u32 bytes = s->header.key_bytes;
	__u64 word = word_at(s, sizeof(struct dta_header) + at * 8);

	return at * 8 + 8 <= bytes ? word : word & ((1ULL << bytes % 8 * 8) - 1);
}

/* Word `at` of the payload, likewise. */
static __always_inline __u64 payload_word(const struct dta_scratch *s, __u32 at)
{
	return word_at(s, (s->payload_at & 127) + at * 8);
}

/* Bytes of the UDP payload, or 0 and why not in `exit`. Whoever sends a report may let it be fragmented; a fragment is none. */
static __always_inline __u32 report_bytes(void *data, void *end, __u32 frame_bytes, const struct place *place, int *exit)
{
	void *l3 = l3_header(data, place->l3_offset);
	struct udphdr *udp = l3 + ip_bytes(place->ipv6);
	__u32 ip_payload_bytes, udp_bytes;

	*exit = ONLOOKER_IP_LENGTH;
	if ((void *)(udp + 1) > end)
		return 0;
	if (place->ipv6) {
		struct ipv6hdr *ip = l3;

		ip_payload_bytes = bpf_ntohs(ip->payload_len);
	} else {
		struct iphdr *ip = l3;

		if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS)) {
			*exit = ONLOOKER_IPV4_FLAGS;
			return 0;
		}
		if (ipv4_sum(l3) != 0xffff) {
			*exit = ONLOOKER_IPV4_CHECKSUM;
			return 0;
		}
		ip_payload_bytes = bpf_ntohs(ip->tot_len);
		if (ip_payload_bytes < sizeof(*ip))
			return 0;
		ip_payload_bytes -= sizeof(*ip);
	}
	if (ip_payload_bytes < sizeof(*udp) || place->l3_offset + ip_bytes(place->ipv6) + ip_payload_bytes > frame_bytes)
		return 0;
	udp_bytes = bpf_ntohs(udp->len);
	*exit = ONLOOKER_UDP_LENGTH;
	if (udp_bytes != ip_payload_bytes)
		return 0;
	*exit = DTA_TRUNCATED;
	return udp_bytes - sizeof(*udp);
}

/* Which copies, a bit for each; 0: none that there are. */
static __always_inline __u32 copies_of(__u8 copies)
{
	__u32 only = copies >> 4;

	if (!only)
		return copies && copies <= DTA_MAX_COPIES ? (1u << copies) - 1 : 0;
	return !(copies & 0x0f) && only <= DTA_MAX_COPIES ? 1u << (only - 1) : 0;
}

/* A header by itself, in the order in which crates/wire looks at it. */
static __always_inline int check_header(struct dta_scratch *s, __u32 bytes)
{
	struct dta_header *h = &s->header;
	__u32 primitive = h->kind & 0x0f, keyed, shortest = 1, longest = DTA_MAX_PAYLOAD_BYTES;

	if (h->kind >> 4 != DTA_VERSION_1)
		return DTA_VERSION;
	if (h->flags & DTA_RESERVED || h->flags >> 6 >= DTA_IMPORTANCES)
		return DTA_FLAGS;
	if (!(h->flags & DTA_RETRANSMITTABLE) && h->sequence)
		return DTA_SEQUENCE;
	if (bytes != sizeof(*h) + h->key_bytes + h->payload_bytes)
		return DTA_LENGTH;
	if (primitive > DTA_PRIMITIVE_KEY_INCREMENT)
		return DTA_PRIMITIVE;
	keyed = primitive & 1;
	if (keyed ? !h->key_bytes || h->key_bytes > DTA_MAX_KEY_BYTES : h->key_bytes)
		return DTA_KEY_LENGTH;
	if (primitive == DTA_PRIMITIVE_PROBE)
		shortest = longest = 4;
	if (primitive == DTA_PRIMITIVE_KEY_INCREMENT)
		shortest = longest = 8;
	if (h->payload_bytes < shortest || h->payload_bytes > longest)
		return DTA_PAYLOAD_LENGTH;
	s->copies = copies_of(h->copies);
	if (keyed ? !s->copies : h->copies)
		return DTA_COPIES;
	if (primitive == DTA_PRIMITIVE_PROBE && !(h->flags & DTA_RETRANSMITTABLE))
		return DTA_FLAGS;
	return ONLOOKER_GO_ON;
}

/* The report at `from`, of `bytes` bytes, into the scratch. */
static __always_inline int load_report(void *context, int is_xdp, struct dta_scratch *s, __u32 from, __u32 bytes)
{
	__u64 less_one = bytes - 1;

	if (bytes < sizeof(s->header))
		return DTA_TRUNCATED;
	/* What is longer than any report is looked at as far as it could be one: its header says what is wrong with it. */
	if (less_one >= DTA_MAX_REPORT_BYTES)
		less_one = DTA_MAX_REPORT_BYTES - 1;
	/* 6.1's verifier wants a size's bounds freshly compared, and its least value by addition. */
	asm volatile("" : "+r"(less_one));
	if (less_one >= DTA_MAX_REPORT_BYTES || load_bytes(context, is_xdp, from, s->raw, less_one + 1))
		return DTA_TRUNCATED;
	*(__u64 *)(s->raw + less_one + 1) = 0;
	s->payload_at = sizeof(s->header) + s->header.key_bytes;
	return check_header(s, bytes);
}

#endif
