// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Turns telemetry reports into writes of slabs in softirq, as a tc or as an XDP program. What a report may do is crates/dta's translator.rs, which
 * tests hold this to; docs/format/dta.md has reports and memory. Frames, own addresses, sources and the lease are the responder's headers.
 */
#include <linux/pkt_cls.h>
#include "paths.h"
#include "append.h"
#include "reporters.h"
#include "told.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DTA_EXITS);
	__type(key, __u32);
	__type(value, __u64);
} dta_counters SEC(".maps");

static __always_inline void count_exit(__u32 exit)
{
	__u64 *counter = bpf_map_lookup_elem(&dta_counters, &exit);

	if (counter)
		++*counter;
}

/* A report that is in the scratch, of a source that is allowed: whether it may be stored, and then what it does. */
static __always_inline int take_report(struct dta_scratch *s, struct place *place, struct dta_path *path, __u64 tick_ns)
{
	__u32 number = bpf_ntohs(s->header.table), primitive = s->header.kind & 0x0f;
	struct onlooker_dta_table *table;
	int exit;

	table = bpf_map_lookup_elem(&dta_tables, &number);
	if (!table || !table->primitive)
		return DTA_TABLE;
	if (table->access != bpf_ntohl(s->header.access))
		return DTA_ACCESS;
	if (!is_within_budget(path, tick_ns))
		return DTA_BUDGET;
	if (primitive == DTA_PRIMITIVE_PROBE)
		return probe(s, place);
	if (primitive != table->primitive)
		return DTA_OTHER_PRIMITIVE;
	if (primitive != DTA_PRIMITIVE_KEY_INCREMENT && s->header.payload_bytes != table->payload_bytes)
		return DTA_OTHER_PAYLOAD;
	if (s->header.flags & DTA_RETRANSMITTABLE) {
		exit = follow(s, place);
		if (exit)
			return exit;
	}
	if (primitive == DTA_PRIMITIVE_KEY_WRITE)
		exit = key_write(s, table, number);
	else if (primitive == DTA_PRIMITIVE_KEY_INCREMENT)
		exit = key_increment(s, table);
	else
		exit = append(s, table, number);
	if (exit != DTA_STORED && s->header.flags & DTA_RETRANSMITTABLE)
		unfollow(s, place);
	return exit;
}

/* What became of a frame; FRAME_PASS: it is not ours. */
static __always_inline int translate(void *context, int is_xdp, void *data, void *end, __u32 frame_bytes, struct place *place)
{
	struct dta_path *path = path_of(place);
	__u64 tick_ns = bpf_ktime_get_coarse_ns();
	__u32 zero = 0, bytes, from, known;
	struct dta_scratch *s;
	int exit;

	if (!path)
		return FRAME_PASS;
	known = is_known(path, place, tick_ns);
	if (!known && !is_own(place))
		return FRAME_PASS;
	bytes = report_bytes(data, end, frame_bytes, place, &exit);
	if (!bytes)
		return exit;
	s = bpf_map_lookup_elem(&dta_scratch, &zero);
	if (!s)
		return DTA_SLAB;
	from = place->l3_offset + ip_bytes(place->ipv6) + sizeof(struct udphdr);
	exit = load_report(context, is_xdp, s, from, bytes);
	if (exit)
		return exit;
	if (!known) {
		exit = check_source(place, bpf_ktime_get_boot_ns());
		if (exit)
			return exit;
		know(path, place, tick_ns);
	}
	return take_report(s, place, path, tick_ns);
}

SEC("tc")
int onlooker_dta_tc(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct place place = { .device = skb->ifindex };
	int found, exit;

	if (skb->vlan_present && skb->vlan_tci & VLAN_ID)
		return TC_ACT_UNSPEC;
	found = find_place(data, end, &place);
	if (found == FRAME_SHORT) {
		__u32 bytes = skb->len < ONLOOKER_MAX_REQUEST_BYTES ? skb->len : ONLOOKER_MAX_REQUEST_BYTES;

		if (bpf_skb_pull_data(skb, bytes))
			return TC_ACT_UNSPEC;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		found = find_place(data, end, &place);
	}
	if (found == FRAME_OPTIONS && is_own(&place)) {
		found = onlooker_tc_options(skb, place.l3_offset, place.ipv6);
		if (found != ONLOOKER_OPTIONS)
			return TC_ACT_UNSPEC;
		count_exit(ONLOOKER_OPTIONS);
		return TC_ACT_SHOT;
	}
	if (found)
		return TC_ACT_UNSPEC;
	if (skb->gso_size)
		exit = is_own(&place) ? ONLOOKER_AGGREGATED : FRAME_PASS;
	else
		exit = translate(skb, 0, data, end, skb->len, &place);
	if (exit == FRAME_PASS)
		return TC_ACT_UNSPEC;
	count_exit(exit);
	/* Out of the device it came in by. */
	return is_told(exit) && tell_tc(skb, &place, exit) ? bpf_redirect(skb->ifindex, 0) : TC_ACT_SHOT;
}

SEC("xdp")
int onlooker_dta_xdp(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct place place = { .device = xdp->ingress_ifindex };
	int found = find_place(data, end, &place);
	__s64 bytes = (long)end - (long)data;
	int exit;

	if (found == FRAME_OPTIONS && is_own(&place)) {
		found = onlooker_xdp_options(xdp, place.l3_offset, place.ipv6);
		if (found != ONLOOKER_OPTIONS)
			return XDP_PASS;
		count_exit(ONLOOKER_OPTIONS);
		return XDP_DROP;
	}
	if (found)
		return XDP_PASS;
	/* Opaque, or the compiler mixes the pointers into 32-bit arithmetic, which the verifier refuses. */
	asm volatile("" : "+r"(bytes));
	exit = translate(xdp, 1, data, end, bytes, &place);
	if (exit == FRAME_PASS)
		return XDP_PASS;
	count_exit(exit);
	return is_told(exit) && tell_xdp(xdp, &place, exit) ? XDP_TX : XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
