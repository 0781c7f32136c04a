/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group responder: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

/* CPUs of a block of group responder, 31 slots each. */
#define COLLECT_RESPONDER_CPUS_PER_BLOCK 4

#endif
