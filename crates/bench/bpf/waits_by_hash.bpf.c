// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The programs of crates/metrics/src/scheduler with an LRU hash in the place of their table (waiting.h): what that would cost. Only for measuring. */
#include "../../metrics/src/scheduler/kernel.h"
#define ONLOOKER_SCHEDULER_WAITING_H

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u64);
} waiting SEC(".maps");

static __always_inline void waiting_begin(struct task_struct *task, __u64 now_ns, bool preempted)
{
	__u32 pid = task->pid;
	__u64 fresh = now_ns << 1 | preempted, *word = bpf_map_lookup_elem(&waiting, &pid);

	if (!word)
		bpf_map_update_elem(&waiting, &pid, &fresh, BPF_ANY);
	else if (preempted || !*word)
		*word = fresh;
}

static __always_inline bool waiting_end(struct task_struct *task, __u64 now_ns, __u64 *waited_ns, bool *preempted)
{
	__u32 pid = task->pid;
	__u64 *word = bpf_map_lookup_elem(&waiting, &pid), found;

	if (!word || !*word)
		return false;
	found = *word;
	*word = 0;
	*preempted = found & 1;
	*waited_ns = now_ns - (found >> 1);
	return true;
}

#include "../../metrics/src/scheduler/latency.bpf.c"
