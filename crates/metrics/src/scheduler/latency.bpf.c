// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * How long tasks wait until they run, on whatever CPU they then run: histograms of each CPU in a slab, counted at the scheduler's own tracepoints. src/scheduler
 * attaches them, only where they are switched on: they run at each wake-up and at each switch, in the context of whoever causes it, under its run queue's lock and with
 * interrupts off. So a CPU's blocks have one writer, and plain additions do.
 *
 * A wait begins when a task is woken that does not run (ttwu_do_activate, ttwu_runnable, wake_up_new_task in kernel/sched/core.c), or when it is taken off its CPU
 * although it could go on (__schedule); it ends when the task is switched to. That is what sched_info's run_delay adds up. What never began to be seen is counted when it ends.
 *
 * Past the responder's lease nothing is counted and no wait begins; those that had begun still end, or they would be as long as the time without a lease once it is renewed.
 */
#include "kernel.h"
#include "intf.h"
#include "waiting.h"

/* The slab, in whose place this stands until the loader puts it here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, (1 + SCHEDULER_BLOCK_SLOTS) * sizeof(__u64));
} histograms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_scheduler_place);
} place SEC(".maps");

/* The responder's (bpf/maps.h), in whose place this stands until the loader puts it here: until when somebody looks after it, CLOCK_BOOTTIME in ns; 0: that was never said. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lease SEC(".maps");

static __always_inline struct onlooker_scheduler_place *place_get(void)
{
	__u32 zero = 0;
	struct onlooker_scheduler_place *found = bpf_map_lookup_elem(&place, &zero);

	return found && found->cpus ? found : 0;
}

/*
 * `now_ns` is CLOCK_MONOTONIC, which the caller has read anyway: it lacks the time that the machine was suspended since its start, and for so much longer it goes on.
 * Reading the other clock would cost each switch more than all else of this.
 */
static __always_inline bool is_leased(__u64 now_ns)
{
	__u32 zero = 0;
	__u64 *found = bpf_map_lookup_elem(&lease, &zero), until_ns;

	if (!found)
		return false;
	until_ns = *(volatile __u64 *)found;
	return !until_ns || now_ns < until_ns;
}

/* Bucket of a value below 2^SCHEDULER_MAX_POWER, or the last: docs/format/schema.md, Histograms. */
static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 value = ns, power, step, bucket;

	if (ns >> SCHEDULER_MAX_POWER)
		return SCHEDULER_BUCKETS - 1;
	if (value < 2 << SCHEDULER_GROUPING_POWER)
		return value;
	power = (value > 0xffff) << 4;
	value >>= power;
	step = (value > 0xff) << 3;
	value >>= step;
	power |= step;
	step = (value > 0xf) << 2;
	value >>= step;
	power |= step;
	step = (value > 0x3) << 1;
	value >>= step;
	power |= step | value >> 1;
	bucket = (power - SCHEDULER_GROUPING_POWER + 1) << SCHEDULER_GROUPING_POWER;
	return bucket + ((__u32)ns >> (power - SCHEDULER_GROUPING_POWER) & ((1 << SCHEDULER_GROUPING_POWER) - 1));
}

static __always_inline int woken(struct task_struct *task)
{
	__u64 now_ns;

	/* It runs, and was only about to sleep: no wait. Where there is but one CPU, it is the current one. */
	if (bpf_core_field_exists(task->on_cpu) ? task->on_cpu != 0 : (__u64)task == bpf_get_current_task())
		return 0;
	if (!place_get())
		return 0;
	now_ns = bpf_ktime_get_ns();
	if (is_leased(now_ns))
		waiting_begin(task, now_ns, false);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(onlooker_woken, struct task_struct *task)
{
	(void)ctx;
	return woken(task);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(onlooker_new, struct task_struct *task)
{
	(void)ctx;
	return woken(task);
}

static __always_inline void runs(struct onlooker_scheduler_place *at, struct task_struct *task, __u64 now_ns, bool leased)
{
	__u32 cpu = bpf_get_smp_processor_id(), index = at->first_block, bucket;
	__u64 waited_ns = 0, *block;
	bool preempted = true, seen = waiting_end(task, now_ns, &waited_ns, &preempted);

	if (!leased)
		return;
	if (cpu < at->cpus)
		index += cpu * SCHEDULER_CPU_BLOCKS + (seen && !preempted);
	block = bpf_map_lookup_elem(&histograms, &index);
	if (!block)
		return;
	/* Behind the identity. */
	block++;
	if (cpu >= at->cpus) {
		__sync_fetch_and_add(&block[SCHEDULER_ELSEWHERE_SLOT], 1);
		return;
	}
	if (!seen) {
		block[SCHEDULER_UNSEEN_SLOT]++;
		return;
	}
	bucket = bucket_of(waited_ns);
	/* For the verifier. */
	if (bucket >= SCHEDULER_BUCKETS)
		bucket = SCHEDULER_BUCKETS - 1;
	block[bucket]++;
	block[SCHEDULER_SUM_SLOT] += waited_ns;
}

/*
 * The state that the kernel acted upon is the fourth argument from 5.18 on. Where a signal keeps a task from sleeping, older kernels (before 6.13) do not tell so
 * there, but have put its own state back.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(onlooker_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct onlooker_scheduler_place *at = place_get();
	__u64 now_ns;
	bool leased;

	(void)ctx;
	if (!at)
		return 0;
	now_ns = bpf_ktime_get_ns();
	leased = is_leased(now_ns);
	/* Idle tasks have no pid, and wait for nothing. */
	if (leased && prev->pid && (preempt || prev_state == TASK_RUNNING || prev->__state == TASK_RUNNING))
		waiting_begin(prev, now_ns, true);
	if (next->pid)
		runs(at, next, now_ns, leased);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
