/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packed blocks: one answer with the words of several groups, whose own blocks would be mostly empty. The collector of
 * region node_packed (src/collect/packed.bpf.c) names the pieces; each collector, when it has written its words, calls the
 * next one in place of the responder's `finish`. All of them write into the same block, each at its piece's place.
 */
#ifndef ONLOOKER_COLLECT_PACKED_H
#define ONLOOKER_COLLECT_PACKED_H

#include "collector.h" /* the responder's */
#include "intf.h"

/* request.packed: the block is a packed one, and the present piece's first slot in it. */
#define PACKED 0x80
#define PACKED_AT 0x7f

/* The pieces that are left, in words of the scratch that no group uses. */
struct packed_rest {
	__u32 next;
	struct onlooker_packed_block block;
};
#define PACKED_REST(scratch) ((struct packed_rest *)(COLLECTOR_BLOCK(scratch) + 6 * ONLOOKER_BLOCK_WORDS))

_Static_assert(ONLOOKER_DATA_WORD + 6 * ONLOOKER_BLOCK_WORDS + sizeof(struct packed_rest) / 8 < ONLOOKER_PACKET_WORDS, "the scratch has no room for pieces");

/* A group finds its payload zeroed; what stood before it may have written further than its own piece. */
static __always_inline void clear_piece(struct onlooker_scratch *s, __u32 words)
{
	volatile __u64 *payload = COLLECTOR_BLOCK(s) + COLLECTOR_PAYLOAD + (s->request.packed & PACKED_AT);

	for (__u32 word = 0; word < COLLECTOR_SLOTS; word += 4) {
		if (word >= words)
			break;
#pragma unroll
		for (int beside = 0; beside < 4; beside++)
			payload[word + beside] = 0;
	}
}

/* The slot of the program that goes on with this request: the next piece's collector, or the responder's `finish`. */
static __always_inline __u32 next_collector(struct onlooker_scratch *s)
{
	struct packed_rest *rest = PACKED_REST(s);
	struct onlooker_packed_piece *piece;
	__u32 next;

	if (!s->request.packed)
		return ONLOOKER_FINISH_SLOT;
	next = rest->next;
	if (next >= COLLECT_PACKED_PIECES || next >= rest->block.pieces)
		return ONLOOKER_FINISH_SLOT;
	rest->next = next + 1;
	piece = &rest->block.piece[next];
	s->request.packed = PACKED | (piece->at & PACKED_AT);
	s->request.offset_bytes = piece->block * ONLOOKER_BLOCK_BYTES;
	clear_piece(s, piece->words);
	return piece->collector;
}

#endif
