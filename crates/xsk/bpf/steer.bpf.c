/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Steers datagrams for one address and UDP port into the AF_XDP socket of the queue that they came by. Everything else,
 * and what a socket's frames cannot hold, goes to the stack, where an ordinary UDP socket has the same port.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define IPV4_VERSION_AND_LENGTH 0x45
#define IPV4_MORE_OR_OFFSET 0x3fff
/*
 * As MAX_FRAME_BYTES in src/memory.rs, which is compared. A constant: without CAP_PERFMON the verifier lets only
 * constants be added to a packet's address.
 */
#define MAX_FRAME_BYTES 1792

/* Set before the program is loaded. */
const volatile struct {
	__u8 address[16]; /* IPv4: the first four bytes */
	__be16 port;
	__u16 ipv6;
	__u32 max_frame_bytes;
} own = { .max_frame_bytes = MAX_FRAME_BYTES };

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
	__uint(max_entries, 1); /* as many as the device has queues */
} sockets SEC(".maps");

static __always_inline int is_own_ipv4(const struct iphdr *ip, const void *end)
{
	if ((void *)(ip + 1) > end || *(__u8 *)ip != IPV4_VERSION_AND_LENGTH || ip->protocol != IPPROTO_UDP)
		return 0;
	return !(ip->frag_off & bpf_htons(IPV4_MORE_OR_OFFSET)) && ip->daddr == *(const volatile __be32 *)own.address;
}

static __always_inline int is_own_ipv6(const struct ipv6hdr *ip, const void *end)
{
	const volatile __be32 *address = (const volatile __be32 *)own.address;

	if ((void *)(ip + 1) > end || ip->nexthdr != IPPROTO_UDP)
		return 0;
	return ip->daddr.s6_addr32[0] == address[0] && ip->daddr.s6_addr32[1] == address[1] &&
	       ip->daddr.s6_addr32[2] == address[2] && ip->daddr.s6_addr32[3] == address[3];
}

SEC("xdp")
int onlooker_steer(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	void *ip = ethernet + 1;
	struct udphdr *udp;

	if (ip > end || data + MAX_FRAME_BYTES < end)
		return XDP_PASS;
	if (own.ipv6) {
		if (ethernet->h_proto != bpf_htons(ETH_P_IPV6) || !is_own_ipv6(ip, end))
			return XDP_PASS;
		udp = ip + sizeof(struct ipv6hdr);
	} else {
		if (ethernet->h_proto != bpf_htons(ETH_P_IP) || !is_own_ipv4(ip, end))
			return XDP_PASS;
		udp = ip + sizeof(struct iphdr);
	}
	if ((void *)(udp + 1) > end || udp->dest != own.port)
		return XDP_PASS;
	/* A queue without a socket: to the stack. */
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}
