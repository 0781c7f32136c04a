// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Group vmstat: events of the memory that each CPU has counted, in the order of the facts. Eight CPUs a block. */
#include "base.h"
#include "facts.h"

_Static_assert(COLLECT_VMSTAT_EVENTS <= COLLECT_CPU_SLOTS, "the events of a CPU take more slots than it has");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_vmstat_cpu);
} vmstat_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_vmstat_facts);
} vmstat_facts SEC(".maps");

__noinline int onlooker_collect_cpu(struct onlooker_scratch *s, __u32 number, __u32 slot)
{
	__u32 zero = 0;
	struct onlooker_vmstat_cpu *cpu = bpf_map_lookup_elem(&vmstat_cpus, &number);
	struct onlooker_vmstat_facts *known = bpf_map_lookup_elem(&vmstat_facts, &zero);
	__u64 *slots;

	if (!s || !cpu || !known || slot > COLLECTOR_SLOTS - COLLECT_CPU_SLOTS)
		return 0;
	slots = COLLECT_PAYLOAD(s) + slot;
	for (__u32 event = 0; event < COLLECT_VMSTAT_EVENTS; event++) {
		if (event >= known->events)
			break;
		if (bpf_probe_read_kernel(&slots[event], sizeof(__u64), (const void *)(cpu->events + sizeof(__u64) * known->numbers[event])))
			return 0;
	}
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	int found = 0;

	if (!s)
		return 0;
	for (__u32 place = 0; place < COLLECT_CPUS_PER_BLOCK; place++) {
		if (!onlooker_collect_cpu(s, block * COLLECT_CPUS_PER_BLOCK + place, COLLECT_SLOT_OF_EIGHT(place)))
			break;
		found = 1;
	}
	return found;
}

#include "programs.h"
