/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group load: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

/* Group load; map `facts`. */
struct onlooker_load_facts {
	__u64 avenrun;
};

COLLECT_SIZE(onlooker_load_facts, 8);
COLLECT_OFFSET(onlooker_load_facts, avenrun, 0);

#endif
