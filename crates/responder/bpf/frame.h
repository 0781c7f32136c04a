/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a frame to the headers that the responder looks at: Ethernet, tags, IP, UDP. `find_place` reads headers only;
 * what it does not recognise goes to the stack untouched. docs/format/wire.md names the fields and their sources.
 */
#ifndef ONLOOKER_FRAME_H
#define ONLOOKER_FRAME_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "intf.h"

const volatile struct onlooker_config config = {};

/*
 * Beside enum onlooker_exit: the frame is not ours; its headers are not in the linear part of the packet; there is more between IP header and UDP than
 * the profile has, and only a longer look tells whose it is.
 */
#define FRAME_PASS (-1)
#define FRAME_SHORT (-2)
#define FRAME_OPTIONS (-3)

#define ETHER_GROUP 0x01
#define VLAN_ID 0x0fff
#define IPV4_VERSION_AND_LENGTH 0x45
#define IPV4_FRAGMENT_OFFSET 0x1fff
#define IPV4_DONT_FRAGMENT 0x4000
#define IPV6_VERSION 0x60

/* RoCEv2's own port (CA17-20). Devices receive on no other. */
#define ROCE_PORT 4791

struct tag {
	__be16 tci;
	__be16 ether_type;
};

/* Where a frame's headers are, and between which addresses it travels. */
struct place {
	struct onlooker_address source;
	struct onlooker_address destination;
	__u32 l3_offset;
	__u32 ipv6;
	__u32 roce;   /* it came to RoCEv2's own port */
	__u32 device; /* that it came in by */
};

static __always_inline void map_ipv4(struct onlooker_address *address, __be32 ipv4)
{
	__u32 *halves = (__u32 *)address->bytes;

	halves[0] = 0;
	halves[1] = 0;
	halves[2] = bpf_htonl(0xffff);
	halves[3] = ipv4;
}

static __always_inline __u32 ip_bytes(__u32 ipv6)
{
	return ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/*
 * The IP header. The offset is at most 22; masking it at the last moment says so to 6.1's verifier, which forgets the result of a comparison when the
 * register goes through the stack.
 */
static __always_inline void *l3_header(void *data, __u64 l3_offset)
{
	asm volatile("" : "+r"(l3_offset));
	return data + (l3_offset & 31);
}

static __always_inline int is_tag(__be16 ether_type)
{
	return ether_type == bpf_htons(ETH_P_8021Q) || ether_type == bpf_htons(ETH_P_8021AD);
}

/* The headers of RFC 8200 4.1 and RFC 4302 that may stand between IPv6 and UDP. */
static __always_inline int is_extension(__u8 header)
{
	return header == IPPROTO_HOPOPTS || header == IPPROTO_ROUTING || header == IPPROTO_FRAGMENT || header == IPPROTO_DSTOPTS ||
	       header == IPPROTO_AH;
}

static __always_inline int is_ipv4_with_options(__u8 version_and_length)
{
	return version_and_length > IPV4_VERSION_AND_LENGTH && version_and_length <= 0x4f;
}

/* A tag with an id is of a VLAN, which has a device of its own, and addresses of its own. Without one it only tells a priority. */
static __always_inline int is_of_vlan(__be16 tci)
{
	return tci & bpf_htons(VLAN_ID);
}

/*
 * Finds out whether a frame is for our port, or for RoCEv2's where we answer there, too: at most two tags without an id, IPv4 without options or IPv6
 * without extension headers, no later fragment, UDP. A frame from or to a group address is not, whatever its IP addresses: no answer could go back.
 */
static __always_inline int find_place(void *data, void *end, struct place *place)
{
	struct ethhdr *ethernet = data;
	void *l3 = ethernet + 1;
	struct udphdr *udp;
	__be16 ether_type;

	if (l3 > end)
		return FRAME_SHORT;
	if ((ethernet->h_dest[0] | ethernet->h_source[0]) & ETHER_GROUP)
		return FRAME_PASS;
	ether_type = ethernet->h_proto;
#pragma unroll
	for (int tags = 0; tags < 2; tags++) {
		struct tag *tag = l3;

		if (!is_tag(ether_type))
			break;
		if ((void *)(tag + 1) > end)
			return FRAME_SHORT;
		if (is_of_vlan(tag->tci))
			return FRAME_PASS;
		ether_type = tag->ether_type;
		l3 = tag + 1;
	}
	place->l3_offset = l3 - data;

	if (ether_type == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return FRAME_SHORT;
		if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(IPV4_FRAGMENT_OFFSET))
			return FRAME_PASS;
		map_ipv4(&place->source, ip->saddr);
		map_ipv4(&place->destination, ip->daddr);
		place->ipv6 = 0;
		if (*(__u8 *)ip != IPV4_VERSION_AND_LENGTH)
			return is_ipv4_with_options(*(__u8 *)ip) ? FRAME_OPTIONS : FRAME_PASS;
		udp = (void *)(ip + 1);
	} else if (ether_type == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = l3;

		if ((void *)(ip + 1) > end)
			return FRAME_SHORT;
		if ((*(__u8 *)ip & 0xf0) != IPV6_VERSION)
			return FRAME_PASS;
		__builtin_memcpy(&place->source, &ip->saddr, sizeof(place->source));
		__builtin_memcpy(&place->destination, &ip->daddr, sizeof(place->destination));
		place->ipv6 = 1;
		if (ip->nexthdr != IPPROTO_UDP)
			return is_extension(ip->nexthdr) ? FRAME_OPTIONS : FRAME_PASS;
		udp = (void *)(ip + 1);
	} else {
		return FRAME_PASS;
	}
	if ((void *)(udp + 1) > end)
		return FRAME_SHORT;
	place->roce = config.roce && udp->dest == bpf_htons(ROCE_PORT);
	if (!place->roce && udp->dest != bpf_htons(config.port))
		return FRAME_PASS;
	return ONLOOKER_GO_ON;
}

/* Ones' complement sum of an IPv4 header, not complemented: 0xffff if its checksum is right (RFC 1071). */
static __always_inline __u32 ipv4_sum(const __u32 *halves)
{
	__u64 sum = 0;

#pragma unroll
	for (int half = 0; half < 5; half++)
		sum += halves[half];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* IP and UDP lengths against each other and against the frame. */
static __always_inline int check_lengths(void *l3, struct udphdr *udp, __u32 ipv6, __u32 received_bytes)
{
	__u32 ip_payload_bytes;

	if (ipv6) {
		struct ipv6hdr *ip = l3;

		ip_payload_bytes = bpf_ntohs(ip->payload_len);
	} else {
		struct iphdr *ip = l3;

		if (ip->frag_off != bpf_htons(IPV4_DONT_FRAGMENT))
			return ONLOOKER_IPV4_FLAGS;
		if (ipv4_sum(l3) != 0xffff)
			return ONLOOKER_IPV4_CHECKSUM;
		ip_payload_bytes = bpf_ntohs(ip->tot_len);
		if (ip_payload_bytes < sizeof(*ip))
			return ONLOOKER_IP_LENGTH;
		ip_payload_bytes -= sizeof(*ip);
	}
	if (ip_payload_bytes < sizeof(*udp) || ip_payload_bytes + ip_bytes(ipv6) > received_bytes)
		return ONLOOKER_IP_LENGTH;
	if (bpf_ntohs(udp->len) != ip_payload_bytes)
		return ONLOOKER_UDP_LENGTH;
	return ONLOOKER_GO_ON;
}

#endif
