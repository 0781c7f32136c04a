/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Whose reports are taken, and how many: what policy.h says of a frame's addresses, remembered by each processor for a tenth of a second. Reports come in
 * streams, and the three lookups of addresses would take half of the time of one. A change of addresses or sources counts after that time at the
 * latest, one of the lease at once, its end after that time. Time is the last tick's: it is there without reading a clock.
 */
#ifndef ONLOOKER_DTA_PATHS_H
#define ONLOOKER_DTA_PATHS_H

#include "policy.h"

#define DTA_PATHS_LOG2 10
#define DTA_PATH_NS 100000000

struct dta_path {
	struct onlooker_address source;
	struct onlooker_address destination;
	__u32 device;
	__u32 ipv6;
	__u64 until_ns; /* that it is allowed */
	__u64 lease_ns; /* the lease's end, when that was looked up */
	__u64 due_ns;   /* when the next report comes at the sustained rate; whoever has this place next has it from whoever had it before */
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

static __always_inline __u64 lease_end_ns(void)
{
	__u32 zero = 0;
	__u64 *until_ns = bpf_map_lookup_elem(&lease, &zero);

	return until_ns ? *(volatile __u64 *)until_ns : 0;
}

/* Whether a frame's source was found allowed a moment ago, to this host by this device. */
static __always_inline int is_known(const struct dta_path *path, const struct place *place, __u64 tick_ns)
{
	return tick_ns < path->until_ns && is_same(&path->source, &place->source) && is_same(&path->destination, &place->destination) &&
	       path->device == place->device && path->ipv6 == place->ipv6 && path->lease_ns == lease_end_ns();
}

static __always_inline void know(struct dta_path *path, const struct place *place, __u64 tick_ns)
{
	path->source = place->source;
	path->destination = place->destination;
	path->device = place->device;
	path->ipv6 = place->ipv6;
	path->until_ns = tick_ns + DTA_PATH_NS;
	path->lease_ns = lease_end_ns();
}

/* Generic cell rate algorithm, as within_budget of policy.h; nobody else changes a processor's path. */
static __always_inline int is_within_budget(struct dta_path *path, __u64 tick_ns)
{
	__u64 from_ns = path->due_ns > tick_ns ? path->due_ns : tick_ns;

	if (!config.source_interval_ns)
		return 1;
	if (from_ns - tick_ns > config.source_burst_ns)
		return 0;
	path->due_ns = from_ns + config.source_interval_ns;
	return 1;
}

#endif
