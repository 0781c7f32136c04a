// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group memory: numbers that the kernel keeps for the whole machine (vm_zone_stat, vm_node_stat, _totalram_pages). What each slot is, the loader says by
 * `items`; the two slots behind COLLECT_MEMORY_ITEMS are MemTotal and MemAvailable.
 */
#include "base.h"
#include "facts.h"

#define TOTAL COLLECT_MEMORY_ITEMS
#define AVAILABLE (COLLECT_MEMORY_ITEMS + 1)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_memory_facts);
} facts SEC(".maps");

/* Negative for an instant while CPUs hold parts back; global_node_page_state has 0 then. */
static __always_inline __s64 stat(const __s64 *stats, __u32 number)
{
	__s64 value = stats[number % COLLECT_STATS];

	return value < 0 ? 0 : value;
}

/* si_mem_available of mm/show_mem.c, but for what the kernel boosts watermarks by for a while (boost_watermark of mm/page_alloc.c). */
static __always_inline __s64 available(const __s64 *stats, const struct onlooker_memory_facts *known)
{
	__s64 low = known->watermark_low_pages;
	__s64 cache = stat(stats, known->active_file) + stat(stats, known->inactive_file);
	__s64 reclaimable = stat(stats, known->slab_reclaimable) + stat(stats, known->misc_reclaimable);
	__s64 pages = stat(stats, known->free) - (__s64)known->total_reserve_pages;

	pages += cache - (cache / 2 < low ? cache / 2 : low);
	pages += reclaimable - (reclaimable / 2 < low ? reclaimable / 2 : low);
	return pages < 0 ? 0 : pages;
}

static __always_inline long read_stats(__s64 *to, __u64 count, __u64 most, __u64 address)
{
	__u64 bytes = count * sizeof(__u64);

	/* Opaque, so that the verifier sees the bound of the very number that is used. */
	asm volatile("" : "+r"(bytes));
	if (bytes > most * sizeof(__u64))
		return 1;
	return bpf_probe_read_kernel(to, bytes, (const void *)address);
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	__u32 zero = 0;
	struct onlooker_memory_facts *known = bpf_map_lookup_elem(&facts, &zero);
	__u64 *slots;
	__s64 *stats;

	if (!s || !known || block)
		return 0;
	slots = COLLECT_PAYLOAD(s);
	stats = (__s64 *)COLLECT_ROOM(s);
	if (read_stats(stats, known->zone_stats, COLLECT_ZONE_STATS, known->zone_stat) ||
	    read_stats(stats + COLLECT_ZONE_STATS, known->node_stats, COLLECT_STATS - COLLECT_ZONE_STATS - 1, known->node_stat) ||
	    bpf_probe_read_kernel(&slots[TOTAL], sizeof(__u64), (const void *)known->total_ram))
		return 0;
	if (known->deferred) {
		__s64 deferred = 0;

		if (bpf_probe_read_kernel(&deferred, sizeof(deferred), (const void *)known->deferred))
			return 0;
		stats[known->free % COLLECT_STATS] += deferred;
	}
	stats[COLLECT_STATS - 1] = 0;
	for (__u32 item = 0; item < COLLECT_MEMORY_ITEMS; item++)
		slots[item] = stat(stats, known->items[item][0]) + stat(stats, known->items[item][1]);
	slots[AVAILABLE] = available(stats, known);
	return 1;
}

#include "programs.h"
