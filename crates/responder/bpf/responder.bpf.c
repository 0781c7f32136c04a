// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Answers RoCEv2 RC READ requests from BPF array memory in softirq: as a tc program (the default) or as an XDP program, never both on one device.
 * docs/responder.md has the profile, the counters and the traps.
 */
#include "responder.h"

SEC("tc")
int onlooker_tc(struct __sk_buff *skb)
{
	return tc_respond(skb);
}

SEC("xdp")
int onlooker_xdp(struct xdp_md *xdp)
{
	return xdp_respond(xdp);
}

/* Slot ONLOOKER_FINISH_SLOT: where collectors go on to. */
SEC("tc")
int onlooker_finish_tc(struct __sk_buff *skb)
{
	struct onlooker_scratch *s = scratch_get();
	int exit;

	if (!s)
		return tc_end(skb, ONLOOKER_SLAB);
	exit = tc_answer(skb, s, 1);
	if (config.cpu_interval_ns)
		charge_time(s);
	return tc_end(skb, exit);
}

SEC("xdp")
int onlooker_finish_xdp(struct xdp_md *xdp)
{
	struct onlooker_scratch *s = scratch_get();
	int exit;

	if (!s)
		return xdp_end(ONLOOKER_SLAB);
	exit = xdp_answer(xdp, s, 1);
	if (config.cpu_interval_ns)
		charge_time(s);
	return xdp_end(exit);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
