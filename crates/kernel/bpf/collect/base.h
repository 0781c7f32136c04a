/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every group's source begins with. */
#ifndef ONLOOKER_COLLECT_BASE_H
#define ONLOOKER_COLLECT_BASE_H

#include "kernel.h"
#include "../collector.h"
#include "intf.h"

#define COLLECT_PAYLOAD(scratch) (COLLECTOR_BLOCK(scratch) + COLLECTOR_PAYLOAD)
/* Words behind the answer's block that nobody else uses while a block is computed. */
#define COLLECT_ROOM(scratch) (COLLECTOR_BLOCK(scratch) + 2 * ONLOOKER_BLOCK_WORDS)

/* Where a CPU's slots begin in a block of eight: two CPUs share COLLECT_PAIR_SLOTS. */
#define COLLECT_SLOT_OF_EIGHT(place) ((place) / 2 * COLLECT_PAIR_SLOTS + (place) % 2 * COLLECT_CPU_SLOTS)

#endif
