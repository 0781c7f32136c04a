/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * From a frame to a request. Two stages: `find_place` decides whether a frame is ours at all, reading headers only; everything it does not
 * recognise goes to the stack untouched. `check_request` then takes or refuses what is ours, in the order of enum onlooker_exit.
 * RoCEv2's own port is not ours alone: of what comes there `claim` takes what is, before anything is refused.
 * docs/format/wire.md names the fields and their sources.
 */
#ifndef ONLOOKER_PARSE_H
#define ONLOOKER_PARSE_H

#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include "crc.h"
#include "maps.h"
#include "martian.h"

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

#define BTH_READ_REQUEST 0x0c
#define BTH_READ_ANSWER_ONLY 0x10
#define BTH_VERSION_MASK 0x0f
#define BTH_PAD_MASK 0x30
#define BTH_MIGRATION 0x40
#define BTH_FULL_MEMBER 0xffff
#define BTH_LIMITED_MEMBER 0x7fff

struct tag {
	__be16 tci;
	__be16 ether_type;
};

struct bth {
	__u8 opcode;
	__u8 flags;
	__be16 partition_key;
	__be32 qpn; /* with resv8a in front */
	__be32 psn; /* with the acknowledge request in front */
};

struct reth {
	__be32 va[2];
	__be32 rkey;
	__be32 length_bytes;
};

#define REQUEST_UDP_BYTES (sizeof(struct udphdr) + sizeof(struct bth) + sizeof(struct reth) + 4)

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

/*
 * Generic cell rate algorithm: `due` is when the next request comes at the sustained rate. True if the request is within the budget. When other
 * processors keep changing `due`, the request is let through unaccounted: at most a few per instant and processor.
 */
static __always_inline int within_budget(__u64 *due, __u64 now_ns, __u64 interval_ns, __u64 burst_ns)
{
#pragma unroll
	for (int attempt = 0; attempt < ONLOOKER_RATE_TRIES; attempt++) {
		__u64 before = *(volatile __u64 *)due;
		__u64 from = before > now_ns ? before : now_ns;

		if (from - now_ns > burst_ns)
			return 0;
		if (__sync_val_compare_and_swap(due, before, from + interval_ns) == before)
			return 1;
	}
	return 1;
}

/* Whether anybody may ask now, and whether this source may. */
static __always_inline int check_source(struct place *place, __u64 now_ns)
{
	struct onlooker_prefix prefix = { .bits = 128, .address = place->source };
	__u32 zero = 0;
	__u64 *until_ns = bpf_map_lookup_elem(&lease, &zero);

	if (!until_ns || now_ns >= *(volatile __u64 *)until_ns)
		return ONLOOKER_LEASE;
	if (is_martian(place))
		return ONLOOKER_MARTIAN;
	if (!bpf_map_lookup_elem(&sources, &prefix))
		return ONLOOKER_SOURCE;
	return ONLOOKER_GO_ON;
}

/*
 * Whether there is anything left of the source's and of this processor's budget. Asked only once the key was right: whoever does not know one could
 * otherwise use up the budget of a reader whose address he writes into his packets.
 */
static __always_inline int check_budgets(struct place *place, const struct onlooker_request *request)
{
	__u64 now_ns = request->now_ns;
	__u64 blocks = request->length_bytes / ONLOOKER_BLOCK_BYTES;
	__u32 zero = 0;
	__u64 *due;

	if (config.source_interval_ns) {
		due = bpf_map_lookup_elem(&rate, &place->source);
		if (!due) {
			/* Loses against another processor that does the same: then the first request of a source is not accounted. */
			__u64 first = now_ns + config.source_interval_ns;

			bpf_map_update_elem(&rate, &place->source, &first, BPF_NOEXIST);
		} else if (!within_budget(due, now_ns, config.source_interval_ns, config.source_burst_ns)) {
			return ONLOOKER_SOURCE_RATE;
		}
	}
	if (config.cpu_interval_ns) {
		due = bpf_map_lookup_elem(&cpu_rate, &zero);
		if (due && !within_budget(due, now_ns, config.cpu_interval_ns * (blocks > 1 ? blocks : 1), config.cpu_burst_ns))
			return ONLOOKER_CPU_RATE;
	}
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

/* IP, UDP and transport lengths against each other and against the frame. */
static __always_inline int check_lengths(void *l3, struct udphdr *udp, struct bth *bth, __u32 ipv6, __u32 received_bytes)
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
	if (ip_payload_bytes != REQUEST_UDP_BYTES)
		return ONLOOKER_ROCE_LENGTH;
	if (bth->flags & BTH_PAD_MASK)
		return ONLOOKER_PAD_COUNT;
	return ONLOOKER_GO_ON;
}

