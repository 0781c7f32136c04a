/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group vmstat: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

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

COLLECT_SIZE(onlooker_vmstat_cpu, 8);
COLLECT_OFFSET(onlooker_vmstat_cpu, events, 0);
COLLECT_SIZE(onlooker_vmstat_facts, 40);
COLLECT_OFFSET(onlooker_vmstat_facts, numbers, 0);
COLLECT_OFFSET(onlooker_vmstat_facts, events, 32);

#endif
