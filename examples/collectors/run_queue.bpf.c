// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What a table cannot express: a value made of many numbers, here the longest run queue of all CPUs. run_queue.toml
 * names the slots.
 */
#include "collector.h"
#include <bpf/bpf_core_read.h>

/* Only the fields that are read. The loader finds their offsets in the running kernel (CO-RE). */
struct rq {
	unsigned int nr_running;
} __attribute__((preserve_access_index));

#define MOST_CPUS 64

ONLOOKER_ADDRESSES(MOST_CPUS);

static __always_inline int fill(__u64 *slots, __u32 block)
{
	__u64 longest = 0, idle = 0, busy = 0, overloaded = 0;

	(void)block;
	/* Backward jumps are refused, so the compiler unrolls the loop. */
#pragma unroll
	for (__u32 cpu = 0; cpu < MOST_CPUS; cpu++) {
		struct rq *runqueue = (struct rq *)onlooker_address(cpu);
		unsigned int running = 0;

		if (!runqueue)
			break;
		if (bpf_core_read(&running, sizeof(running), &runqueue->nr_running))
			return 0;
		idle += running == 0;
		busy += running == 1;
		overloaded += running > 1;
		if (running > longest)
			longest = running;
	}
	slots[0] = longest;
	slots[1] = idle;
	slots[2] = busy;
	slots[3] = overloaded;
	return 1;
}

ONLOOKER_COLLECTOR(fill);
