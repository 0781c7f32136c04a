/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where a key's entries are, and what shows that an entry was written at once: as crates/dta has it in hash.rs and seal.rs. */
#ifndef ONLOOKER_DTA_HASH_H
#define ONLOOKER_DTA_HASH_H

#include "report.h"

static __always_inline __u64 rotate(__u64 word, __u32 bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void sip_round(__u64 *v0, __u64 *v1, __u64 *v2, __u64 *v3)
{
	*v0 += *v1;
	*v1 = rotate(*v1, 13) ^ *v0;
	*v0 = rotate(*v0, 32);
	*v2 += *v3;
	*v3 = rotate(*v3, 16) ^ *v2;
	*v0 += *v3;
	*v3 = rotate(*v3, 21) ^ *v0;
	*v2 += *v1;
	*v1 = rotate(*v1, 17) ^ *v2;
	*v2 = rotate(*v2, 32);
}

/*
 * SipHash-1-3 with 128 bits, of the key in the scratch, behind which are zeros; its halves go there. Not inlined: the verifier walks it once, and not for
 * each way that leads here.
 */
__noinline int onlooker_dta_hash(__u64 seed0, __u64 seed1)
{
	__u64 v0 = seed0 ^ 0x736f6d6570736575ULL, v1 = seed1 ^ 0x646f72616e646f6dULL ^ 0xee;
	__u64 v2 = seed0 ^ 0x6c7967656e657261ULL, v3 = seed1 ^ 0x7465646279746573ULL;
	struct dta_scratch *s;
	__u64 bytes, words;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&dta_scratch, &zero);
	if (!s)
		return DTA_SLAB;
	bytes = s->header.key_bytes;
	words = bytes / 8;
	for (__u32 at = 0; at <= DTA_MAX_KEY_BYTES / 8; at++) {
		__u64 word = key_word(s, at);

		if (at == words)
			word |= bytes << 56;
		v3 ^= word;
		sip_round(&v0, &v1, &v2, &v3);
		v0 ^= word;
		if (at >= words)
			break;
	}
	v2 ^= 0xee;
	sip_round(&v0, &v1, &v2, &v3);
	sip_round(&v0, &v1, &v2, &v3);
	sip_round(&v0, &v1, &v2, &v3);
	s->place = v0 ^ v1 ^ v2 ^ v3;
	v1 ^= 0xdd;
	sip_round(&v0, &v1, &v2, &v3);
	sip_round(&v0, &v1, &v2, &v3);
	sip_round(&v0, &v1, &v2, &v3);
	s->check = v0 ^ v1 ^ v2 ^ v3;
	return ONLOOKER_GO_ON;
}

static __always_inline __u32 slot_of(__u64 place, __u32 copy, __u32 slots_mask)
{
	return ((__u32)place + ((__u32)(place >> 32) | 1) * copy) & slots_mask;
}

static __always_inline __u64 seal(__u64 sealed, __u64 word)
{
	sealed = (sealed ^ word) * 0x9e3779b97f4a7c15ULL;
	return sealed ^ sealed >> 32;
}

/* In units of 2^20 ns; never 0. */
static __always_inline __u32 stamp_of(__u64 now_ns)
{
	__u32 stamp = now_ns >> 20;

	return stamp ? stamp : 1;
}

#endif
