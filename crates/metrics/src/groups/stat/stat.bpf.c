// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group stat: what /proc/stat and /proc/softirqs count beside the times, by CPU, and the softirqs that wait at this instant. Slots of a CPU: interrupts,
 * ten softirqs, ten bits of pending softirqs, tasks that wait for I/O, its parts of the open files and of the processes; the last of the first CPU's are the machine's
 * forks, threads and most files. Four CPUs a block.
 */
#include "base.h"
#include "facts.h"

#define INTERRUPTS 0
#define SOFTIRQS 1
#define SOFTIRQ_TYPES 10 /* NR_SOFTIRQS of linux/interrupt.h */
#define PENDING (SOFTIRQS + SOFTIRQ_TYPES)
#define IOWAIT (PENDING + SOFTIRQ_TYPES)
#define FILES (IOWAIT + 1)
#define PROCESSES (FILES + 1)
#define FORKS (COLLECT_PAIR_SLOTS - 1)
#define THREADS (FORKS - 1)
#define MOST_FILES (THREADS - 1)

_Static_assert(PROCESSES < MOST_FILES, "a CPU's values take more slots than it has");

/* irq_cpustat_t is smaller; the room is for it. */
#define MOST_IRQ_STAT_BYTES 256

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct onlooker_stat_cpu);
} stat_cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_stat_facts);
} stat_facts SEC(".maps");

/* A field of the irq_cpustat_t that stands at `copy`; 0 where the kernel has not got it. */
#define COUNTED(copy, field)                                                                                                                                   \
	(bpf_core_field_exists(((irq_cpustat_t *)0)->field) ? *(const __u32 *)((const char *)(copy) + bpf_core_field_offset(((irq_cpustat_t *)0)->field)) : 0)

/* arch_irq_stat_cpu of arch/x86/kernel/irq.c: what is not delivered through a descriptor. Other machines count all of it in kstat. */
static __always_inline __u64 own_interrupts(const void *copy)
{
	return (__u64)COUNTED(copy, __nmi_count) + COUNTED(copy, apic_timer_irqs) + COUNTED(copy, irq_spurious_count) + COUNTED(copy, apic_perf_irqs) +
	       COUNTED(copy, apic_irq_work_irqs) + COUNTED(copy, icr_read_retry_count) + COUNTED(copy, x86_platform_ipis) +
	       COUNTED(copy, irq_resched_count) + COUNTED(copy, irq_call_count) + COUNTED(copy, irq_thermal_count) + COUNTED(copy, irq_threshold_count) +
	       COUNTED(copy, irq_hv_callback_count) + COUNTED(copy, irq_hv_reenlightenment_count) + COUNTED(copy, hyperv_stimer0_count);
}

/* An int, with its sign. */
static __always_inline __s64 signed_int(__u64 address)
{
	__s32 value = 0;

	if (address)
		bpf_probe_read_kernel(&value, sizeof(value), (const void *)address);
	return value;
}

static __always_inline __u32 machine_checks(__u64 address)
{
	__u32 count = 0;

	if (address)
		bpf_probe_read_kernel(&count, sizeof(count), (const void *)address);
	return count;
}

/* local_softirq_pending() of that CPU: bit n is type n. The low half is the same whether the kernel has 16 bits or 32. */
static __always_inline __u32 pending_softirqs(const struct onlooker_stat_cpu *cpu, const void *irq_stat)
{
	__u16 pending = 0;

	if (cpu->pending)
		bpf_probe_read_kernel(&pending, sizeof(pending), (const void *)cpu->pending);
	else if (cpu->hot && bpf_core_field_exists(((struct pcpu_hot *)0)->softirq_pending))
		READ_FIELD(&pending, struct pcpu_hot, cpu->hot, softirq_pending);
	else if (bpf_core_field_exists(((irq_cpustat_t *)0)->__softirq_pending))
		pending = *(const __u16 *)((const char *)irq_stat + bpf_core_field_offset(((irq_cpustat_t *)0)->__softirq_pending));
	return pending;
}

static __always_inline int collect_cpu(__u64 *slots, void *irq_stat, const struct onlooker_stat_cpu *cpu)
{
	__u32 softirqs[SOFTIRQ_TYPES] = {};
	__u32 pending;
	int waiting = 0;

	if (READ_FIELD(&slots[INTERRUPTS], struct kernel_stat, cpu->kstat, irqs_sum) || READ_FIELD(&softirqs, struct kernel_stat, cpu->kstat, softirqs) ||
	    READ_FIELD(&waiting, struct rq, cpu->runqueue, nr_iowait.counter))
		return 0;
	if (cpu->irq_stat && bpf_core_type_exists(irq_cpustat_t)) {
		if (bpf_core_type_size(irq_cpustat_t) > MOST_IRQ_STAT_BYTES ||
		    bpf_probe_read_kernel(irq_stat, bpf_core_type_size(irq_cpustat_t), (const void *)cpu->irq_stat))
			return 0;
		slots[INTERRUPTS] += own_interrupts(irq_stat);
	}
	slots[INTERRUPTS] += machine_checks(cpu->mce_exceptions) + machine_checks(cpu->mce_polls);
	pending = pending_softirqs(cpu, irq_stat);
#pragma unroll
	for (int type = 0; type < SOFTIRQ_TYPES; type++) {
		slots[SOFTIRQS + type] = softirqs[type];
		slots[PENDING + type] = pending >> type & 1;
	}
	slots[IOWAIT] = waiting > 0 ? waiting : 0;
	slots[FILES] = signed_int(cpu->files);
	if (cpu->processes)
		bpf_probe_read_kernel(&slots[PROCESSES], sizeof(slots[PROCESSES]), (const void *)cpu->processes);
	return 1;
}

__noinline int onlooker_collect_cpu(struct onlooker_scratch *s, __u32 number, __u32 slot)
{
	struct onlooker_stat_cpu *cpu = bpf_map_lookup_elem(&stat_cpus, &number);

	if (!s || !cpu || slot > COLLECTOR_SLOTS - COLLECT_PAIR_SLOTS)
		return 0;
	return collect_cpu(COLLECT_PAYLOAD(s) + slot, COLLECT_ROOM(s), cpu);
}

static __always_inline void collect_totals(__u64 *slots, const struct onlooker_stat_facts *known)
{
	__s64 files = 0;

	if (known->total_forks)
		bpf_probe_read_kernel(&slots[FORKS], sizeof(slots[FORKS]), (const void *)known->total_forks);
	if (known->most_files)
		bpf_probe_read_kernel(&slots[MOST_FILES], sizeof(slots[MOST_FILES]), (const void *)known->most_files);
	if (known->files)
		bpf_probe_read_kernel(&files, sizeof(files), (const void *)known->files);
	slots[THREADS] = signed_int(known->threads);
	slots[FILES] += files;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	__u32 zero = 0;
	struct onlooker_stat_facts *known = bpf_map_lookup_elem(&stat_facts, &zero);
	int found = 0;

	if (!s || !known)
		return 0;
	for (__u32 place = 0; place < COLLECT_STAT_CPUS_PER_BLOCK; place++) {
		if (!onlooker_collect_cpu(s, block * COLLECT_STAT_CPUS_PER_BLOCK + place, place * COLLECT_PAIR_SLOTS))
			break;
		found = 1;
	}
	if (found && !block)
		collect_totals(COLLECT_PAYLOAD(s), known);
	return found;
}

#include "programs.h"
