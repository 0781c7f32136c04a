/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the collectors and their loader; src/collect/intf.rs has the same on the Rust side. The loader writes all of these before the
 * first READ, from what src/discover found out, and the programs only read them. Sizes are asserted on both sides.
 */
#ifndef ONLOOKER_COLLECT_INTF_H
#define ONLOOKER_COLLECT_INTF_H

#include <linux/types.h>

/*
 * CPUs of a block of group cpu. Two CPUs share 31 slots, 15 each: so the elements of even and of odd CPUs stand 31 slots apart over all blocks (124 slots
 * each), and the schema needs two arrays a value however many CPUs there are.
 */
#define COLLECT_CPUS_PER_BLOCK 8
#define COLLECT_PAIR_SLOTS 31
#define COLLECT_CPU_SLOTS 15
/* CPUs of a block of group responder, 31 slots each. */
#define COLLECT_RESPONDER_CPUS_PER_BLOCK 4
/* A number that no kernel statistic has. */
#define COLLECT_NONE 0xff

/* Where a CPU's variables are; an element of map `cpus`. */
struct onlooker_cpu {
	__u64 runqueue; /* struct rq */
	__u64 cpustat;  /* struct kernel_cpustat */
	__u64 tick;     /* struct tick_sched; 0: idle and iowait are those of cpustat */
};

/* Group load; map `facts`. */
struct onlooker_load_facts {
	__u64 avenrun;
};

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
	__u64 watermark_low_pages;
	__u32 zone_stats;
	__u32 node_stats;
	__u8 items[COLLECT_MEMORY_ITEMS][2];
	/* For MemAvailable. */
	__u8 free, active_file, inactive_file, slab_reclaimable, misc_reclaimable, reserved[3];
};

/* How a device counts: a value of map `ways`, whose keys are the addresses of ndo_get_stats64 functions. */
enum onlooker_way {
	ONLOOKER_WAY_LSTATS = 1,         /* per CPU: packets and bytes, the same for both directions */
	ONLOOKER_WAY_TSTATS = 2,         /* per CPU: packets and bytes of both directions */
	ONLOOKER_WAY_TSTATS_IF_TYPED = 3, /* as TSTATS, if the device says that it keeps them */
};

/* Group network. Buckets of a namespace's devices by number (NETDEV_HASHENTRIES), and the devices looked at in one READ at most. */
#define COLLECT_BUCKETS 256
#define COLLECT_SCAN_DEVICES 16
#define COLLECT_CHAIN_DEVICES 16
#define COLLECT_ROWS_PER_BLOCK 16
#define COLLECT_DEVICE_CPUS 8

/* One for the namespace; map `namespace`. The loader writes `net` and `capacity`, the programs the rest. */
struct onlooker_namespace {
	__u64 net;
	__u32 capacity; /* rows */
	__u32 used;     /* rows that ever had a device */
	__u32 busy;     /* somebody changes rows: others only read them */
	__u32 sequence; /* dev_base_seq of the scan */
	__u32 cursor;   /* bucket where the scan goes on */
	__u32 uncovered; /* devices without a row, in the scan */
	__u32 free;      /* rows on the list of free ones */
	__u32 reserved;
};

/* A device; map `rows`. */
struct onlooker_row {
	__u64 device; /* struct net_device; 0: free */
	__u64 stats;
	__u64 name[2];
	__u32 ifindex;
	__u32 generation;
	__u32 way;
	__u32 sequence; /* odd: being changed */
};

/* What a block of the region has; map `tables`. Value slot of metric m and the table's CPU c: m * width + c. */
struct onlooker_table {
	__u32 first_row;
	__u32 rows;
	__u32 row_words;
	__u32 width;
	__u32 first_cpu;
	__u32 cpus;
};

/* A published twin; map `publication`. The programs write `next` and `runs`. */
struct onlooker_publication_facts {
	__u64 interval_ns; /* between two blocks */
	__u64 identity;    /* of block 0 */
	__u32 first_block; /* in the slab */
	__u32 blocks;
	__u32 next;
	__u32 reserved;
	__u64 runs;
};

/* What discovery asks and is answered; map `exchange`. */
#define COLLECT_READ_BYTES 4096

struct onlooker_exchange {
	__u64 address;
	__u32 bytes;
	__u32 cpu;
	__u64 runqueue;      /* of `cpu` */
	__u64 percpu_offset; /* __per_cpu_offset[cpu] */
	__u64 net;           /* network namespace of the caller */
	__u64 jiffies;
	__u64 now_ns;
	__u8 data[COLLECT_READ_BYTES];
};

#define COLLECT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size in src/collect/intf.rs")

COLLECT_SIZE(onlooker_cpu, 24);
COLLECT_SIZE(onlooker_load_facts, 8);
COLLECT_SIZE(onlooker_memory_facts, 160);
COLLECT_SIZE(onlooker_namespace, 40);
COLLECT_SIZE(onlooker_row, 48);
COLLECT_SIZE(onlooker_table, 24);
COLLECT_SIZE(onlooker_publication_facts, 40);
COLLECT_SIZE(onlooker_exchange, 56 + COLLECT_READ_BYTES);
_Static_assert(4 * COLLECT_PAIR_SLOTS == 124 && 2 * COLLECT_CPU_SLOTS <= COLLECT_PAIR_SLOTS, "pairs of CPUs fill blocks exactly");

#endif
