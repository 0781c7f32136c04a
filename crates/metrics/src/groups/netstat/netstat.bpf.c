// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group netstat: the SNMP counters of one network namespace on each CPU (struct netns_mib: lists of numbers, a list a protocol). Which lists and which of
 * their numbers, the loader says: their indices move between kernels. Two CPUs a block, never a sum.
 */
#include "base.h"
#include "facts.h"
#include "space.h"

#define CPUS_PER_BLOCK (COLLECTOR_SLOTS / COLLECT_NETSTAT_SLOTS)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_netstat_facts);
} facts SEC(".maps");

/* In bulk: a read of a hundred numbers costs little more than a read of one. */
static __always_inline int read_mib(struct onlooker_scratch *s, const struct onlooker_mib *mib, __u64 offset)
{
	__u64 bytes = mib->words * sizeof(__u64), at = mib->at;

	/* Opaque, so that the verifier sees the bounds of the very numbers that are used. */
	asm volatile("" : "+r"(bytes), "+r"(at));
	if (bytes > COLLECT_MIB_WORDS * sizeof(__u64) || at > COLLECT_MIB_ROOM - COLLECT_MIB_WORDS)
		return 0;
	return !bpf_probe_read_kernel(COLLECT_ROOM(s) + at, bytes, (const void *)(mib->first + offset));
}

__noinline int onlooker_collect_mibs(struct onlooker_scratch *s, __u32 cpu, __u32 slot)
{
	__u32 zero = 0;
	struct onlooker_netstat_facts *known = bpf_map_lookup_elem(&facts, &zero);
	__u64 *offset = bpf_map_lookup_elem(&offsets, &cpu);

	if (!s || !known || !offset || slot > COLLECTOR_SLOTS - COLLECT_NETSTAT_SLOTS)
		return 0;
	COLLECT_ROOM(s)[0] = 0;
	for (__u32 mib = 0; mib < COLLECT_MIBS; mib++) {
		if (!known->mibs[mib].words)
			break;
		if (!read_mib(s, &known->mibs[mib], *offset))
			return 0;
	}
	for (__u32 item = 0; item < COLLECT_NETSTAT_SLOTS; item++) {
		__u64 from = known->items[item], to = slot + item;

		asm volatile("" : "+r"(from), "+r"(to));
		if (from < COLLECT_MIB_ROOM && to < COLLECTOR_SLOTS)
			COLLECT_PAYLOAD(s)[to] = COLLECT_ROOM(s)[from];
	}
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	__u32 zero = 0;
	struct onlooker_netstat_facts *known = bpf_map_lookup_elem(&facts, &zero);
	int found = 0;

	if (!s || !known || !space_is_there(&known->space))
		return 0;
	for (__u32 place = 0; place < CPUS_PER_BLOCK; place++)
		found |= onlooker_collect_mibs(s, block * CPUS_PER_BLOCK + place, place * COLLECT_NETSTAT_SLOTS);
	return found;
}

#include "programs.h"
