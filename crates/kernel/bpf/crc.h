/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CRC-32 over the scratch, 16 bytes a step (docs/format/wire.md, ICRC). The tables are computed by the loader from the wire crate's code.
 *
 * The ICRC begins with 8 bytes of ones and a register of ones: the first 4 bytes cancel the register out, and a register of zero passes over
 * leading zeros unchanged. So register 0 over [zeros,] 4 bytes of ones, headers, ... is the same, and the headers may stand right-aligned.
 */
#ifndef ONLOOKER_CRC_H
#define ONLOOKER_CRC_H

#include <bpf/bpf_helpers.h>
#include "intf.h"

/* crc_tables[k][b]: byte b followed by k zero bytes, through the register. */
const volatile __u32 crc_tables[16][256] = {};
/* A register moved past 1016 bytes: a guarded block up to its last word. */
const volatile __u32 crc_shift_guarded[4][256] = {};

/* Byte `n` of `word` in the table for `k` following bytes; byte * 4 is had by one shift less. */
#define CRC_LOOK(tables, k, word, n) \
	(*(const volatile __u32 *)((tables) + (k) * 1024 + ((n) ? ((word) >> (8 * (n) - 2)) & 0x3fc : ((word) << 2) & 0x3fc)))

static __always_inline __u32 crc_step8(const volatile char *tables, __u32 k, __u64 word)
{
	__u32 sum = CRC_LOOK(tables, k + 7, word, 0);

	sum ^= CRC_LOOK(tables, k + 6, word, 1);
	sum ^= CRC_LOOK(tables, k + 5, word, 2);
	sum ^= CRC_LOOK(tables, k + 4, word, 3);
	sum ^= CRC_LOOK(tables, k + 3, word, 4);
	sum ^= CRC_LOOK(tables, k + 2, word, 5);
	sum ^= CRC_LOOK(tables, k + 1, word, 6);
	sum ^= CRC_LOOK(tables, k, word, 7);
	return sum;
}

static __always_inline __u32 crc_word(__u32 sum, __u64 word)
{
	return crc_step8((const volatile char *)crc_tables, 0, word ^ sum);
}

/*
 * Runs `words` words of the packet in the scratch from `first` on through `sum`. A global function, so that the verifier walks the loop once and
 * not once a caller.
 */
__noinline __u32 onlooker_crc(struct onlooker_scratch *s, __u32 sum, __u32 first, __u32 words)
{
	const volatile char *tables = (const volatile char *)crc_tables;
	__u32 end = first + words;
	__u32 at = first;

	if (!s || first > ONLOOKER_DATA_WORD)
		return 0;
	for (int step = 0; step < ONLOOKER_PACKET_WORDS / 2; step++) {
		/* Opaque to the compiler, which would otherwise keep a pointer of its own that the verifier cannot bound by this check. */
		asm volatile("" : "+r"(at));
		if (at + 2 > end || at > ONLOOKER_PACKET_WORDS - 2)
			break;
		__u64 low = s->packet.words[at] ^ sum;
		__u64 high = s->packet.words[at + 1];

		sum = crc_step8(tables, 8, low) ^ crc_step8(tables, 0, high);
		at += 2;
	}
	asm volatile("" : "+r"(at));
	if (at < end && at < ONLOOKER_PACKET_WORDS)
		sum = crc_word(sum, s->packet.words[at]);
	return sum;
}

/* A register after the 1016 bytes of a guarded block that precede its last word, had those been zeros. */
static __always_inline __u32 crc_shift(__u32 sum)
{
	const volatile char *tables = (const volatile char *)crc_shift_guarded;
	__u64 word = sum;

	return CRC_LOOK(tables, 0, word, 0) ^ CRC_LOOK(tables, 1, word, 1) ^ CRC_LOOK(tables, 2, word, 2) ^ CRC_LOOK(tables, 3, word, 3);
}

#endif
