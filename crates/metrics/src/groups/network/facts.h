/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group network: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

/* How a device counts: a value of map `ways`, whose keys are the addresses of ndo_get_stats64 functions. */
enum onlooker_way {
	ONLOOKER_WAY_LSTATS = 1,         /* per CPU: packets and bytes, the same for both directions */
	ONLOOKER_WAY_TSTATS = 2,         /* per CPU: packets and bytes of both directions */
	ONLOOKER_WAY_VETH = 3, /* per CPU: what it sent, the other end what it received; and what queues count */
};

/* Receive queues of a veth that are looked at; of those with more there is no row. */
#define COLLECT_VETH_QUEUES 8

/* Group network. Buckets of a namespace's devices by number (NETDEV_HASHENTRIES), and the devices looked at in one READ at most. */
#define COLLECT_BUCKETS 256
#define COLLECT_SCAN_DEVICES 16
#define COLLECT_CHAIN_DEVICES 16
#define COLLECT_DEVICE_CPUS 8

/* One for the namespace; map `namespace`. The loader writes `net` and `capacity`, the programs the rest. */
struct onlooker_namespace {
	__u64 net;
	__u32 capacity; /* rows */
	__u32 used;     /* rows that ever had a device */
	__u32 busy;     /* somebody changes rows: others only read them */
	__u32 sequence; /* dev_base_seq of the scan */
	__u32 cursor;   /* bucket where the scan goes on */
	__u32 uncovered; /* devices without a row, in the scan */
	__u32 free;      /* rows on the list of free ones */
	__u32 reserved;
};

/* A device; map `rows`. */
struct onlooker_row {
	__u64 device; /* struct net_device; 0: free */
	__u64 entry;  /* of the device in sysfs: entry.h */
	__u64 stats;
	__u64 name[2];
	__u32 ifindex;
	__u32 generation;
	__u32 way;
	__u32 sequence; /* odd: being changed */
};

COLLECT_SIZE(onlooker_namespace, 40);
COLLECT_OFFSET(onlooker_namespace, net, 0);
COLLECT_OFFSET(onlooker_namespace, capacity, 8);
COLLECT_OFFSET(onlooker_namespace, used, 12);
COLLECT_OFFSET(onlooker_namespace, sequence, 20);
COLLECT_OFFSET(onlooker_namespace, cursor, 24);
COLLECT_OFFSET(onlooker_namespace, free, 32);
COLLECT_SIZE(onlooker_row, 56);

#endif
