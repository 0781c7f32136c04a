// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group softnet: how packets went through each CPU's backlog (softnet_seq_show of net/core/net-procfs.c). Slots of a CPU: processed, dropped, squeezed, steered
 * here by RPS, limited by flow, length of the backlog now. Eight CPUs a block, as in group cpu.
 */
#include "base.h"

#define PROCESSED 0
#define DROPPED 1
#define SQUEEZED 2
#define RECEIVED_RPS 3
#define FLOW_LIMITED 4
#define BACKLOG 5

/* struct softnet_data of each CPU */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} backlogs SEC(".maps");

static __always_inline __u64 dropped(__u64 data)
{
	struct softnet_data *nodes = (void *)data;
	struct softnet_data___atomic *atomic = (void *)data;
	struct softnet_data___number *number = (void *)data;
	__u32 first = 0, second = 0;

	if (bpf_core_field_exists(nodes->drop_counters)) {
		READ_FIELD(&first, struct softnet_data, data, drop_counters.drops0.counter);
		READ_FIELD(&second, struct softnet_data, data, drop_counters.drops1.counter);
	} else if (bpf_core_field_exists(atomic->dropped.counter)) {
		READ_FIELD(&first, struct softnet_data___atomic, data, dropped.counter);
	} else if (bpf_core_field_exists(number->dropped)) {
		READ_FIELD(&first, struct softnet_data___number, data, dropped);
	}
	return (__u32)(first + second);
}

static __always_inline __u64 flow_limited(__u64 data)
{
	__u64 limit = 0;
	__u32 count = 0;

	if (bpf_core_field_exists(((struct softnet_data *)0)->flow_limit) && !READ_FIELD(&limit, struct softnet_data, data, flow_limit) && limit)
		READ_FIELD(&count, struct sd_flow_limit, limit, count);
	return count;
}

__noinline int onlooker_collect_backlog(struct onlooker_scratch *s, __u32 cpu, __u32 slot)
{
	__u64 *place = bpf_map_lookup_elem(&backlogs, &cpu);
	__u32 processed = 0, squeezed = 0, steered = 0, input = 0, process = 0;
	__u64 data, *slots;

	if (!s || !place || slot > COLLECTOR_SLOTS - COLLECT_CPU_SLOTS)
		return 0;
	data = *place;
	slots = COLLECT_PAYLOAD(s) + slot;
	if (READ_FIELD(&processed, struct softnet_data, data, processed) || READ_FIELD(&squeezed, struct softnet_data, data, time_squeeze))
		return 0;
	if (bpf_core_field_exists(((struct softnet_data *)0)->received_rps))
		READ_FIELD(&steered, struct softnet_data, data, received_rps);
	/* softnet_backlog_len */
	READ_FIELD(&input, struct softnet_data, data, input_pkt_queue.qlen);
	READ_FIELD(&process, struct softnet_data, data, process_queue.qlen);
	slots[PROCESSED] = processed;
	slots[DROPPED] = dropped(data);
	slots[SQUEEZED] = squeezed;
	slots[RECEIVED_RPS] = steered;
	slots[FLOW_LIMITED] = flow_limited(data);
	slots[BACKLOG] = (__u64)input + process;
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	int found = 0;

	if (!s)
		return 0;
	for (__u32 place = 0; place < COLLECT_CPUS_PER_BLOCK; place++) {
		__u32 slot = place / 2 * COLLECT_PAIR_SLOTS + place % 2 * COLLECT_CPU_SLOTS;

		if (!onlooker_collect_backlog(s, block * COLLECT_CPUS_PER_BLOCK + place, slot))
			break;
		found = 1;
	}
	return found;
}

#include "programs.h"
