/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group schedstat: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

/* Group schedstat; eight CPUs a block. An element of map `schedstat_cpus`. */
struct onlooker_schedstat_cpu {
	__u64 runqueue; /* struct rq */
};

COLLECT_SIZE(onlooker_schedstat_cpu, 8);
COLLECT_OFFSET(onlooker_schedstat_cpu, runqueue, 0);

#endif
