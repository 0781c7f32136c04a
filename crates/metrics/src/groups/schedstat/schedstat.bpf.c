// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group schedstat: what /proc/schedstat has of each CPU's tasks. Slots of a CPU: time that they ran and time that they waited to (ns), how often one was
 * let run. Eight CPUs a block.
 */
#include "base.h"
#include "facts.h"

#define RUNNING 0
#define WAITING 1
#define TIMESLICES 2

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_schedstat_cpu);
} schedstat_cpus SEC(".maps");

__noinline int onlooker_collect_cpu(struct onlooker_scratch *s, __u32 number, __u32 slot)
{
	struct onlooker_schedstat_cpu *cpu = bpf_map_lookup_elem(&schedstat_cpus, &number);
	__u64 *slots;

	if (!s || !cpu || slot > COLLECTOR_SLOTS - COLLECT_CPU_SLOTS || !bpf_core_field_exists(((struct rq *)0)->rq_sched_info))
		return 0;
	slots = COLLECT_PAYLOAD(s) + slot;
	return !READ_FIELD(&slots[RUNNING], struct rq, cpu->runqueue, rq_cpu_time) &&
	       !READ_FIELD(&slots[WAITING], struct rq, cpu->runqueue, rq_sched_info.run_delay) &&
	       !READ_FIELD(&slots[TIMESLICES], struct rq, cpu->runqueue, rq_sched_info.pcount);
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
