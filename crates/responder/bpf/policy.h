/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Who may ask: whether a frame is for this host, whether it can come from where it says, whether its source is allowed,
 * and what is left of the budgets. The stack would drop impossible sources ("martians"), but the responder answers
 * before the stack sees them.
 */
#ifndef ONLOOKER_POLICY_H
#define ONLOOKER_POLICY_H

#include "frame.h"
#include "maps.h"

/* The loopback device of every network namespace (LOOPBACK_IFINDEX of net/flow.h, which drivers/net/loopback.c insists on). */
#define LOOPBACK_DEVICE 1

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

/*
 * The processor's budget counts READs of memory (check_budgets); a computed block is charged here for the time it took beyond that of one: as many READs as
 * the time has room for.
 */
static __always_inline void charge_time(const struct onlooker_scratch *s)
{
	__u64 took_ns = bpf_ktime_get_boot_ns() - s->request.now_ns;
	__u32 zero = 0;
	__u64 *due;

	if (took_ns <= ONLOOKER_READ_NS)
		return;
	if (took_ns > ONLOOKER_MAX_CHARGED_NS)
		took_ns = ONLOOKER_MAX_CHARGED_NS;
	due = bpf_map_lookup_elem(&cpu_rate, &zero);
	if (due)
		*due += (took_ns - ONLOOKER_READ_NS) * config.cpu_interval_ns / ONLOOKER_READ_NS;
}

#endif
