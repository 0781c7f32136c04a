/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every group's source begins with. */
#ifndef ONLOOKER_COLLECT_BASE_H
#define ONLOOKER_COLLECT_BASE_H

#include "kernel.h"
#include "collector.h" /* the responder's */
#include "intf.h"

#include "packed.h"

/* Where the words go that a group writes: the beginning of the block, or its place in a packed one. */
#define COLLECT_PAYLOAD(scratch) (COLLECTOR_BLOCK(scratch) + COLLECTOR_PAYLOAD + ((scratch)->request.packed & PACKED_AT))
/* Words behind the answer's block that nobody else uses while a block is computed. */
#define COLLECT_ROOM(scratch) (COLLECTOR_BLOCK(scratch) + 2 * ONLOOKER_BLOCK_WORDS)

/*
 * Structures of 8-byte numbers are copied whole, and taken apart here: what a helper costs is its call rather than the bytes, most of all where the processor
 * needs safe returns (docs/kernel-metrics.md, Cost). The kernel's structure may be longer than what is known of it.
 */
#define BULK_BYTES 512
#define BULK(scratch) ((char *)(COLLECT_ROOM(scratch) + 64))
/* Non-zero where the address is bad. */
#define READ_WHOLE(scratch, type, address) \
	(bpf_core_type_size(type) > BULK_BYTES || bpf_probe_read_kernel(BULK(scratch), bpf_core_type_size(type), (const void *)(address)))
/* A number of the structure read last; an element of an array by `field[n]`. */
#define WHOLE(scratch, type, field) (*(const __u64 *)(BULK(scratch) + bpf_core_field_offset(((type *)0)->field)))

/* Where a CPU's slots begin in a block of eight: two CPUs share COLLECT_PAIR_SLOTS. */
#define COLLECT_SLOT_OF_EIGHT(place) ((place) / 2 * COLLECT_PAIR_SLOTS + (place) % 2 * COLLECT_CPU_SLOTS)

#endif
