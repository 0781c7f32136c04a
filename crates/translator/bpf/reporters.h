/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Retransmittable reports: those are taken that follow one another, of each source and reporter (crates/dta, translator.rs). */
#ifndef ONLOOKER_DTA_REPORTERS_H
#define ONLOOKER_DTA_REPORTERS_H

#include "report.h"

#define DTA_MAX_REPORTERS 65536
#define DTA_NEAR 65536

struct dta_reporter {
	struct onlooker_address source;
	__be32 reporter;
};

/* The last number of each. Those that were not heard of for longest are forgotten, and must say again where they begin. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, DTA_MAX_REPORTERS);
	__type(key, struct dta_reporter);
	__type(value, __u32);
} dta_reporters SEC(".maps");

static __always_inline int is_near(__s32 distance)
{
	return distance >= -DTA_NEAR && distance <= DTA_NEAR;
}

/* Whether a numbered report is the next one. */
static __always_inline int follow(struct dta_scratch *s, const struct place *place)
{
	struct dta_reporter key = { .source = place->source, .reporter = s->header.reporter };
	__u32 sequence = bpf_ntohl(s->header.sequence), *known = bpf_map_lookup_elem(&dta_reporters, &key);
	__s32 distance;

	s->last = sequence;
	if (!known)
		return DTA_UNKNOWN_REPORTER;
	s->last = *(volatile __u32 *)known;
	distance = sequence - s->last;
	if (!is_near(distance)) {
		s->last = sequence;
		return DTA_UNKNOWN_REPORTER;
	}
	if (distance <= 0)
		return DTA_DUPLICATE;
	/* Two processors may have two reports of one reporter: who comes second finds another last one, and is told. */
	if (distance > 1 || __sync_val_compare_and_swap(known, s->last, sequence) != s->last)
		return DTA_GAP;
	return ONLOOKER_GO_ON;
}

/*
 * A report that was the next one could not be stored after all: it has not come. If one behind it has meanwhile, on
 * another processor, it stays lost.
 */
static __always_inline void unfollow(const struct dta_scratch *s, const struct place *place)
{
	struct dta_reporter key = { .source = place->source, .reporter = s->header.reporter };
	__u32 sequence = bpf_ntohl(s->header.sequence), *known = bpf_map_lookup_elem(&dta_reporters, &key);

	if (known)
		__sync_val_compare_and_swap(known, sequence, s->last);
}

/* Where a reporter begins, if it knows more than is known here. */
static __always_inline int probe(struct dta_scratch *s, const struct place *place)
{
	struct dta_reporter key = { .source = place->source, .reporter = s->header.reporter };
	__u32 sequence = bpf_ntohl(s->header.sequence), received = bpf_ntohl((__u32)payload_word(s, 0));
	__u32 *known = bpf_map_lookup_elem(&dta_reporters, &key);

	s->last = received;
	if (known) {
		__u32 before = *(volatile __u32 *)known;

		if ((__s32)(received - before) <= 0 && is_near(sequence - before))
			s->last = before;
		else
			*(volatile __u32 *)known = received;
		return DTA_PROBE;
	}
	bpf_map_update_elem(&dta_reporters, &key, &received, BPF_ANY);
	return DTA_PROBE;
}

#endif
