// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Finds kernel variables for a kernel that does not tell their addresses. Run by the loader, in its own context, once; nothing is attached.
 * src/discover says what is made of the answers.
 */
#include "kernel.h"
#include "intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_exchange);
} exchange SEC(".maps");

/* Its elements stand at a known distance from each CPU's base. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} landmark SEC(".maps");

static __always_inline struct onlooker_exchange *exchange_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&exchange, &zero);
}

/* A pointer as the number that it is: for the verifier what comes back out of a map is a number. */
static __always_inline __u64 number(struct onlooker_exchange *e, const void *pointer)
{
	*(volatile __u64 *)&e->percpu_offset = (__u64)pointer;
	return *(volatile __u64 *)&e->percpu_offset;
}

SEC("syscall")
int read_memory(void *context)
{
	struct onlooker_exchange *e = exchange_get();
	__u32 bytes;

	(void)context;
	if (!e)
		return 1;
	bytes = e->bytes;
	if (bytes > COLLECT_READ_BYTES)
		return 1;
	return bpf_probe_read_kernel(e->data, bytes, (const void *)e->address) ? 1 : 0;
}

SEC("syscall")
int read_idle_sleep(void *context)
{
	struct onlooker_exchange *e = exchange_get();

	(void)context;
	if (!e || !bpf_core_field_exists(((struct tick_sched *)0)->idle_sleeptime))
		return 1;
	return READ_FIELD((__u64 *)e->data, struct tick_sched, e->address, idle_sleeptime) ? 1 : 0;
}

SEC("syscall")
int clocks(void *context)
{
	struct onlooker_exchange *e = exchange_get();

	(void)context;
	if (!e)
		return 1;
	e->jiffies = bpf_jiffies64();
	e->now_ns = bpf_ktime_get_ns();
	return 0;
}

/*
 * The caller's task group has a queue on every CPU, which points at the CPU's run queue: struct rq, a per-CPU variable. It names its CPU, which the check
 * is made by.
 */
SEC("syscall")
int find_runqueue(void *context)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct onlooker_exchange *e = exchange_get();
	struct cfs_rq **queues, *queue = NULL;
	struct rq *runqueue;

	(void)context;
	if (!e || !bpf_core_field_exists(task->sched_task_group) || !bpf_core_field_exists(((struct task_group *)0)->cfs_rq))
		return 1;
	queues = BPF_CORE_READ(task, sched_task_group, cfs_rq);
	if (bpf_probe_read_kernel(&queue, sizeof(queue), queues + e->cpu) || !queue)
		return 2;
	runqueue = BPF_CORE_READ(queue, rq);
	if (!runqueue || BPF_CORE_READ(runqueue, cpu) != (int)e->cpu)
		return 3;
	e->runqueue = (__u64)runqueue;
	return 0;
}

/* bpf_map_lookup_percpu_elem adds __per_cpu_offset[cpu] to the pointer that the map keeps. */
SEC("syscall")
int find_percpu_offset(void *context)
{
	struct onlooker_exchange *e = exchange_get();
	__u64 map, first = 0;
	__u32 zero = 0;
	void *element;

	(void)context;
	if (!e || !bpf_core_field_exists(((struct bpf_array *)0)->pptrs))
		return 1;
	element = bpf_map_lookup_percpu_elem(&landmark, &zero, e->cpu);
	if (!element)
		return 2;
	map = number(e, &landmark) + bpf_core_field_offset(((struct bpf_array *)0)->pptrs);
	if (bpf_probe_read_kernel(&first, sizeof(first), (const void *)map) || !first)
		return 3;
	e->percpu_offset = number(e, element) - first;
	return 0;
}

SEC("syscall")
int find_net(void *context)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct onlooker_exchange *e = exchange_get();

	(void)context;
	if (!e)
		return 1;
	e->net = (__u64)BPF_CORE_READ(task, nsproxy, net_ns);
	return e->net ? 0 : 2;
}

/* struct proto of the socket whose descriptor, one of the caller's, is in `address`. */
SEC("syscall")
int find_proto(void *context)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct onlooker_exchange *e = exchange_get();
	struct file **files, *file = NULL;
	struct socket *socket = NULL;

	(void)context;
	if (!e)
		return 1;
	files = BPF_CORE_READ(task, files, fdt, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), files + e->address) || !file)
		return 2;
	socket = (void *)BPF_CORE_READ(file, private_data);
	*(__u64 *)e->data = (__u64)BPF_CORE_READ(socket, sk, __sk_common.skc_prot);
	return 0;
}

/* struct task_struct of the caller. */
SEC("syscall")
int find_task(void *context)
{
	struct onlooker_exchange *e = exchange_get();

	(void)context;
	if (!e)
		return 1;
	*(__u64 *)e->data = bpf_get_current_task();
	return 0;
}

/* struct super_block of the caller's root: one of the list of all of them. */
SEC("syscall")
int find_super_block(void *context)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct onlooker_exchange *e = exchange_get();

	(void)context;
	if (!e)
		return 1;
	*(__u64 *)e->data = (__u64)BPF_CORE_READ(task, fs, root.mnt, mnt_sb);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
