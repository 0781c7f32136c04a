/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the collectors and their loader; src/collect/intf.rs has the same on the Rust side. The loader writes all of these before the
 * first READ, from what src/discover found out, and the programs only read them. Sizes and offsets are asserted on both sides.
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
	__u64 watermark_low_pages; /* without what the kernel boosts them by for a while */
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
	ONLOOKER_WAY_VETH = 3, /* per CPU: what it sent, the other end what it received; and what queues count */
};

/* Receive queues of a veth that are looked at; of those with more there is no row. */
#define COLLECT_VETH_QUEUES 8

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
	__u64 entry;  /* of the device in sysfs: entry.h */
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

/* Bytes of a `struct bpf_timer`, behind which stand the facts of a published twin. */
#define COLLECT_TIMER_BYTES 16
/* Blocks that a published twin's timer writes each time it fires, at most. */
#define COLLECT_TURN_BLOCKS 8
/* How often a twin past its responder's lease looks whether that was renewed. */
#define COLLECT_LAPSED_NS 1000000000

/* A published twin; map `publication`. The programs write `next`, `runs` and `spent_ns`. */
struct onlooker_publication_facts {
	__u64 interval_ns; /* between two turns, which begin at multiples of it */
	__u64 identity;    /* of block 0 */
	__u32 first_block; /* in the slab */
	__u32 blocks;
	__u32 next;
	__u32 turn_blocks; /* in a turn */
	__u64 runs;        /* blocks written */
	__u64 spent_ns;    /* on them */
};

/* Group stat; four CPUs a block, COLLECT_PAIR_SLOTS each. An element of map `stat_cpus`; 0: there is none. */
#define COLLECT_STAT_CPUS_PER_BLOCK 4

struct onlooker_stat_cpu {
	__u64 kstat;          /* struct kernel_stat */
	__u64 irq_stat;       /* irq_cpustat_t */
	__u64 pending;        /* __softirq_pending */
	__u64 hot;            /* struct pcpu_hot */
	__u64 runqueue;       /* struct rq */
	__u64 mce_exceptions; /* mce_exception_count */
	__u64 mce_polls;      /* mce_poll_count */
	__u64 files;          /* part of nr_files, 4 bytes */
	__u64 processes;      /* process_counts */
};

/* Map `stat_facts`. */
struct onlooker_stat_facts {
	__u64 total_forks; /* 0: not found; so with the others */
	__u64 threads;     /* nr_threads, 4 bytes */
	__u64 most_files;  /* files_stat, max_files */
	__u64 files;       /* count of nr_files */
};

/* Group schedstat; eight CPUs a block. An element of map `schedstat_cpus`. */
struct onlooker_schedstat_cpu {
	__u64 runqueue; /* struct rq */
};

/* Group vmstat; eight CPUs a block. An element of map `vmstat_cpus`. */
struct onlooker_vmstat_cpu {
	__u64 events; /* struct vm_event_state */
};

#define COLLECT_VMSTAT_EVENTS 8

/* Map `vmstat_facts`: enumerators of the events in the order of their slots. */
struct onlooker_vmstat_facts {
	__u32 numbers[COLLECT_VMSTAT_EVENTS];
	__u32 events; /* of `numbers` */
	__u32 reserved;
};

/* Group pressure; the totals are block 0, eight CPUs a block follow. An element of map `pressure_cpus`. */
struct onlooker_pressure_cpu {
	__u64 group; /* struct psi_group_cpu */
};

#define COLLECT_PRESSURE_STATES 8

