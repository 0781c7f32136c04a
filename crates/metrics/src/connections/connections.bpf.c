// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * TCP sockets of a network namespace, a record each: those that are there, by an iterator that runs when its pinned link is opened and read, and, only where that is
 * switched on, those that end, by a tracepoint that leaves a last record in a queue. src/connections says who reads them.
 *
 * The iterator runs in its reader's context and holds each socket's lock for its record, a bucket of the hash table at a time (bpf_iter_tcp_batch in
 * net/ipv4/tcp_ipv4.c). The tracepoint runs in whoever changes a socket's state.
 */
#include "kernel.h"
#include "intf.h"

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, CONNECTIONS_MAX_ENDED);
	__type(value, struct onlooker_tcp_record);
} ended SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_ended);
} ended_facts SEC(".maps");

static __always_inline void put_ipv4(__u8 *to, __be32 address)
{
	__builtin_memset(to, 0, 10);
	to[10] = 0xff;
	to[11] = 0xff;
	__builtin_memcpy(to + 12, &address, 4);
}

static __always_inline void put_ends(struct onlooker_tcp_record *r, const struct sock_common *sk)
{
	r->local_port = sk->skc_num;
	r->remote_port = bpf_ntohs(sk->skc_dport);
	if (sk->skc_family == AF_INET6 && bpf_core_field_exists(sk->skc_v6_daddr)) {
		BPF_CORE_READ_INTO(&r->local, sk, skc_v6_rcv_saddr.in6_u.u6_addr8);
		BPF_CORE_READ_INTO(&r->remote, sk, skc_v6_daddr.in6_u.u6_addr8);
		return;
	}
	put_ipv4(r->local, sk->skc_rcv_saddr);
	put_ipv4(r->remote, sk->skc_daddr);
}

/* As tcp_get_info in net/ipv4/tcp.c has them: srtt is kept times 8, the deviation times 4. */
static __always_inline void put_values(struct onlooker_tcp_record *r, const struct tcp_sock *tp)
{
	r->bytes_acked = tp->bytes_acked;
	r->bytes_received = tp->bytes_received;
	r->retransmits = tp->total_retrans;
	r->srtt_us = tp->srtt_us >> 3;
	r->rttvar_us = tp->mdev_us >> 2;
	r->congestion_window = tp->snd_cwnd;
	r->segments_sent = tp->segs_out;
	r->segments_received = tp->segs_in;
	r->unacknowledged = tp->packets_out;
	r->lost = tp->lost_out;
	if (r->state == TCP_LISTEN) {
		const struct sock *sk = &tp->inet_conn.icsk_inet.sk;

		r->receive_queue = sk->sk_ack_backlog;
		r->send_queue = sk->sk_max_ack_backlog;
		return;
	}
	/* As tcp_diag_get_info: copied_seq is read after rcv_nxt may have moved, and a FIN counts one. */
	__s32 unread = (__s32)(tp->rcv_nxt - tp->copied_seq);

	r->receive_queue = unread > 0 ? unread : 0;
	r->send_queue = tp->write_seq - tp->snd_una;
}

SEC("iter/tcp")
int dump_connections(struct bpf_iter__tcp *context)
{
	struct sock_common *sk = context->sk_common;
	struct onlooker_tcp_record r = {};
	struct tcp_timewait_sock *tw;
	struct tcp_sock *tp;

	if (!sk)
		return 0;
	put_ends(&r, sk);
	r.state = sk->skc_state;
	r.cookie = bpf_get_socket_cookie(sk);
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp) {
		put_values(&r, tp);
	} else if (r.state == TCP_TIME_WAIT) {
		tw = bpf_skc_to_tcp_timewait_sock(sk);
		/* FIN_WAIT2 ends without a full socket, too. */
		if (tw)
			r.state = tw->tw_sk.tw_substate;
	}
	/* Too small a buffer: the kernel asks again with the same socket. */
	bpf_seq_write(context->meta->seq, &r, sizeof(r));
	return 0;
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(connection_ended, const struct sock *sk, int before, int after)
{
	struct onlooker_tcp_record r = {};
	struct onlooker_ended *facts;
	struct tcp_sock *tp;
	__u32 zero = 0;

	(void)ctx;
	/* An attempt that came to nothing, and a listener, are no connections. */
	if (after != TCP_CLOSE || before == TCP_LISTEN || before == TCP_CLOSE || before == TCP_SYN_SENT)
		return 0;
	facts = bpf_map_lookup_elem(&ended_facts, &zero);
	if (!facts || !facts->namespace || sk->__sk_common.skc_net.net->ns.inum != facts->namespace)
		return 0;
	tp = bpf_skc_to_tcp_sock((void *)sk);
	if (!tp)
		return 0;
	put_ends(&r, &sk->__sk_common);
	r.state = before;
	r.cookie = bpf_get_socket_cookie((void *)sk);
	put_values(&r, tp);
	__sync_fetch_and_add(&facts->seen, 1);
	if (bpf_map_push_elem(&ended, &r, 0))
		__sync_fetch_and_add(&facts->dropped, 1);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
