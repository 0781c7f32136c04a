/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a slab into the scratch, with aligned 8-byte loads only: a word is never split, whatever its writer does meanwhile. A memcpy straight into a
 * packet, whose data is not 8-byte aligned, does split words (docs/format/block.md, Copying).
 */
#ifndef ONLOOKER_COPY_H
#define ONLOOKER_COPY_H

#include "maps.h"

static __always_inline const volatile __u64 *block_get(__u32 slab, __u32 block)
{
	void *memory = bpf_map_lookup_elem(&slabs, &slab);

	return memory ? bpf_map_lookup_elem(memory, &block) : NULL;
}

/* Block `block` of slab `slab` to the `place`-th block of the answer. */
__noinline int onlooker_copy_block(struct onlooker_scratch *s, __u32 slab, __u32 block, __u32 place)
{
	const volatile __u64 *from = block_get(slab, block);
	__u64 *to;

	if (!s || !from || place >= ONLOOKER_MAX_READ_BYTES / ONLOOKER_BLOCK_BYTES)
		return ONLOOKER_SLAB;
	to = &s->packet.words[ONLOOKER_DATA_WORD + place * ONLOOKER_BLOCK_WORDS];
#pragma unroll
	for (int word = 0; word < ONLOOKER_BLOCK_WORDS; word++)
		to[word] = from[word];
	return ONLOOKER_GO_ON;
}

/* `words` words of a block, from its word `first` on. */
__noinline int onlooker_copy_words(struct onlooker_scratch *s, __u32 slab, __u32 block, __u32 first, __u32 words)
{
	const volatile __u64 *from = block_get(slab, block);

	if (!s || !from)
		return ONLOOKER_SLAB;
	for (__u32 word = 0; word < ONLOOKER_BLOCK_WORDS; word++) {
		if (word >= words)
			break;
		s->packet.words[ONLOOKER_DATA_WORD + word] = from[(first + word) % ONLOOKER_BLOCK_WORDS];
	}
	return ONLOOKER_GO_ON;
}

/* The data of a request for memory, which check_access has found to be in range and in profile. */
static __always_inline int copy_memory(struct onlooker_scratch *s, const struct onlooker_region *region)
{
	__u64 offset_bytes = s->request.offset_bytes;
	__u32 length_bytes = s->request.length_bytes;
	__u32 block = region->first_block + (__u32)(offset_bytes / ONLOOKER_BLOCK_BYTES);
	__u32 slab = region->slab;

	if (length_bytes < ONLOOKER_BLOCK_BYTES)
		return onlooker_copy_words(s, slab, block, offset_bytes / 8 % ONLOOKER_BLOCK_WORDS, length_bytes / 8);
	for (__u32 place = 0; place < ONLOOKER_MAX_READ_BYTES / ONLOOKER_BLOCK_BYTES; place++) {
		if (place * ONLOOKER_BLOCK_BYTES >= length_bytes)
			break;
		if (onlooker_copy_block(s, slab, block + place, place))
			return ONLOOKER_SLAB;
	}
	return ONLOOKER_GO_ON;
}

#endif
