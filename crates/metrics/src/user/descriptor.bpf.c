// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Collectors that are tables: which numbers of the kernel's memory go into which slots. What cannot be read is no accident (bpf_probe_read_kernel says so, and
 * nothing faults), but the block's values belong together: it is refused as a whole.
 */
#include "space.h"
#include "intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_user_block);
} blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_user_read);
} reads SEC(".maps");

/* A number is taken as eight bytes and cut to its own: so many stand behind what was read. */
_Static_assert(2 * ONLOOKER_BLOCK_WORDS + USER_READ_BYTES / 8 + 1 <= ONLOOKER_MAX_READ_WORDS, "the scratch has no room for a read");

/* A function of its own for the verifier, which so looks at it once and not once for each read of a block. */
__noinline int onlooker_user_read(struct onlooker_scratch *s, __u32 index)
{
	struct onlooker_user_read *read = bpf_map_lookup_elem(&reads, &index);
	__u64 address, bytes;
	__u8 *room;

	if (!s || !read)
		return 0;
	room = (__u8 *)COLLECT_ROOM(s);
	address = read->base;
#pragma unroll
	for (int hop = 0; hop < USER_HOPS; hop++) {
		if (hop >= read->hops)
			break;
		if (bpf_probe_read_kernel(&address, sizeof(address), (const void *)address))
			return 0;
		address += read->offsets[hop];
	}
	bytes = read->bytes;
	if (bytes > USER_READ_BYTES || bpf_probe_read_kernel(room, bytes, (const void *)address))
		return 0;
	for (__u32 element = 0; element < COLLECTOR_SLOTS; element++) {
		__u64 at = (__u64)element * read->stride, slot = read->slot + element, value;

		if (element >= read->count)
			break;
		/* Opaque to the compiler, which would otherwise use copies that the verifier does not know to be compared. */
		asm volatile("" : "+r"(at), "+r"(slot));
		if (at > USER_READ_BYTES || slot >= COLLECTOR_SLOTS)
			return 0;
		value = *(__u64 *)(room + at) << (read->shift & 63);
		if (read->is_signed)
			value = (__s64)value >> (read->shift & 63);
		else
			value >>= read->shift & 63;
		COLLECT_PAYLOAD(s)[slot] = value;
	}
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	struct onlooker_user_block *facts = bpf_map_lookup_elem(&blocks, &block);

	if (!s || !facts)
		return 0;
	if (facts->space.net && !space_is_there(&facts->space))
		return 0;
	for (__u32 read = 0; read < COLLECTOR_SLOTS; read++) {
		if (read >= facts->reads)
			break;
		if (!onlooker_user_read(s, facts->first + read))
			return 0;
	}
	return 1;
}

#include "programs.h"
