/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the translator's BPF programs and their loader; src/intf.rs has the same on the Rust side. docs/format/dta.md has
 * reports and memory byte by byte.
 */
#ifndef ONLOOKER_DTA_H
#define ONLOOKER_DTA_H

#include <linux/types.h>

#define DTA_MAX_TABLES 1024 /* their numbers are 0 to 1023: more than the memory of a host is divided into */
#define DTA_MAX_LISTS 256   /* each has its open batch, 8 KiB */
#define DTA_MAX_KEY_BYTES 64
#define DTA_MAX_PAYLOAD_BYTES 64
#define DTA_MAX_COPIES 4
#define DTA_MAX_BATCH 64
#define DTA_BATCH_HEADER_WORDS 4
#define DTA_MAX_BATCH_WORDS 640 /* 64 entries of 64 bytes and the header, in whole blocks */

/*
 * What became of a packet to our port: index of the per-CPU map `dta_counters`. All but DTA_STORED and DTA_PROBE are discarded. Up to the first of them the
 * numbers are the responder's (enum onlooker_exit), whose checks find these out. The order is that of the checks.
 */
enum onlooker_dta_exit {
	DTA_STORED = 32,
	DTA_PROBE = 33,
	DTA_TRUNCATED = 34,        /* shorter than a header */
	DTA_VERSION = 35,          /* not version 1 */
	DTA_FLAGS = 36,            /* importance or reserved bits, or a probe without a number */
	DTA_SEQUENCE = 37,         /* a number, and cannot be sent again */
	DTA_LENGTH = 38,           /* not as long as key and payload */
	DTA_PRIMITIVE = 39,        /* none of the four */
	DTA_KEY_LENGTH = 40,       /* none, too long, or where none belongs */
	DTA_PAYLOAD_LENGTH = 41,   /* likewise */
	DTA_COPIES = 42,           /* none that there are */
	DTA_TABLE = 43,            /* no such table */
	DTA_ACCESS = 44,           /* another access key */
	DTA_BUDGET = 45,           /* over the source's budget */
	DTA_OTHER_PRIMITIVE = 46,  /* the table is of another one */
	DTA_OTHER_PAYLOAD = 47,    /* not as long as the table's */
	DTA_DUPLICATE = 48,        /* came before */
	DTA_GAP = 49,              /* others are missing before it */
	DTA_UNKNOWN_REPORTER = 50, /* numbered, and nobody has said where the reporter begins */
	DTA_BUSY = 51,             /* another processor has the list, or still writes the batch before */
	DTA_SLAB = 52,             /* the table names a slab or block that is not there */
	DTA_EXITS = 53,
};

#define DTA_PRIMITIVE_PROBE 0
#define DTA_PRIMITIVE_KEY_WRITE 1
#define DTA_PRIMITIVE_APPEND 2
#define DTA_PRIMITIVE_KEY_INCREMENT 3

/* Value of `dta_tables`, by number. */
struct onlooker_dta_table {
	__u64 seed[2];
	__u32 access;
	__u32 slab;          /* index into `slabs` */
	__u32 first_block;   /* of the table; of counters, of the set that counts */
	__u32 slots_mask;    /* slots or batches, less one */
	__u32 slot_bytes;    /* of an entry or a batch */
	__u32 list;          /* of Append: index of `dta_lists` */
	__u8 primitive;      /* 0: there is no table */
	__u8 payload_bytes;
	__u8 check_bytes;    /* of Key-Write: 4 or 8 */
	__u8 batch;          /* of Append: entries of a full batch */
	__u8 set;            /* of counters: which one counts, 0 or 1 */
	__u8 reserved[3];
};

_Static_assert(sizeof(struct onlooker_dta_table) == 48, "onlooker_dta_table has another size in src/intf.rs");
_Static_assert(__builtin_offsetof(struct onlooker_dta_table, access) == 16, "access is elsewhere in src/intf.rs");
_Static_assert(__builtin_offsetof(struct onlooker_dta_table, primitive) == 40, "primitive is elsewhere in src/intf.rs");

#endif
