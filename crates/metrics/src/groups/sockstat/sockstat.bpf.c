// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group sockstat: what sockets there are (sockstat_seq_show of net/ipv4/proc.c). Block 0 has the numbers that are kept once, those behind it the parts of
 * each CPU, eight CPUs a block, as in group cpu: signed, since a socket may be opened on one CPU and closed on another. Which numbers, the loader says.
 */
#include "base.h"
#include "facts.h"
#include "space.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_sockstat_facts);
} facts SEC(".maps");

static __always_inline __s64 read_number(const struct onlooker_number *number, __u64 offset)
{
	const void *from = (const void *)(number->address + offset);
	__s64 wide = 0;
	__s32 narrow = 0;

	if (number->width == sizeof(wide)) {
		bpf_probe_read_kernel(&wide, sizeof(wide), from);
		return wide + number->add;
	}
	bpf_probe_read_kernel(&narrow, sizeof(narrow), from);
	return (__s64)narrow + number->add;
}

__noinline int onlooker_collect_parts(struct onlooker_scratch *s, __u32 cpu, __u32 slot)
{
	__u32 zero = 0;
	struct onlooker_sockstat_facts *known = bpf_map_lookup_elem(&facts, &zero);
	__u64 *offset = bpf_map_lookup_elem(&offsets, &cpu);

	if (!s || !known || !offset || slot > COLLECTOR_SLOTS - COLLECT_CPU_SLOTS)
		return 0;
	for (__u32 part = 0; part < COLLECT_SOCKSTAT_PARTS; part++) {
		const struct onlooker_number *number = &known->parts[part];
		__s64 value, beside = 0;

		if (!number->address)
			continue;
		value = read_number(number, *offset);
		if (!cpu && number->beside)
			bpf_probe_read_kernel(&beside, sizeof(beside), (const void *)number->beside);
		COLLECT_PAYLOAD(s)[slot + part] = value + beside;
	}
	return 1;
}

static __always_inline int collect_wholes(struct onlooker_scratch *s, const struct onlooker_sockstat_facts *known)
{
	for (__u32 whole = 0; whole < COLLECT_SOCKSTAT_WHOLES; whole++) {
		__s64 value = 0;

		if (known->wholes[whole].address)
			value = read_number(&known->wholes[whole], 0);
		/* proto_memory_allocated of include/net/sock.h: CPUs hold parts back. */
		COLLECT_PAYLOAD(s)[whole] = value < 0 ? 0 : value;
	}
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	__u32 zero = 0;
	struct onlooker_sockstat_facts *known = bpf_map_lookup_elem(&facts, &zero);
	int found = 0;

	if (!s || !known || !space_is_there(&known->space))
		return 0;
	if (!block)
		return collect_wholes(s, known);
	for (__u32 place = 0; place < COLLECT_CPUS_PER_BLOCK; place++) {
		__u32 slot = place / 2 * COLLECT_PAIR_SLOTS + place % 2 * COLLECT_CPU_SLOTS;

		if (!onlooker_collect_parts(s, (block - 1) * COLLECT_CPUS_PER_BLOCK + place, slot))
			break;
		found = 1;
	}
	return found;
}

#include "programs.h"
