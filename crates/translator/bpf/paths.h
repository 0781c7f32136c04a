/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose reports are taken: what policy.h says of a frame's addresses, remembered by each processor for a tenth of a second. Reports come in streams, and the
 * three lookups of addresses would take half of the time of one. What changes counts after that time at the latest.
 */
#ifndef ONLOOKER_DTA_PATHS_H
#define ONLOOKER_DTA_PATHS_H

#include "policy.h"

#define DTA_PATHS_LOG2 8
#define DTA_PATH_NS 100000000

struct dta_path {
	struct onlooker_address source;
	struct onlooker_address destination;
	__u32 device;
	__u32 ipv6;
	__u64 until_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << DTA_PATHS_LOG2);
	__type(key, __u32);
	__type(value, struct dta_path);
} dta_paths SEC(".maps");

/* Where a path has its place; others may have had it since. */
static __always_inline struct dta_path *path_of(const struct place *place)
{
	const __u64 *source = (const __u64 *)place->source.bytes, *destination = (const __u64 *)place->destination.bytes;
	__u64 mixed = (source[0] ^ source[1] ^ destination[1]) * 0x9e3779b97f4a7c15ULL;
	__u32 index = mixed >> (64 - DTA_PATHS_LOG2);

	return bpf_map_lookup_elem(&dta_paths, &index);
}

static __always_inline int is_same(const struct onlooker_address *a, const struct onlooker_address *b)
{
	const __u64 *x = (const __u64 *)a->bytes, *y = (const __u64 *)b->bytes;

	return x[0] == y[0] && x[1] == y[1];
}

/* Whether a frame's source was found allowed a moment ago, to this host by this device. */
static __always_inline int is_known(const struct dta_path *path, const struct place *place, __u64 now_ns)
{
	return path && now_ns < path->until_ns && is_same(&path->source, &place->source) && is_same(&path->destination, &place->destination) &&
	       path->device == place->device && path->ipv6 == place->ipv6;
}

static __always_inline void know(struct dta_path *path, const struct place *place, __u64 now_ns)
{
	if (!path)
		return;
	path->source = place->source;
	path->destination = place->destination;
	path->device = place->device;
	path->ipv6 = place->ipv6;
	path->until_ns = now_ns + DTA_PATH_NS;
}

static __always_inline int is_leased(__u64 now_ns)
{
	__u32 zero = 0;
	__u64 *until_ns = bpf_map_lookup_elem(&lease, &zero);

	return until_ns && now_ns < *(volatile __u64 *)until_ns;
}

#endif
