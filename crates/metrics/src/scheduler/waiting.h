/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Since when each task waits: a table of one word a task, found by the low bits of its pid. Two tasks that wait at once and whose pids are equal in these bits share
 * a word: the later one has it, and the wait of the other ends unseen. Nothing is allocated and no lock taken, so that it can be used under a run queue's lock on every kernel:
 * task storage allocates there, which before Linux 6.4 may wake kswapd and wait for that very lock. bench/scheduler-latency measures it beside task storage and a hash.
 *
 *   bits 63-7  CLOCK_MONOTONIC, ns, modulo 2^57 (four years)
 *   bits 6-1   the pid's high bits (PID_MAX_LIMIT is 2^22: include/linux/threads.h)
 *   bit 0      the wait began with a preemption
 *
 * 0: nobody waits. A word is written when a wait begins, and again when it ends; both under the lock of the task's run queue.
 */
#ifndef ONLOOKER_SCHEDULER_WAITING_H
#define ONLOOKER_SCHEDULER_WAITING_H

#include "kernel.h"

#define WAITING_BITS 16
#define WAITING_ENTRIES (1 << WAITING_BITS)
#define WAITING_TAG_SHIFT 1
#define WAITING_TAG_MASK (0x3full << WAITING_TAG_SHIFT)
#define WAITING_TIME_SHIFT 7
#define WAITING_PREEMPTED 1ull

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITING_ENTRIES);
	__type(key, __u32);
	__type(value, __u64);
} waiting SEC(".maps");

/* Neighbours, often threads of one program on several CPUs, have cache lines of their own: eight words apart. */
static __always_inline __u64 *waiting_word(__u32 pid)
{
	__u32 low = pid & (WAITING_ENTRIES - 1);
	__u32 index = (low << 3 | low >> (WAITING_BITS - 3)) & (WAITING_ENTRIES - 1);

	return bpf_map_lookup_elem(&waiting, &index);
}

static __always_inline __u64 waiting_tag(__u32 pid)
{
	return (__u64)(pid >> WAITING_BITS) << WAITING_TAG_SHIFT & WAITING_TAG_MASK;
}

/* A task waits from now on. One that waits already goes on doing so, unless it has run since: `preempted`. */
static __always_inline void waiting_begin(struct task_struct *task, __u64 now_ns, bool preempted)
{
	__u64 tag = waiting_tag(task->pid), *word = waiting_word(task->pid);

	if (!word || (!preempted && *word && (*word & WAITING_TAG_MASK) == tag))
		return;
	*word = now_ns << WAITING_TIME_SHIFT | tag | (preempted ? WAITING_PREEMPTED : 0);
}

/* It runs: whether it is known since when it had waited, how long that was, and how it had begun. */
static __always_inline bool waiting_end(struct task_struct *task, __u64 now_ns, __u64 *waited_ns, bool *preempted)
{
	__u64 *word = waiting_word(task->pid), found;

	if (!word)
		return false;
	found = *word;
	if (!found || (found & WAITING_TAG_MASK) != waiting_tag(task->pid))
		return false;
	*word = 0;
	*preempted = found & WAITING_PREEMPTED;
	*waited_ns = ((now_ns << WAITING_TIME_SHIFT) - (found & ~((1ull << WAITING_TIME_SHIFT) - 1))) >> WAITING_TIME_SHIFT;
	/* The clock may step back by little between CPUs (ktime_get_mono_fast_ns in kernel/time/timekeeping.c). */
	if (*waited_ns >> (63 - WAITING_TIME_SHIFT))
		*waited_ns = 0;
	return true;
}

#endif
