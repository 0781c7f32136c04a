/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The answer: headers rewritten in the packet, which has its final size by then, and BTH to ICRC made in the scratch for one store behind them
 * (docs/format/wire.md, responder profile).
 */
#ifndef ONLOOKER_ANSWER_H
#define ONLOOKER_ANSWER_H

#include "crc.h"
#include "frame.h"
#include "transport.h"

#define ANSWER_HOP_LIMIT 64
#define ECN_CAPABLE 2
#define AETH_ACK 0x1f

/* BTH, AETH, data and ICRC. */
static __always_inline __u32 answer_transport_bytes(__u32 length_bytes)
{
	return sizeof(struct bth) + 4 + length_bytes + 4;
}

/* A whole block behind a header of version, time and identity: closes a computed block as docs/format/block.md says of guarded ones. */
static __always_inline __u32 seal_computed(struct onlooker_scratch *s)
{
	__u64 *block = &s->packet.words[ONLOOKER_DATA_WORD];
	__u32 sum;

	block[0] = 2; /* no writer: any even version but 0 */
	block[2] = s->request.identity;
	sum = onlooker_crc(s, ~0u, ONLOOKER_DATA_WORD, ONLOOKER_BLOCK_WORDS - 1);
	block[ONLOOKER_BLOCK_WORDS - 1] = 2 | (__u64)~sum << 32;
	return sum;
}

/*
 * Swaps the addresses and, but for devices, the ports, and writes IP and UDP headers for `transport_bytes`, into the packet as they are sent and into
 * the scratch as the ICRC sees them.
 */
static __always_inline int answer_headers(void *data, void *end, struct onlooker_scratch *s, __u32 transport_bytes)
{
	__u32 *halves = s->packet.halves;
	__u32 udp_bytes = sizeof(struct udphdr) + transport_bytes;
	__u32 traffic_class = config.dscp << 2 | ECN_CAPABLE;
	__u16 *ethernet = data;
	__u32 *ip, *udp, ports;

	if ((void *)(ethernet + 6) > end)
		return ONLOOKER_ROOM;
	ip = l3_header(data, s->request.l3_offset);
#pragma unroll
	for (int half = 0; half < 3; half++) {
		__u16 destination = ethernet[half];

		ethernet[half] = ethernet[3 + half];
		ethernet[3 + half] = destination;
	}
	if (s->request.ipv6) {
		udp = ip + 10;
		if ((void *)(udp + 2) > end)
			return ONLOOKER_ROOM;
		halves[0] = 0;
		halves[1] = 0;
		halves[2] = 0;
		halves[3] = ~0u;
		halves[4] = 0xffffff6f;
		ip[0] = bpf_htonl(6 << 28 | traffic_class << 20);
		ip[1] = bpf_htons(udp_bytes) | (IPPROTO_UDP | ANSWER_HOP_LIMIT << 8) << 16;
		halves[5] = ip[1] | 0xff000000;
#pragma unroll
		for (int half = 0; half < 4; half++) {
			__u32 source = ip[2 + half], destination = ip[6 + half];

			ip[2 + half] = destination;
			ip[6 + half] = source;
			halves[6 + half] = destination;
			halves[10 + half] = source;
		}
	} else {
		__u32 source, destination;

		udp = ip + 5;
		if ((void *)(udp + 2) > end)
			return ONLOOKER_ROOM;
		source = ip[3];
		destination = ip[4];
		/* Identification 0: an answer is never fragmented, and a requester on a socket could not know another one. */
		halves[8] = ~0u;
		ip[0] = IPV4_VERSION_AND_LENGTH | traffic_class << 8 | (__u32)bpf_htons(sizeof(struct iphdr) + udp_bytes) << 16;
		ip[1] = (__u32)bpf_htons(IPV4_DONT_FRAGMENT) << 16;
		ip[2] = ANSWER_HOP_LIMIT | IPPROTO_UDP << 8;
		ip[3] = destination;
		ip[4] = source;
		ip[2] |= (~ipv4_sum(ip) & 0xffff) << 16;
		halves[9] = ip[0] | 0x0000ff00;
		halves[10] = ip[1];
		halves[11] = 0xffff00ff | IPPROTO_UDP << 8;
		halves[12] = destination;
		halves[13] = source;
	}
	ports = udp[0] >> 16 | udp[0] << 16;
	/*
	 * A device receives on RoCEv2's own port only. Its source port says which flow a packet belongs to, and nobody checks it (CA17-20): the answer keeps the
	 * request's, by which routers and queues spread answers as they spread requests, and those of one queue pair stay in order.
	 */
	if (config.roce && udp[0] >> 16 == (__u32)bpf_htons(ROCE_PORT))
		ports = udp[0];
	udp[0] = ports;
	/* Checksum 0: the ICRC covers more, and RFC 6935 allows it for IPv6 where the receiver agrees. */
	udp[1] = bpf_htons(udp_bytes);
	halves[14] = ports;
	halves[15] = bpf_htons(udp_bytes) | 0xffff0000;
	return ONLOOKER_GO_ON;
}

/*
 * BTH, AETH and ICRC around the data in the scratch. There are no queue pairs: the answer goes to the number that the request named, which is the
 * requester's own by agreement. The message number counts as if every READ since PSN 0 had been answered.
 */
static __always_inline void answer_transport(struct onlooker_scratch *s, int computed)
{
	__u32 *transport = &s->packet.halves[2 * ONLOOKER_TRANSPORT_WORD];
	__u32 words = s->request.length_bytes / 8;
	__u32 first = s->request.ipv6 ? 0 : 4;
	__u32 qpn = bpf_htonl(s->request.qpn);
	__u32 sum = computed ? seal_computed(s) : 0;

	transport[0] = BTH_READ_ANSWER_ONLY | BTH_MIGRATION << 8 | (__u32)BTH_FULL_MEMBER << 16;
	transport[1] = qpn | 0xff;
	transport[2] = bpf_htonl(s->request.psn);
	transport[3] = bpf_htonl((__u32)AETH_ACK << 24 | ((s->request.psn + 1) & 0xffffff));
	if (words > ONLOOKER_MAX_READ_WORDS)
		return;
	if (!config.skip_icrc) {
		if (computed) {
			/* The block has just been summed: join both sums, and add its last word. Its register began as ones, hence the flip. */
			__u32 headers = onlooker_crc(s, 0, first, ONLOOKER_DATA_WORD - first);

			sum = crc_word(sum ^ crc_shift(~headers), s->packet.words[ONLOOKER_DATA_WORD + ONLOOKER_BLOCK_WORDS - 1]);
		} else {
			sum = onlooker_crc(s, 0, first, ONLOOKER_DATA_WORD - first + words);
		}
		s->packet.words[ONLOOKER_DATA_WORD + words] = ~sum;
	}
	transport[1] = qpn;
}

#endif
