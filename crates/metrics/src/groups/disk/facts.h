/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Group disk: the contract between its program and the loader; facts.rs has the same on the Rust side. */
#ifndef ONLOOKER_FACTS_H
#define ONLOOKER_FACTS_H

#include "intf.h"

/* Group disk. Block devices looked at in one READ at most, and how long a look is put off for one that is not ready. */
#define COLLECT_SCAN_DISKS 16
#define COLLECT_SCAN_PAUSE_NS 1000000000
#define COLLECT_DISK_CPUS 6
/* Words of a disk's name as it stands in its row. */
#define COLLECT_DISK_NAME_WORDS 4

/* The list of all block devices; map `disks`. The loader writes `list` and `capacity`, the programs the rest. */
struct onlooker_disks {
	__u64 list;        /* list_head of the inodes */
	__u64 first;       /* its first when the scan began: new ones come in front; 0: a scan is due */
	__u64 first_entry; /* of that one in sysfs: the next first may be at the same address */
	__u64 cursor;      /* where the scan goes on; 0: it is complete */
	__u64 scanned_ns;  /* when it began */
	__u32 capacity;    /* rows */
	__u32 used;        /* rows that ever had a disk */
	__u32 busy;        /* somebody changes rows: others only read them */
	__u32 free;        /* rows on the list of free ones */
	__u32 waiting;     /* the scan met one that has no row yet */
	__u32 reserved;
};

/* A disk; map `rows`. */
struct onlooker_disk {
	__u64 device; /* struct block_device; 0: free */
	__u64 entry;  /* of the device in sysfs: entry.h */
	__u64 name[COLLECT_DISK_NAME_WORDS];
	__u32 number; /* dev_t */
	__u32 generation;
	__u32 sequence; /* odd: being changed */
	__u32 reserved;
};

COLLECT_SIZE(onlooker_disks, 64);
COLLECT_OFFSET(onlooker_disks, list, 0);
COLLECT_OFFSET(onlooker_disks, capacity, 40);
COLLECT_SIZE(onlooker_disk, 64);

#endif
