/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The responder's maps. The loader writes all but `rate`, `cpu_rate`, `counters` and `scratch`, which the programs write. All are pinned; objects
 * with collectors take `scratch`, `counters` and `collectors_*` over by name (collector.h), operators' own objects all but `counters`, twins and the
 * scheduler's programs `lease`.
 */
#ifndef ONLOOKER_MAPS_H
#define ONLOOKER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "intf.h"

/*
 * Memory: one mmapable array a slab, one element a block. BPF_F_INNER_MAP lets slabs differ in length; sizes instead of types, so that no BTF is
 * compared when a slab is inserted.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, ONLOOKER_MAX_SLABS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
		__uint(max_entries, 1);
		__uint(key_size, sizeof(__u32));
		__uint(value_size, ONLOOKER_BLOCK_BYTES);
	});
} slabs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ONLOOKER_MAX_REGIONS);
	__type(key, __u32);
	__type(value, struct onlooker_region);
} regions SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ONLOOKER_MAX_ADDRESSES);
	__type(key, struct onlooker_address);
	__type(value, __u32);
} own_addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, ONLOOKER_MAX_SOURCES);
	__type(key, struct onlooker_prefix);
	__type(value, __u32);
} sources SEC(".maps");

/* Instant at which a source's next request is due at the sustained rate. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, ONLOOKER_MAX_RATED_SOURCES);
	__type(key, struct onlooker_address);
	__type(value, __u64);
} rate SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} cpu_rate SEC(".maps");

/* CLOCK_BOOTTIME in ns after which the responder is silent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ONLOOKER_EXITS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_scratch);
} scratch SEC(".maps");

/* A program array holds programs of one type, hence two. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ONLOOKER_MAX_COLLECTORS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} collectors_tc SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, ONLOOKER_MAX_COLLECTORS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} collectors_xdp SEC(".maps");

/* Counts one exit; the map is per CPU and softirqs do not nest, so a plain add is enough. */
static __always_inline void count(__u32 exit)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &exit);

	if (counter)
		++*counter;
}

static __always_inline struct onlooker_scratch *scratch_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

#endif
