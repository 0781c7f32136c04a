/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group sockstat: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

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

#endif
