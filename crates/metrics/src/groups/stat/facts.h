/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group stat: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

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

#endif
