/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * READ requests: `check_request` takes or refuses one, in the order of enum onlooker_exit. On RoCEv2's own port, which is
 * not ours alone, `claim` first takes what is ours; the rest goes to the stack, and nothing there is refused.
 */
#ifndef ONLOOKER_READ_H
#define ONLOOKER_READ_H

#include "crc.h"
#include "policy.h"
#include "transport.h"

#define REQUEST_UDP_BYTES (sizeof(struct udphdr) + sizeof(struct bth) + sizeof(struct reth) + 4)

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
	exit = check_lengths(l3, udp, ipv6, frame_bytes - l3_offset);
	if (exit)
		return exit;
	if (udp->len != bpf_htons(REQUEST_UDP_BYTES))
		return ONLOOKER_ROCE_LENGTH;
	if (bth->flags & BTH_PAD_MASK)
		return ONLOOKER_PAD_COUNT;
	reth = (void *)(bth + 1);
	if ((void *)(reth + 1) + 4 > end)
		return ONLOOKER_TRUNCATED;
	request->now_ns = now_ns;
	request->l3_offset = l3_offset;
	request->ipv6 = ipv6;
	request->packed = 0;
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
