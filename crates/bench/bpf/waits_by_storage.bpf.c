// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The programs of crates/metrics/src/scheduler with task storage in the place of their table (waiting.h): what that would cost. Only for measuring. */
#include "../../metrics/src/scheduler/kernel.h"
#define ONLOOKER_SCHEDULER_WAITING_H

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} waiting SEC(".maps");

static __always_inline void waiting_begin(struct task_struct *task, __u64 now_ns, bool preempted)
{
	__u64 *word = bpf_task_storage_get(&waiting, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (word && (preempted || !*word))
		*word = now_ns << 1 | preempted;
}

static __always_inline bool waiting_end(struct task_struct *task, __u64 now_ns, __u64 *waited_ns, bool *preempted)
{
	__u64 *word = bpf_task_storage_get(&waiting, task, 0, 0), found;

	if (!word || !*word)
		return false;
	found = *word;
	*word = 0;
	*preempted = found & 1;
	*waited_ns = now_ns - (found >> 1);
	return true;
}

#include "../../metrics/src/scheduler/latency.bpf.c"
