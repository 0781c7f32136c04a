/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CRC-32 over the scratch (docs/format/wire.md, ICRC). Most of it is folded without tables (Russell, "Chorba: A novel CRC32 implementation", 2024): a
 * word is replaced by sparse multiples of it in the words 2 to 5 behind, which leaves the CRC as it is, because the difference is a multiple of the
 * polynomial. That is 26 instructions a word instead of the 50 of table look-ups, and 16 KiB fewer in the first-level cache of a machine that has other
 * things to do. The last words go through tables, which the loader computes from the wire crate's code.
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

/* What a word adds to those 2, 3, 4 and 5 words behind it. */
#define CRC_FOLD2(word) (((word) ^ (word) << 38) << 17)
#define CRC_FOLD3(word) (((word) ^ (word) >> 38) >> 9 ^ (word) << 19)
#define CRC_FOLD4(word) ((word) >> 45 ^ (word) << 44)
#define CRC_FOLD5(word) ((word) >> 20)

/* Folding four words adds to the five behind them; those must be there. */
#define CRC_FOLD_WORDS 4
#define CRC_FOLD_LEAST 9

/*
 * The end of onlooker_crc: an even number of words, at most 8, from `at` on, with what has been folded into the first five of them. A function of its
 * own, so that the verifier does not walk it once for each way out of the loop before.
 */
__noinline __u32 onlooker_crc_tail(struct onlooker_scratch *s, __u32 at, __u32 words)
{
	const volatile char *tables = (const volatile char *)crc_tables;
	__u32 sum = 0;

	if (!s)
		return 0;
#pragma unroll
	for (__u32 pair = 0; pair < (CRC_FOLD_LEAST - 1) / 2; pair++) {
		__u32 from = at + 2 * pair;
		__u64 low, high;

		asm volatile("" : "+r"(from));
		if (2 * pair + 2 > words || from > ONLOOKER_PACKET_WORDS - 2)
			break;
		low = s->packet.words[from] ^ sum;
		high = s->packet.words[from + 1];
		if (pair < 3) {
			low ^= s->folded[2 * pair];
			high ^= s->folded[2 * pair + 1];
		}
		sum = crc_step8(tables, 8, low) ^ crc_step8(tables, 0, high);
	}
	return sum;
}

/*
 * Runs `words` words of the packet in the scratch from `first` on through `sum`. A global function, so that the verifier walks the loop once and
 * not once a caller.
 */
__noinline __u32 onlooker_crc(struct onlooker_scratch *s, __u32 sum, __u32 first, __u32 words)
{
	/* What is to be added to the next five words. */
	__u64 add1 = sum, add2 = 0, add3 = 0, add4 = 0, add5 = 0;
	__u32 end = first + words;
	__u32 at = first;

	if (!s || first > ONLOOKER_DATA_WORD)
		return 0;
	if (words % 2) {
		add1 = crc_word(sum, s->packet.words[at]);
		at++;
	}
	for (int step = 0; step < ONLOOKER_PACKET_WORDS / CRC_FOLD_WORDS; step++) {
		__u64 *word, in, add6, add7, add8;

		/* Opaque to the compiler, which would otherwise keep a pointer of its own that the verifier cannot bound by this check. */
		asm volatile("" : "+r"(at));
		if (at + CRC_FOLD_LEAST > end || at > ONLOOKER_PACKET_WORDS - CRC_FOLD_WORDS)
			break;
		word = &s->packet.words[at];
		in = word[0] ^ add1;
		add3 ^= CRC_FOLD2(in);
		add4 ^= CRC_FOLD3(in);
		add5 ^= CRC_FOLD4(in);
		add6 = CRC_FOLD5(in);
		in = word[1] ^ add2;
		add4 ^= CRC_FOLD2(in);
		add5 ^= CRC_FOLD3(in);
		add6 ^= CRC_FOLD4(in);
		add7 = CRC_FOLD5(in);
		in = word[2] ^ add3;
		add5 ^= CRC_FOLD2(in);
		add6 ^= CRC_FOLD3(in);
		add7 ^= CRC_FOLD4(in);
		add8 = CRC_FOLD5(in);
		in = word[3] ^ add4;
		add1 = add5;
		add2 = add6 ^ CRC_FOLD2(in);
		add3 = add7 ^ CRC_FOLD3(in);
		add4 = add8 ^ CRC_FOLD4(in);
		add5 = CRC_FOLD5(in);
		at += CRC_FOLD_WORDS;
	}
	s->folded[0] = add1;
	s->folded[1] = add2;
	s->folded[2] = add3;
	s->folded[3] = add4;
	s->folded[4] = add5;
	s->folded[5] = 0;
	return onlooker_crc_tail(s, at, end - at);
}

/* A register after the 1016 bytes of a guarded block that precede its last word, had those been zeros. */
static __always_inline __u32 crc_shift(__u32 sum)
{
	const volatile char *tables = (const volatile char *)crc_shift_guarded;
	__u64 word = sum;

	return CRC_LOOK(tables, 0, word, 0) ^ CRC_LOOK(tables, 1, word, 1) ^ CRC_LOOK(tables, 2, word, 2) ^ CRC_LOOK(tables, 3, word, 3);
}

#endif
