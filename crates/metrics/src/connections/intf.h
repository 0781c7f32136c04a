/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One TCP socket as the iterator and the tracepoint tell it: the contract with src/connections/record.rs. */
#ifndef ONLOOKER_CONNECTIONS_INTF_H
#define ONLOOKER_CONNECTIONS_INTF_H

#include <linux/types.h>

/* Sockets that ended and wait for the agent: half a second of 16,384 connections a second, 900 KiB. */
#define CONNECTIONS_MAX_ENDED 8192

/* Addresses in network byte order, IPv4 as ::ffff:a.b.c.d; ports in host byte order; state as in net/tcp_states.h. */
struct onlooker_tcp_record {
	__u8 local[16];
	__u8 remote[16];
	__u16 local_port;
	__u16 remote_port;
	__u32 state;
	/* Names one socket for ever. */
	__u64 cookie;
	__u64 bytes_acked;
	__u64 bytes_received;
	__u32 retransmits;
	/* Smoothed round trip time and its mean deviation, us. */
	__u32 srtt_us;
	__u32 rttvar_us;
	/* Segments. */
	__u32 congestion_window;
	/* Bytes; of a listening socket: the length of its accept queue and the most that it can be. */
	__u32 receive_queue;
	__u32 send_queue;
	__u32 segments_sent;
	__u32 segments_received;
	__u32 unacknowledged;
	__u32 lost;
};

#define CONNECTIONS_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size in src/connections")
#define CONNECTIONS_OFFSET(type, field, at) \
	_Static_assert(__builtin_offsetof(struct type, field) == (at), #type "." #field " is elsewhere in src/connections")

CONNECTIONS_SIZE(onlooker_tcp_record, 104);
CONNECTIONS_OFFSET(onlooker_tcp_record, local, 0);
CONNECTIONS_OFFSET(onlooker_tcp_record, remote, 16);
CONNECTIONS_OFFSET(onlooker_tcp_record, local_port, 32);
CONNECTIONS_OFFSET(onlooker_tcp_record, remote_port, 34);
CONNECTIONS_OFFSET(onlooker_tcp_record, state, 36);
CONNECTIONS_OFFSET(onlooker_tcp_record, cookie, 40);
CONNECTIONS_OFFSET(onlooker_tcp_record, bytes_acked, 48);
CONNECTIONS_OFFSET(onlooker_tcp_record, bytes_received, 56);
CONNECTIONS_OFFSET(onlooker_tcp_record, retransmits, 64);
CONNECTIONS_OFFSET(onlooker_tcp_record, srtt_us, 68);
CONNECTIONS_OFFSET(onlooker_tcp_record, rttvar_us, 72);
CONNECTIONS_OFFSET(onlooker_tcp_record, congestion_window, 76);
CONNECTIONS_OFFSET(onlooker_tcp_record, receive_queue, 80);
CONNECTIONS_OFFSET(onlooker_tcp_record, send_queue, 84);
CONNECTIONS_OFFSET(onlooker_tcp_record, segments_sent, 88);
CONNECTIONS_OFFSET(onlooker_tcp_record, segments_received, 92);
CONNECTIONS_OFFSET(onlooker_tcp_record, unacknowledged, 96);
CONNECTIONS_OFFSET(onlooker_tcp_record, lost, 100);

/* What the tracepoint has done. */
struct onlooker_ended {
	/* Connections that ended. */
	__u64 seen;
	/* Of these without a place in the queue. */
	__u64 dropped;
	/* Inode of the network namespace whose connections are meant; 0: none yet. */
	__u32 namespace;
	__u32 reserved;
};

CONNECTIONS_SIZE(onlooker_ended, 24);
CONNECTIONS_OFFSET(onlooker_ended, seen, 0);
CONNECTIONS_OFFSET(onlooker_ended, dropped, 8);
CONNECTIONS_OFFSET(onlooker_ended, namespace, 16);

#endif
