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

_Static_assert(sizeof(struct onlooker_tcp_record) == 104, "src/connections/record.rs has these offsets");

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

#endif
