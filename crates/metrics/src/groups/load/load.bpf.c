// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Group load: the load averages, in 1/2048 (FSHIFT of linux/sched/loadavg.h). Slots: 1, 5, 15 minutes. */
#include "base.h"
#include "facts.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_load_facts);
} facts SEC(".maps");

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	__u32 zero = 0;
	struct onlooker_load_facts *known = bpf_map_lookup_elem(&facts, &zero);

	if (!s || !known || block)
		return 0;
	return !bpf_probe_read_kernel(COLLECT_PAYLOAD(s), 3 * sizeof(__u64), (const void *)known->avenrun);
}

#include "programs.h"
