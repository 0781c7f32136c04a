/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group cpu: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

/* Where a CPU's variables are; an element of map `cpus`. */
struct onlooker_cpu {
	__u64 runqueue; /* struct rq */
	__u64 cpustat;  /* struct kernel_cpustat */
	__u64 tick;     /* struct tick_sched; 0: idle and iowait are those of cpustat */
};

COLLECT_SIZE(onlooker_cpu, 24);
COLLECT_OFFSET(onlooker_cpu, runqueue, 0);
COLLECT_OFFSET(onlooker_cpu, cpustat, 8);
COLLECT_OFFSET(onlooker_cpu, tick, 16);

#endif
