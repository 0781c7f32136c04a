// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What really happens on one CPU, for measurements only: at each switch and wake-up the length of its run queue, without tasks of the measurement's own,
 * and whether it idles from now on. Event-driven, so it costs every task there a microsecond or so: nothing for production.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* kernel/sched/sched.h, include/linux/sched.h, as far as they are read here. */
struct rq {
	unsigned int nr_running;
	int cpu;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct {
	int pid;
	int on_rq;
	struct sched_entity se;
};

#pragma clang attribute pop

#define OWN_TASKS 2
/* Events of a chunk, which user space reads in one call; src/schemes/truth.rs has the same numbers. */
#define CHUNK_EVENTS 4096
#define CHUNKS 128

struct event {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u32 running;
	__u32 idle;
};

struct chunk {
	struct event events[CHUNK_EVENTS];
};

struct state {
	__u64 next;     /* number of the next event */
	__u64 runqueue; /* of the CPU, as soon as known */
	__u64 own[OWN_TASKS];
	__u32 own_pids[OWN_TASKS];
	__u32 cpu;
	__u32 idle;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CHUNKS);
	__type(key, __u32);
	__type(value, struct chunk);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} state SEC(".maps");

static __always_inline struct state *state_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

static __always_inline void note(struct state *s)
{
	__u32 running = 0, chunk_number, own = 0;
	struct chunk *chunk;
	struct event *event;
	__u64 number;

	if (bpf_probe_read_kernel(&running, sizeof(running), (void *)s->runqueue + bpf_core_field_offset(((struct rq *)0)->nr_running)))
		return;
#pragma unroll
	for (int task = 0; task < OWN_TASKS; task++) {
		int queued = 0;

		if (s->own[task])
			bpf_probe_read_kernel(&queued, sizeof(queued), (void *)s->own[task] + bpf_core_field_offset(((struct task_struct *)0)->on_rq));
		own += queued == 1;
	}
	number = __sync_fetch_and_add(&s->next, 1);
	chunk_number = number / CHUNK_EVENTS % CHUNKS;
	chunk = bpf_map_lookup_elem(&events, &chunk_number);
	if (!chunk)
		return;
	event = &chunk->events[number % CHUNK_EVENTS];
	event->time_ns = bpf_ktime_get_ns();
	event->running = running > own ? running - own : 0;
	event->idle = s->idle;
}

static __always_inline void remember_own(struct state *s, struct task_struct *task)
{
	__u32 pid = BPF_CORE_READ(task, pid);

#pragma unroll
	for (int index = 0; index < OWN_TASKS; index++)
		if (pid && s->own_pids[index] == pid)
			s->own[index] = (__u64)task;
}

/* The run queue of the task, if it is that of the CPU. */
static __always_inline struct rq *runqueue_of(struct state *s, struct task_struct *task)
{
	struct rq *runqueue = BPF_CORE_READ(task, se.cfs_rq, rq);

	return runqueue && BPF_CORE_READ(runqueue, cpu) == (int)s->cpu ? runqueue : 0;
}

static __always_inline int woken(struct task_struct *task)
{
	struct state *s = state_get();
	struct rq *runqueue = s ? runqueue_of(s, task) : 0;

	if (!runqueue)
		return 0;
	s->runqueue = (__u64)runqueue;
	remember_own(s, task);
	note(s);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(__u64 *context)
{
	return woken((struct task_struct *)context[0]);
}

SEC("tp_btf/sched_wakeup_new")
int on_wakeup_new(__u64 *context)
{
	return woken((struct task_struct *)context[0]);
}

SEC("tp_btf/sched_switch")
int on_switch(__u64 *context)
{
	struct task_struct *next = (struct task_struct *)context[2];
	struct state *s = state_get();

	if (!s || bpf_get_smp_processor_id() != s->cpu)
		return 0;
	s->idle = BPF_CORE_READ(next, pid) == 0;
	if (s->runqueue)
		note(s);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
