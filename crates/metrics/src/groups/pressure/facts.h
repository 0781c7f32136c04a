/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group pressure: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

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

COLLECT_SIZE(onlooker_pressure_cpu, 8);
COLLECT_OFFSET(onlooker_pressure_cpu, group, 0);
COLLECT_SIZE(onlooker_pressure_facts, 16);
COLLECT_OFFSET(onlooker_pressure_facts, group, 0);
COLLECT_OFFSET(onlooker_pressure_facts, states, 8);

#endif
