// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The responder under a stopwatch: bpf_prog_test_run does not restore the packet between its repetitions, so these programs put the request back first.
 * With `only_restore` they stop there, which is what has to be subtracted.
 */
#include "responder.h"

#define REQUEST_BYTES 74

const volatile __u32 only_restore = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, 80);
} request SEC(".maps");

SEC("tc")
int bench_tc(struct __sk_buff *skb)
{
	__u32 zero = 0;
	void *bytes = bpf_map_lookup_elem(&request, &zero);

	if (!bytes || bpf_skb_change_tail(skb, REQUEST_BYTES, 0) || bpf_skb_store_bytes(skb, 0, bytes, REQUEST_BYTES, 0))
		return TC_ACT_SHOT;
	return only_restore ? TC_ACT_OK : tc_respond(skb);
}

SEC("xdp")
int bench_xdp(struct xdp_md *xdp)
{
	int have = xdp_frame_bytes(xdp);
	__u32 zero = 0;
	void *bytes = bpf_map_lookup_elem(&request, &zero);

	if (!bytes || bpf_xdp_adjust_tail(xdp, REQUEST_BYTES - have) || bpf_xdp_store_bytes(xdp, 0, bytes, REQUEST_BYTES))
		return XDP_ABORTED;
	return only_restore ? XDP_PASS : xdp_respond(xdp);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
