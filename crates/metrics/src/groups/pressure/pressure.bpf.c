// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group pressure: stalls as kernel/sched/psi.c keeps them. Block 0 has the system's totals (ns), which the kernel adds up from its CPUs every 2 s (PSI_FREQ)
 * and whenever somebody reads /proc/pressure. The blocks behind it have for each CPU whether a stall is in progress at this instant, eight CPUs a block.
 *
 * The totals cannot be brought up to this instant from here: a stall that is in progress began at a time of the scheduler's clock, which programs cannot
 * read; and the kernel weighs the CPUs by their work since the last sum, so that a sum that is not kept can fall.
 */
#include "base.h"
#include "facts.h"

/* Of struct psi_group, total: one aggregator's. */
#define TOTALS 7

_Static_assert(COLLECT_PRESSURE_STATES <= COLLECT_CPU_SLOTS, "the states of a CPU take more slots than it has");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_pressure_cpu);
} pressure_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_pressure_facts);
} pressure_facts SEC(".maps");

static __always_inline struct onlooker_pressure_facts *facts_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&pressure_facts, &zero);
}

static __always_inline int collect_totals(struct onlooker_scratch *s)
{
	struct onlooker_pressure_facts *known = facts_get();
	__u64 totals[TOTALS] = {};

	/* One longer than that of a kernel that does not account interrupts: the last then belongs to the next aggregator, and no state has its number. */
	if (!known || READ_FIELD(&totals, struct psi_group, known->group, total))
		return 0;
	for (__u32 state = 0; state < COLLECT_PRESSURE_STATES; state++) {
		__u32 number = known->states[state];

		if (number < TOTALS)
			COLLECT_PAYLOAD(s)[state] = totals[number];
	}
	return 1;
}

__noinline int onlooker_collect_cpu(struct onlooker_scratch *s, __u32 number, __u32 slot)
{
	struct onlooker_pressure_cpu *cpu = bpf_map_lookup_elem(&pressure_cpus, &number);
	struct onlooker_pressure_facts *known = facts_get();
	__u32 mask = 0;
	__u64 *slots;

	if (!s || !cpu || !known || slot > COLLECTOR_SLOTS - COLLECT_CPU_SLOTS || READ_FIELD(&mask, struct psi_group_cpu, cpu->group, state_mask))
		return 0;
	slots = COLLECT_PAYLOAD(s) + slot;
	for (__u32 state = 0; state < COLLECT_PRESSURE_STATES; state++)
		slots[state] = known->states[state] < TOTALS ? mask >> (known->states[state] & 31) & 1 : 0;
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	int found = 0;

	if (!s)
		return 0;
	if (!block)
		return collect_totals(s);
	for (__u32 place = 0; place < COLLECT_CPUS_PER_BLOCK; place++) {
		if (!onlooker_collect_cpu(s, (block - 1) * COLLECT_CPUS_PER_BLOCK + place, COLLECT_SLOT_OF_EIGHT(place)))
			break;
		found = 1;
	}
	return found;
}

#include "programs.h"
