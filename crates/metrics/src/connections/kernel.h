/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's structures of TCP sockets, as far as they are read here; only names count (CO-RE), see bpf/kernel.h. */
#ifndef ONLOOKER_CONNECTIONS_KERNEL_H
#define ONLOOKER_CONNECTIONS_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

/* include/net/net_namespace.h */
struct net {
	struct ns_common ns;
};

/* include/linux/in6.h */
struct in6_addr {
	union {
		__u8 u6_addr8[16];
		__be32 u6_addr32[4];
	} in6_u;
};

/* include/net/sock.h */
struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct {
		struct net *net;
	} skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct sock {
	struct sock_common __sk_common;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	__u16 sk_protocol;
};

/* include/net/inet_sock.h, inet_connection_sock.h */
struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

/* include/linux/tcp.h */
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u32 total_retrans;
	__u32 srtt_us;
	__u32 mdev_us;
	__u32 snd_cwnd;
	__u32 snd_una;
	__u32 write_seq;
	__u32 rcv_nxt;
	__u32 copied_seq;
	__u32 segs_out;
	__u32 segs_in;
	__u32 packets_out;
	__u32 lost_out;
};

/* include/net/inet_timewait_sock.h */
struct inet_timewait_sock {
	volatile unsigned char tw_substate;
};

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
};

/* include/uapi/linux/bpf.h, net/ipv4/tcp_ipv4.c */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

#pragma clang attribute pop

/* include/linux/socket.h, include/net/tcp_states.h */
#define AF_INET 2
#define AF_INET6 10
#define IPPROTO_TCP 6
#define TCP_SYN_SENT 2
#define TCP_TIME_WAIT 6
#define TCP_CLOSE 7
#define TCP_LISTEN 10

#endif
