/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Histograms of how long tasks wait for a CPU: the contract with src/scheduler. */
#ifndef ONLOOKER_SCHEDULER_INTF_H
#define ONLOOKER_SCHEDULER_INTF_H

#include <linux/types.h>

/*
 * Plain blocks (docs/format/block.md), two for each CPU: waits that began with a preemption, then those that began with a wake-up. Each has one histogram of ns
 * (docs/format/schema.md) in its first slots, whose shape is the largest that fits a block: so an event writes words of one block.
 */
#define SCHEDULER_CPU_BLOCKS 2
#define SCHEDULER_GROUPING_POWER 2
#define SCHEDULER_MAX_POWER 32
#define SCHEDULER_BUCKETS 124
#define SCHEDULER_SUM_SLOT SCHEDULER_BUCKETS
/* In a CPU's first block: tasks that began to run on it and whose wait had begun unseen. */
#define SCHEDULER_UNSEEN_SLOT 125
/* In the first CPU's first block: waits that ended on CPUs without blocks. */
#define SCHEDULER_ELSEWHERE_SLOT 126
#define SCHEDULER_BLOCK_SLOTS 127

/* Where the blocks are in the slab, and for how many CPUs there are some; no CPUs: nothing is measured. */
struct onlooker_scheduler_place {
	__u32 first_block;
	__u32 cpus;
};

_Static_assert(SCHEDULER_BUCKETS == (SCHEDULER_MAX_POWER - SCHEDULER_GROUPING_POWER + 1) << SCHEDULER_GROUPING_POWER, "docs/format/schema.md, Histograms");
_Static_assert(SCHEDULER_ELSEWHERE_SLOT < SCHEDULER_BLOCK_SLOTS, "beyond the block");
_Static_assert(sizeof(struct onlooker_scheduler_place) == 8, "src/scheduler has another size");
_Static_assert(__builtin_offsetof(struct onlooker_scheduler_place, first_block) == 0, "src/scheduler has it elsewhere");
_Static_assert(__builtin_offsetof(struct onlooker_scheduler_place, cpus) == 4, "src/scheduler has it elsewhere");

#endif
