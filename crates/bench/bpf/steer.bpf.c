// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * In the place of a network card's rule: what goes to one UDP port leaves by the second queue of a veth device, and so
 * arrives in the second receive queue of the other end; all else by the first.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

const volatile __u16 steered_port = 4791;

SEC("tc")
int bench_steer(struct __sk_buff *skb)
{
	struct { struct ethhdr eth; struct iphdr ip; struct udphdr udp; } __attribute__((packed)) head;

	/* Queues count from 1 here; 0 is none. */
	skb->queue_mapping = 1;
	if (bpf_skb_load_bytes(skb, 0, &head, sizeof(head)))
		return TC_ACT_OK;
	if (head.eth.h_proto == bpf_htons(ETH_P_IP) && head.ip.ihl == 5 && head.ip.protocol == IPPROTO_UDP &&
	    head.udp.dest == bpf_htons(steered_port))
		skb->queue_mapping = 2;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