/* Map `pressure_facts`: numbers of enum psi_states in the order of the slots; COLLECT_NONE: the kernel has not got it. */
struct onlooker_pressure_facts {
	__u64 group; /* struct psi_group of the system */
	__u8 states[COLLECT_PRESSURE_STATES];
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

/* Group netstat: two CPUs a block, 62 slots each; at most so many lists a CPU, and so many numbers in one of them and in all. */
#define COLLECT_NETSTAT_SLOTS 62
#define COLLECT_MIBS 12
#define COLLECT_MIB_WORDS 160
#define COLLECT_MIB_ROOM 480

/* A part of one of the namespace's SNMP lists. */
struct onlooker_mib {
	__u64 first; /* address of its first number, less the CPU's offset */
	__u32 words;
	__u32 at; /* where they go in the program's room */
};

/* A network namespace, and by what it is told from a later one at the same address. */
struct onlooker_space {
	__u64 net;
	__u64 cookie;
};

/* Map `facts`. Slot i of a CPU is number items[i] of the room; number 0 is always 0. */
struct onlooker_netstat_facts {
	struct onlooker_space space;
	struct onlooker_mib mibs[COLLECT_MIBS];
	__u16 items[COLLECT_NETSTAT_SLOTS];
	__u16 reserved[2];
};

/* Group sockstat: numbers of the whole namespace or machine, in block 0, and of each CPU, in the others. */
#define COLLECT_SOCKSTAT_WHOLES 12
#define COLLECT_SOCKSTAT_PARTS 12

/* A number: its address (of a CPU's: less the CPU's offset; 0: there is none), its width in bytes, and what is to be added. */
struct onlooker_number {
	__u64 address;
	__u64 beside; /* address of 8 bytes that are counted with CPU 0; 0: none */
	__u32 width;
	__s32 add;
};

struct onlooker_sockstat_facts {
	struct onlooker_space space;
	struct onlooker_number wholes[COLLECT_SOCKSTAT_WHOLES];
	struct onlooker_number parts[COLLECT_SOCKSTAT_PARTS];
};

/* Group disk. Block devices looked at in one READ at most, and how long a look is put off for one that is not ready. */
#define COLLECT_SCAN_DISKS 16
#define COLLECT_SCAN_PAUSE_NS 1000000000
#define COLLECT_DISK_CPUS 6
/* Words of a disk's name as it stands in its row. */
#define COLLECT_DISK_NAME_WORDS 4

/* The list of all block devices; map `disks`. The loader writes `list` and `capacity`, the programs the rest. */
struct onlooker_disks {
	__u64 list;        /* list_head of the inodes */
	__u64 first;       /* its first when the scan began: new ones come in front; 0: a scan is due */
	__u64 first_entry; /* of that one in sysfs: the next first may be at the same address */
	__u64 cursor;      /* where the scan goes on; 0: it is complete */
	__u64 scanned_ns;  /* when it began */
	__u32 capacity;    /* rows */
	__u32 used;        /* rows that ever had a disk */
	__u32 busy;        /* somebody changes rows: others only read them */
	__u32 free;        /* rows on the list of free ones */
	__u32 waiting;     /* the scan met one that has no row yet */
	__u32 reserved;
};

/* A disk; map `rows`. */
struct onlooker_disk {
	__u64 device; /* struct block_device; 0: free */
	__u64 entry;  /* of the device in sysfs: entry.h */
	__u64 name[COLLECT_DISK_NAME_WORDS];
	__u32 number; /* dev_t */
	__u32 generation;
	__u32 sequence; /* odd: being changed */
	__u32 reserved;
};

#define COLLECT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size in src/collect/intf.rs")
#define COLLECT_OFFSET(type, field, at) \
	_Static_assert(__builtin_offsetof(struct type, field) == (at), #type "." #field " is elsewhere in src/collect/intf.rs")

COLLECT_SIZE(onlooker_cpu, 24);
COLLECT_OFFSET(onlooker_cpu, runqueue, 0);
COLLECT_OFFSET(onlooker_cpu, cpustat, 8);
COLLECT_OFFSET(onlooker_cpu, tick, 16);
COLLECT_SIZE(onlooker_load_facts, 8);
COLLECT_OFFSET(onlooker_load_facts, avenrun, 0);
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
COLLECT_SIZE(onlooker_namespace, 40);
COLLECT_OFFSET(onlooker_namespace, net, 0);
COLLECT_OFFSET(onlooker_namespace, capacity, 8);
COLLECT_OFFSET(onlooker_namespace, used, 12);
COLLECT_OFFSET(onlooker_namespace, sequence, 20);
COLLECT_OFFSET(onlooker_namespace, cursor, 24);
COLLECT_OFFSET(onlooker_namespace, free, 32);
COLLECT_SIZE(onlooker_row, 56);
COLLECT_SIZE(onlooker_table, 24);
COLLECT_OFFSET(onlooker_table, first_row, 0);
COLLECT_OFFSET(onlooker_table, rows, 4);
COLLECT_OFFSET(onlooker_table, row_words, 8);
COLLECT_OFFSET(onlooker_table, width, 12);
COLLECT_OFFSET(onlooker_table, first_cpu, 16);
COLLECT_OFFSET(onlooker_table, cpus, 20);
COLLECT_SIZE(onlooker_publication_facts, 48);
COLLECT_OFFSET(onlooker_publication_facts, interval_ns, 0);
COLLECT_OFFSET(onlooker_publication_facts, identity, 8);
COLLECT_OFFSET(onlooker_publication_facts, first_block, 16);
COLLECT_OFFSET(onlooker_publication_facts, blocks, 20);
COLLECT_OFFSET(onlooker_publication_facts, next, 24);
COLLECT_OFFSET(onlooker_publication_facts, turn_blocks, 28);
COLLECT_OFFSET(onlooker_publication_facts, runs, 32);
COLLECT_OFFSET(onlooker_publication_facts, spent_ns, 40);
COLLECT_SIZE(onlooker_stat_cpu, 72);
COLLECT_OFFSET(onlooker_stat_cpu, kstat, 0);
COLLECT_OFFSET(onlooker_stat_cpu, irq_stat, 8);
COLLECT_OFFSET(onlooker_stat_cpu, pending, 16);
COLLECT_OFFSET(onlooker_stat_cpu, hot, 24);
COLLECT_OFFSET(onlooker_stat_cpu, runqueue, 32);
COLLECT_OFFSET(onlooker_stat_cpu, mce_exceptions, 40);
COLLECT_OFFSET(onlooker_stat_cpu, mce_polls, 48);
COLLECT_OFFSET(onlooker_stat_cpu, files, 56);
COLLECT_OFFSET(onlooker_stat_cpu, processes, 64);
COLLECT_SIZE(onlooker_stat_facts, 32);
COLLECT_OFFSET(onlooker_stat_facts, total_forks, 0);
COLLECT_OFFSET(onlooker_stat_facts, threads, 8);
COLLECT_OFFSET(onlooker_stat_facts, most_files, 16);
COLLECT_OFFSET(onlooker_stat_facts, files, 24);
COLLECT_SIZE(onlooker_schedstat_cpu, 8);
COLLECT_OFFSET(onlooker_schedstat_cpu, runqueue, 0);
COLLECT_SIZE(onlooker_vmstat_cpu, 8);
COLLECT_OFFSET(onlooker_vmstat_cpu, events, 0);
COLLECT_SIZE(onlooker_vmstat_facts, 40);
COLLECT_OFFSET(onlooker_vmstat_facts, numbers, 0);
COLLECT_OFFSET(onlooker_vmstat_facts, events, 32);
COLLECT_SIZE(onlooker_pressure_cpu, 8);
COLLECT_OFFSET(onlooker_pressure_cpu, group, 0);
COLLECT_SIZE(onlooker_pressure_facts, 16);
COLLECT_OFFSET(onlooker_pressure_facts, group, 0);
COLLECT_OFFSET(onlooker_pressure_facts, states, 8);
COLLECT_SIZE(onlooker_exchange, 56 + COLLECT_READ_BYTES);
COLLECT_OFFSET(onlooker_exchange, address, 0);
COLLECT_OFFSET(onlooker_exchange, bytes, 8);
COLLECT_OFFSET(onlooker_exchange, cpu, 12);
COLLECT_OFFSET(onlooker_exchange, runqueue, 16);
COLLECT_OFFSET(onlooker_exchange, percpu_offset, 24);
COLLECT_OFFSET(onlooker_exchange, net, 32);
COLLECT_OFFSET(onlooker_exchange, jiffies, 40);
COLLECT_OFFSET(onlooker_exchange, now_ns, 48);
COLLECT_OFFSET(onlooker_exchange, data, 56);
COLLECT_SIZE(onlooker_mib, 16);
COLLECT_OFFSET(onlooker_mib, first, 0);
COLLECT_OFFSET(onlooker_mib, words, 8);
COLLECT_OFFSET(onlooker_mib, at, 12);
COLLECT_SIZE(onlooker_space, 16);
COLLECT_OFFSET(onlooker_space, net, 0);
COLLECT_OFFSET(onlooker_space, cookie, 8);
COLLECT_SIZE(onlooker_netstat_facts, 16 + 16 * COLLECT_MIBS + 128);
COLLECT_OFFSET(onlooker_netstat_facts, space, 0);
COLLECT_OFFSET(onlooker_netstat_facts, mibs, 16);
COLLECT_OFFSET(onlooker_netstat_facts, items, 208);
COLLECT_SIZE(onlooker_number, 24);
COLLECT_OFFSET(onlooker_number, address, 0);
COLLECT_OFFSET(onlooker_number, beside, 8);
COLLECT_OFFSET(onlooker_number, width, 16);
COLLECT_OFFSET(onlooker_number, add, 20);
COLLECT_SIZE(onlooker_sockstat_facts, 16 + 24 * (COLLECT_SOCKSTAT_WHOLES + COLLECT_SOCKSTAT_PARTS));
COLLECT_OFFSET(onlooker_sockstat_facts, space, 0);
COLLECT_OFFSET(onlooker_sockstat_facts, wholes, 16);
COLLECT_OFFSET(onlooker_sockstat_facts, parts, 304);
_Static_assert(COLLECT_SOCKSTAT_PARTS <= COLLECT_CPU_SLOTS, "the numbers of a CPU take more slots than it has");
COLLECT_SIZE(onlooker_disks, 64);
COLLECT_OFFSET(onlooker_disks, list, 0);
COLLECT_OFFSET(onlooker_disks, capacity, 40);
COLLECT_SIZE(onlooker_disk, 64);
_Static_assert(4 * COLLECT_PAIR_SLOTS == 124 && 2 * COLLECT_CPU_SLOTS <= COLLECT_PAIR_SLOTS, "pairs of CPUs fill blocks exactly");

#endif
