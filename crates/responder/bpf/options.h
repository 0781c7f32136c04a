/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Packets with IPv4 options or IPv6 extension headers. The profile has neither; but those for our port are dropped and counted as all else there, and not
 * left to the stack, which would answer by ICMP. Seldom, hence by helpers that find bytes wherever they are.
 */
#ifndef ONLOOKER_OPTIONS_H
#define ONLOOKER_OPTIONS_H

#include <linux/bpf.h>
#include "frame.h"

#define IPV6_FRAGMENT_OFFSET 0xfff8

static __always_inline long load_bytes(void *context, int is_xdp, __u32 from, void *to, __u32 bytes)
{
	return is_xdp ? bpf_xdp_load_bytes(context, from, to, bytes) : bpf_skb_load_bytes(context, from, to, bytes);
}

/* ONLOOKER_OPTIONS for a packet to our port, else FRAME_PASS. */
static __always_inline int whose_options(void *context, int is_xdp, __u32 l3_offset, __u32 ipv6)
{
	__u32 at = l3_offset;
	__be16 ports[2];
	__u8 next;

	if (ipv6) {
		if (load_bytes(context, is_xdp, at + 6, &next, 1))
			return FRAME_PASS;
		at += sizeof(struct ipv6hdr);
		for (int headers = 0; headers < ONLOOKER_MAX_EXTENSION_HEADERS && is_extension(next); headers++) {
			__u8 header[4];

			if (load_bytes(context, is_xdp, at, header, sizeof(header)))
				return FRAME_PASS;
			if (next == IPPROTO_FRAGMENT && ((header[2] << 8 | header[3]) & IPV6_FRAGMENT_OFFSET))
				return FRAME_PASS;
			if (next == IPPROTO_AH)
				at += (header[1] + 2) * 4;
			else
				at += (next == IPPROTO_FRAGMENT ? 1 : header[1] + 1) * 8;
			next = header[0];
		}
		if (next != IPPROTO_UDP)
			return FRAME_PASS;
	} else {
		__u8 first;

		if (load_bytes(context, is_xdp, at, &first, 1))
			return FRAME_PASS;
		at += (first & 0x0f) * 4;
	}
	if (load_bytes(context, is_xdp, at, ports, sizeof(ports)) || ports[1] != bpf_htons(config.port))
		return FRAME_PASS;
	return ONLOOKER_OPTIONS;
}

__noinline int onlooker_tc_options(struct __sk_buff *skb, __u32 l3_offset, __u32 ipv6)
{
	return whose_options(skb, 0, l3_offset, ipv6);
}

__noinline int onlooker_xdp_options(struct xdp_md *xdp, __u32 l3_offset, __u32 ipv6)
{
	return whose_options(xdp, 1, l3_offset, ipv6);
}

#endif
