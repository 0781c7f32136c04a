/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the kernel adds to a per-CPU pointer to come to a CPU's copy. */
#ifndef ONLOOKER_COLLECT_PERCPU_H
#define ONLOOKER_COLLECT_PERCPU_H

#include "base.h"

/* __per_cpu_offset */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} offsets SEC(".maps");

#endif
