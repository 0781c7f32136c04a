// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group cpu: each CPU's times, run queue and context switches. Slots of a CPU: the ten times of enum cpu_usage_stat in its order (ns), run queue length,
 * context switches. Eight CPUs a block.
 */
#include "base.h"
#include "facts.h"

#define TIMES 10 /* user nice system softirq irq idle iowait steal guest guest_nice */
#define IDLE 5
#define IOWAIT 6
#define RUNNING 10
#define SWITCHES 11

/* Attempts at a consistent view of a CPU that goes idle or wakes at this instant. */
#define TICK_TRIES 3

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_cpu);
} cpus SEC(".maps");

struct idle_state {
	__s64 entry, idle, iowait;
	__u32 sequence;
	__u32 active;
};

static __always_inline __u32 tick_sequence(__u64 tick)
{
	__u32 sequence = 0;

	if (bpf_core_field_exists(((struct tick_sched *)0)->idle_sleeptime_seq))
		READ_FIELD(&sequence, struct tick_sched, tick, idle_sleeptime_seq.sequence);
	return sequence;
}

static __always_inline void read_idle(__u64 tick, struct idle_state *state)
{
#pragma unroll
	for (int attempt = 0; attempt < TICK_TRIES; attempt++) {
		__s64 entry = 0;

		state->sequence = tick_sequence(tick);
		READ_FIELD(&state->entry, struct tick_sched, tick, idle_entrytime);
		READ_FIELD(&state->idle, struct tick_sched, tick, idle_sleeptime);
		READ_FIELD(&state->iowait, struct tick_sched, tick, iowait_sleeptime);
		if (bpf_core_field_exists(((struct tick_sched *)0)->flags)) {
			unsigned long flags = 0;

			READ_FIELD(&flags, struct tick_sched, tick, flags);
			state->active = !!(flags & TICK_IDLE_ACTIVE);
		} else {
			struct tick_sched___bits *bits = (void *)tick;

			state->active = BPF_CORE_READ_BITFIELD_PROBED(bits, idle_active);
		}
		READ_FIELD(&entry, struct tick_sched, tick, idle_entrytime);
		if (entry == state->entry && !(state->sequence & 1) && tick_sequence(tick) == state->sequence)
			return;
	}
}

/*
 * As get_cpu_idle_time_us and get_cpu_iowait_time_us: what is booked, and the present sleep so far, which belongs to iowait if a task of this CPU waits
 * for I/O now. In ns, where procfs has 10 ms.
 */
static __always_inline void add_sleep(__u64 *slots, const struct onlooker_cpu *cpu)
{
	struct idle_state state = {};
	int waiting = 0;
	__s64 now;

	read_idle(cpu->tick, &state);
	slots[IDLE] = state.idle;
	slots[IOWAIT] = state.iowait;
	if (!state.active)
		return;
	now = bpf_ktime_get_ns();
	if (now <= state.entry)
		return;
	READ_FIELD(&waiting, struct rq, cpu->runqueue, nr_iowait.counter);
	slots[waiting > 0 ? IOWAIT : IDLE] += now - state.entry;
}

static __always_inline int collect_cpu(__u64 *slots, const struct onlooker_cpu *cpu)
{
	__u32 running = 0;
	int online = 1;

	if (bpf_probe_read_kernel(slots, TIMES * sizeof(__u64), (const void *)cpu->cpustat) ||
	    READ_FIELD(&running, struct rq, cpu->runqueue, nr_running) ||
	    READ_FIELD(&slots[SWITCHES], struct rq, cpu->runqueue, nr_switches))
		return 0;
	slots[RUNNING] = running;
	/* The tick's view of a CPU that is offline is not kept up (get_idle_time in fs/proc/stat.c). */
	READ_FIELD(&online, struct rq, cpu->runqueue, online);
	if (cpu->tick && online)
		add_sleep(slots, cpu);
	return 1;
}

__noinline int onlooker_collect_cpu(struct onlooker_scratch *s, __u32 number, __u32 slot)
{
	struct onlooker_cpu *cpu = bpf_map_lookup_elem(&cpus, &number);

	if (!s || !cpu || slot > COLLECTOR_SLOTS - COLLECT_CPU_SLOTS)
		return 0;
	return collect_cpu(COLLECT_PAYLOAD(s) + slot, cpu);
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	int found = 0;

	if (!s)
		return 0;
	for (__u32 place = 0; place < COLLECT_CPUS_PER_BLOCK; place++) {
		__u32 slot = place / 2 * COLLECT_PAIR_SLOTS + place % 2 * COLLECT_CPU_SLOTS;

		if (!onlooker_collect_cpu(s, block * COLLECT_CPUS_PER_BLOCK + place, slot))
			break;
		found = 1;
	}
	return found;
}

#include "programs.h"