/* Sums the request's headers as the ICRC sees them: laid out in the scratch as crc.h says, 4 bytes further right than an answer's. */
static __always_inline int check_icrc(void *l3, struct onlooker_scratch *s, __u32 ipv6, void *end)
{
	__u32 *halves = s->packet.halves;
	__u32 *transport, first;

	if (ipv6) {
		__u32 *ip = l3;

		if ((void *)(ip + 20) > end)
			return ONLOOKER_TRUNCATED;
		halves[4] = ~0u;
		halves[5] = ip[0] | 0xffffff0f;
		halves[6] = ip[1] | 0xff000000;
#pragma unroll
		for (int half = 2; half < 11; half++)
			halves[5 + half] = ip[half];
		halves[16] = ip[11] | 0xffff0000;
		transport = ip + 12;
		first = 2;
	} else {
		__u32 *ip = l3;

		if ((void *)(ip + 15) > end)
			return ONLOOKER_TRUNCATED;
		halves[8] = 0;
		halves[9] = ~0u;
		halves[10] = ip[0] | 0x0000ff00;
		halves[11] = ip[1];
		halves[12] = ip[2] | 0xffff00ff;
#pragma unroll
		for (int half = 3; half < 6; half++)
			halves[10 + half] = ip[half];
		halves[16] = ip[6] | 0xffff0000;
		transport = ip + 7;
		first = 4;
	}
	halves[17] = transport[0];
	halves[18] = transport[1] | 0x000000ff;
#pragma unroll
	for (int half = 2; half < 7; half++)
		halves[17 + half] = transport[half];
	if (transport[7] != ~onlooker_crc(s, 0, first, 12 - first))
		return ONLOOKER_ICRC;
	return ONLOOKER_GO_ON;
}

static __always_inline void read_reth(struct onlooker_request *request, const struct reth *reth)
{
	request->va = (__u64)bpf_ntohl(reth->va[0]) << 32 | bpf_ntohl(reth->va[1]);
	request->rkey = bpf_ntohl(reth->rkey);
	request->length_bytes = bpf_ntohl(reth->length_bytes);
}

/* The region that a request names, if it has all of what is asked for; fills in where the data is. */
static __always_inline int find_region(struct onlooker_request *request, struct onlooker_region **found)
{
	struct onlooker_region *region = bpf_map_lookup_elem(&regions, &request->rkey);
	__u64 offset_bytes;

	if (!region)
		return ONLOOKER_RKEY;
	/* Below the region's address it wraps around to beyond its end. */
	offset_bytes = request->va - region->va;
	if (offset_bytes >= region->bytes || request->length_bytes > region->bytes - offset_bytes)
		return ONLOOKER_RANGE;
	request->offset_bytes = offset_bytes;
	*found = region;
	return ONLOOKER_GO_ON;
}

/*
 * RoCEv2's own port may have another owner here: soft-RoCE, or a program. Ours is a READ request for bytes of a region of ours from a source that may
 * ask (`refused`: why not), and then it is treated as on our own port. All else is left to the stack, as if we were not there: what is the other owner's
 * goes on to it, and a source that may not ask sees no difference between a key that there is and one that there is not.
 */
