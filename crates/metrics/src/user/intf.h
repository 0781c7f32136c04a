/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the program of descriptor tables and its loader; src/user/table.rs has the same on the Rust side. The loader writes all of it before
 * the first READ, the program only reads it.
 */
#ifndef ONLOOKER_USER_INTF_H
#define ONLOOKER_USER_INTF_H

#include "../../bpf/intf.h"

/* Pointers that are followed on the way to a value: an address is no longer known once it is installed, only where its first pointer stands. */
#define USER_HOPS 4

/* Bytes that one read takes at most. */
#define USER_READ_BYTES 4096

/*
 * A run of numbers in the kernel's memory; an element of map `reads`. The first stands at `base` where there are no hops; else at what is read from there, plus
 * offsets[0], and so on.
 */
struct onlooker_user_read {
	__u64 base;
	__u64 offsets[USER_HOPS];
	__u32 bytes;  /* from the first number's first byte to the last one's last */
	__u32 stride; /* from one number to the next */
	__u16 slot;   /* of the first, in its block; the others follow */
	__u16 count;
	__u8 hops;
	__u8 shift; /* 64 less the bits of a number */
	__u8 is_signed;
	__u8 reserved;
};

/* A block; map `blocks`. */
struct onlooker_user_block {
	struct onlooker_space space; /* net 0: none of its values is of the loader's namespace */
	__u32 first;                 /* element of map `reads` */
	__u32 reads;
};

COLLECT_SIZE(onlooker_user_read, 56);
COLLECT_OFFSET(onlooker_user_read, base, 0);
COLLECT_OFFSET(onlooker_user_read, offsets, 8);
COLLECT_OFFSET(onlooker_user_read, bytes, 40);
COLLECT_OFFSET(onlooker_user_read, stride, 44);
COLLECT_OFFSET(onlooker_user_read, slot, 48);
COLLECT_OFFSET(onlooker_user_read, count, 50);
COLLECT_OFFSET(onlooker_user_read, hops, 52);
COLLECT_OFFSET(onlooker_user_read, shift, 53);
COLLECT_OFFSET(onlooker_user_read, is_signed, 54);
COLLECT_SIZE(onlooker_user_block, 24);
COLLECT_OFFSET(onlooker_user_block, space, 0);
COLLECT_OFFSET(onlooker_user_block, first, 16);
COLLECT_OFFSET(onlooker_user_block, reads, 20);

#endif
