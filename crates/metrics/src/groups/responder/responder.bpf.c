// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Group responder: the responder's own counters, by exit and CPU. Slot of a CPU's exit: 31 * CPU + exit - 1; four CPUs a block. */
#include "base.h"
#include "facts.h"

_Static_assert(ONLOOKER_EXITS - 1 <= COLLECT_PAIR_SLOTS, "the exits of a CPU take more slots than it has");

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	__u32 first = block * COLLECT_RESPONDER_CPUS_PER_BLOCK;
	int found = 0;

	if (!s)
		return 0;
	for (__u32 place = 0; place < COLLECT_RESPONDER_CPUS_PER_BLOCK; place++) {
		for (__u32 exit = ONLOOKER_ANSWERED; exit < ONLOOKER_EXITS; exit++) {
			__u32 key = exit;
			__u64 *counter = bpf_map_lookup_percpu_elem(&counters, &key, first + place);

			if (!counter)
				break;
			COLLECT_PAYLOAD(s)[place * COLLECT_PAIR_SLOTS + exit - 1] = *counter;
			found = 1;
		}
	}
	return found;
}

#include "programs.h"
