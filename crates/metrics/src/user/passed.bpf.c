// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Stands where an answer is finished while a user's collector is measured: it tells by its verdict, which no collector may end with, that the collector came so far. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

SEC("tc")
int passed_tc(struct __sk_buff *skb)
{
	(void)skb;
	return TC_ACT_OK;
}

SEC("xdp")
int passed_xdp(struct xdp_md *xdp)
{
	(void)xdp;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
