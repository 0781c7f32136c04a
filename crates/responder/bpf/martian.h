/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where a frame comes from and whom it is for: addresses, and which of them cannot be. The stack would drop such packets ("martians"), but the responder
 * answers before the stack sees them.
 */
#ifndef ONLOOKER_MARTIAN_H
#define ONLOOKER_MARTIAN_H

#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include "maps.h"

/* The loopback device of every network namespace (LOOPBACK_IFINDEX of net/flow.h, which drivers/net/loopback.c insists on). */
#define LOOPBACK_DEVICE 1

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

static __always_inline int is_mapped(const struct onlooker_address *address)
{
	const __u32 *halves = (const __u32 *)address->bytes;

	return !halves[0] && !halves[1] && halves[2] == bpf_htonl(0xffff);
}

/* 127.0.0.0/8 and ::1: at home on the loopback device only (RFC 1122 3.2.1.3, RFC 4291 2.5.3). */
static __always_inline int is_loopback(const struct onlooker_address *address)
{
	const __u32 *halves = (const __u32 *)address->bytes;

	if (is_mapped(address))
		return address->bytes[12] == 127;
	return !halves[0] && !halves[1] && !halves[2] && halves[3] == bpf_htonl(1);
}

/* "This network", groups and broadcast (RFC 1122 3.2.1.3): never anybody's source. */
static __always_inline int is_nobody_ipv4(const struct onlooker_address *address)
{
	const __u32 *halves = (const __u32 *)address->bytes;

	return !address->bytes[12] || (address->bytes[12] & 0xf0) == 0xe0 || halves[3] == ~0u;
}

/* Groups, the unspecified address (RFC 4291 2.5.2, 2.7), and IPv4 addresses in the form that they have inside hosts only, as `sources` has them. */
static __always_inline int is_nobody_ipv6(const struct onlooker_address *address)
{
	const __u32 *halves = (const __u32 *)address->bytes;

	return address->bytes[0] == 0xff || is_mapped(address) || !(halves[0] | halves[1] | halves[2] | halves[3]);
}

/* Whether nobody can have sent this frame: an address that is nobody's, or one that only this host has, from outside of it. */
static __always_inline int is_martian(struct place *place)
{
	if (place->ipv6 ? is_nobody_ipv6(&place->source) : is_nobody_ipv4(&place->source))
		return 1;
	if (place->device == LOOPBACK_DEVICE)
		return 0;
	return is_loopback(&place->source) || bpf_map_lookup_elem(&own_addresses, &place->source) != NULL;
}

/*
 * A frame for our port may still be for another host: a bridge port and a promiscuous device see those too. One from outside to a loopback address is for
 * nobody.
 */
static __always_inline int is_own(struct place *place)
{
	if (place->ipv6 && is_mapped(&place->destination))
		return 0;
	if (place->device != LOOPBACK_DEVICE && is_loopback(&place->destination))
		return 0;
	return bpf_map_lookup_elem(&own_addresses, &place->destination) != NULL;
}

#endif
