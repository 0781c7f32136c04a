/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group netstat: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

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

/* Map `facts`. Slot i of a CPU is number items[i] of the room; number 0 is always 0. */
struct onlooker_netstat_facts {
	struct onlooker_space space;
	struct onlooker_mib mibs[COLLECT_MIBS];
	__u16 items[COLLECT_NETSTAT_SLOTS];
	__u16 reserved[2];
};

COLLECT_SIZE(onlooker_mib, 16);
COLLECT_OFFSET(onlooker_mib, first, 0);
COLLECT_OFFSET(onlooker_mib, words, 8);
COLLECT_OFFSET(onlooker_mib, at, 12);
COLLECT_SIZE(onlooker_netstat_facts, 16 + 16 * COLLECT_MIBS + 128);
COLLECT_OFFSET(onlooker_netstat_facts, space, 0);
COLLECT_OFFSET(onlooker_netstat_facts, mibs, 16);
COLLECT_OFFSET(onlooker_netstat_facts, items, 208);

#endif