static __always_inline int claim(void *data, void *end, struct place *place, struct onlooker_request *request, int refused)
{
	struct bth *bth = l3_header(data, place->l3_offset) + ip_bytes(place->ipv6) + sizeof(struct udphdr);
	struct reth *reth = (void *)(bth + 1);
	struct onlooker_region *region;

	if ((void *)(reth + 1) > end || bth->opcode != BTH_READ_REQUEST)
		return FRAME_PASS;
	if (refused)
		return ONLOOKER_PASSED;
	read_reth(request, reth);
	return find_region(request, &region) ? ONLOOKER_PASSED : ONLOOKER_GO_ON;
}

/* The region entry against what the request asks for. */
static __always_inline int check_access(struct onlooker_request *request, struct onlooker_region **found)
{
	__u32 length_bytes = request->length_bytes;
	struct onlooker_region *region;
	__u64 offset_bytes;
	int exit = find_region(request, &region);

	if (exit)
		return exit;
	offset_bytes = request->offset_bytes;
	if (length_bytes < 8 || length_bytes > config.max_read_bytes || length_bytes % 8 || offset_bytes % 8)
		return ONLOOKER_PROFILE;
	if (length_bytes < ONLOOKER_BLOCK_BYTES) {
		if (region->kind != ONLOOKER_KIND_MEMORY || offset_bytes % ONLOOKER_BLOCK_BYTES + length_bytes > ONLOOKER_BLOCK_BYTES)
			return ONLOOKER_PROFILE;
	} else if (length_bytes % ONLOOKER_BLOCK_BYTES || offset_bytes % ONLOOKER_BLOCK_BYTES ||
		   (region->kind != ONLOOKER_KIND_MEMORY && length_bytes != ONLOOKER_BLOCK_BYTES)) {
		return ONLOOKER_PROFILE;
	}
	request->kind = region->kind;
	*found = region;
	return ONLOOKER_GO_ON;
}

/*
 * All checks of a frame that is ours, or for RoCEv2's own port; `received_bytes` is from the IP header to the frame's end, linear or not. On
 * ONLOOKER_GO_ON the request is in the scratch and its region in `region`; FRAME_PASS and ONLOOKER_PASSED: not ours.
 */
static __always_inline int check_request(void *data, void *end, __u32 frame_bytes, struct place *place, struct onlooker_scratch *s,
					 struct onlooker_region **region)
{
	struct onlooker_request *request = &s->request;
	__u64 now_ns = bpf_ktime_get_boot_ns();
	__u32 l3_offset = place->l3_offset;
	__u32 ipv6 = place->ipv6;
	struct udphdr *udp;
	struct bth *bth;
	struct reth *reth;
	void *l3;
	int exit = check_source(place, now_ns);

	if (config.roce && place->roce)
		exit = claim(data, end, place, request, exit);
	if (exit)
		return exit;
	l3 = l3_header(data, l3_offset);
	udp = l3 + ip_bytes(ipv6);
	bth = (void *)(udp + 1);
	if ((void *)(bth + 1) > end)
		return ONLOOKER_TRUNCATED;
	if (bth->opcode != BTH_READ_REQUEST)
		return ONLOOKER_OPCODE;
	if (bth->flags & BTH_VERSION_MASK)
		return ONLOOKER_TRANSPORT_VERSION;
	if (bth->partition_key != bpf_htons(BTH_FULL_MEMBER) && bth->partition_key != bpf_htons(BTH_LIMITED_MEMBER))
		return ONLOOKER_PARTITION_KEY;
	exit = check_lengths(l3, udp, bth, ipv6, frame_bytes - l3_offset);
	if (exit)
		return exit;
	reth = (void *)(bth + 1);
	if ((void *)(reth + 1) + 4 > end)
		return ONLOOKER_TRUNCATED;
	request->now_ns = now_ns;
	request->l3_offset = l3_offset;
	request->ipv6 = ipv6;
	read_reth(request, reth);
	request->psn = bpf_ntohl(bth->psn) & 0xffffff;
	request->qpn = bpf_ntohl(bth->qpn) & 0xffffff;
	exit = check_access(request, region);
	if (!exit)
		exit = check_budgets(place, request);
	if (exit)
		return exit;
	return config.skip_icrc ? ONLOOKER_GO_ON : check_icrc(l3, s, ipv6, end);
}

#endif
