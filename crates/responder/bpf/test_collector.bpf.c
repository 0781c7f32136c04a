// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* The smallest collector: how often it ran, when, and what it was asked. Block 1 of its region refuses, so that tests see that too. */
#include "collector.h"

__u64 runs;

static __always_inline int collect(struct onlooker_scratch *s)
{
	__u64 *block = COLLECTOR_BLOCK(s);

	if (s->request.offset_bytes)
		return 0;
	block[COLLECTOR_TIME] = bpf_ktime_get_boot_ns();
	block[COLLECTOR_PAYLOAD] = __sync_fetch_and_add(&runs, 1) + 1;
	block[COLLECTOR_PAYLOAD + COLLECTOR_SLOTS - 1] = s->request.rkey;
	return 1;
}

SEC("tc")
int test_collect_tc(struct __sk_buff *skb)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && collect(s))
		COLLECTOR_FINISH(skb, collectors_tc);
	return collector_refuse_tc();
}

SEC("xdp")
int test_collect_xdp(struct xdp_md *xdp)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && collect(s))
		COLLECTOR_FINISH(xdp, collectors_xdp);
	return collector_refuse_xdp();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
