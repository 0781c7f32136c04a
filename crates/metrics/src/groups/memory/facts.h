/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group memory: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

#define COLLECT_STATS 128
#define COLLECT_ZONE_STATS 32
#define COLLECT_MEMORY_ITEMS 48

/*
 * Group memory; map `facts`. The kernel's statistics are read in bulk as one list of COLLECT_STATS numbers: zone statistics from 0, node statistics from
 * COLLECT_ZONE_STATS on. Item i of the block is the sum of numbers items[i][0] and items[i][1]; number COLLECT_STATS - 1 is always 0.
 */
struct onlooker_memory_facts {
	__u64 zone_stat;
	__u64 node_stat;
	__u64 total_ram;
	__u64 deferred; /* pages that are free but not yet set up; 0 where the kernel has no such count or leaves it out of MemFree */
	__u64 total_reserve_pages;
	__u64 watermark_low_pages; /* without what the kernel boosts them by for a while */
	__u32 zone_stats;
	__u32 node_stats;
	__u8 items[COLLECT_MEMORY_ITEMS][2];
	/* For MemAvailable. */
	__u8 free, active_file, inactive_file, slab_reclaimable, misc_reclaimable, reserved[3];
};

COLLECT_SIZE(onlooker_memory_facts, 160);
COLLECT_OFFSET(onlooker_memory_facts, zone_stat, 0);
COLLECT_OFFSET(onlooker_memory_facts, node_stat, 8);
COLLECT_OFFSET(onlooker_memory_facts, total_ram, 16);
COLLECT_OFFSET(onlooker_memory_facts, deferred, 24);
COLLECT_OFFSET(onlooker_memory_facts, total_reserve_pages, 32);
COLLECT_OFFSET(onlooker_memory_facts, watermark_low_pages, 40);
COLLECT_OFFSET(onlooker_memory_facts, zone_stats, 48);
COLLECT_OFFSET(onlooker_memory_facts, node_stats, 52);
COLLECT_OFFSET(onlooker_memory_facts, items, 56);
COLLECT_OFFSET(onlooker_memory_facts, free, 152);

#endif
