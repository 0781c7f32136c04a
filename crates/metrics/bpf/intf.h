/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the contracts between collectors and their loader have in common; src/collect/intf.rs has the same on the Rust
 * side. A group's own is facts.h and facts.rs of its folder. The loader writes all of these before the first READ, from
 * what src/discover found out, and the programs only read them. Sizes and offsets are asserted on both sides.
 */
#ifndef ONLOOKER_COLLECT_INTF_H
#define ONLOOKER_COLLECT_INTF_H

#include <linux/types.h>

/*
 * CPUs of a block of eight. Two CPUs share 31 slots, 15 each: so the elements of even and of odd CPUs stand 31 slots apart over all blocks (124 slots
 * each), and the schema needs two arrays a value however many CPUs there are.
 */
#define COLLECT_CPUS_PER_BLOCK 8
#define COLLECT_PAIR_SLOTS 31
#define COLLECT_CPU_SLOTS 15
/* A number that no kernel statistic has. */
#define COLLECT_NONE 0xff

/* Rows of a block of a table, at most. */
#define COLLECT_ROWS_PER_BLOCK 16

/* What a block of the region has; map `tables`. Value slot of metric m and the table's CPU c: m * width + c. */
struct onlooker_table {
	__u32 first_row;
	__u32 rows;
	__u32 row_words;
	__u32 width;
	__u32 first_cpu;
	__u32 cpus;
};

/* Pieces of a packed block, at most: each is a tail call, of which the kernel allows 33. */
#define COLLECT_PACKED_PIECES 16

/* Words of a group in a packed block. */
struct onlooker_packed_piece {
	__u8 collector; /* its slot in the responder */
	__u8 block;     /* of the group */
	__u8 at;        /* first slot in the packed block */
	__u8 words;
};

/* Map `packed_blocks`, by block. */
struct onlooker_packed_block {
	__u32 pieces;
	struct onlooker_packed_piece piece[COLLECT_PACKED_PIECES];
};

/* Bytes of a `struct bpf_timer`, behind which stand the facts of a published twin. */
#define COLLECT_TIMER_BYTES 16
/* Blocks that a published twin's timer writes each time it fires, at most. */
#define COLLECT_TURN_BLOCKS 8
/* How often a twin past its responder's lease looks whether that was renewed. */
#define COLLECT_LAPSED_NS 1000000000

/* A published twin; map `publication`. The programs write `next`, `runs` and `spent_ns`. */
struct onlooker_publication_facts {
	__u64 interval_ns; /* between two turns, which begin at multiples of it */
	__u64 identity;    /* of block 0 */
	__u32 first_block; /* in the slab */
	__u32 blocks;
	__u32 next;
	__u32 turn_blocks; /* in a turn */
	__u64 runs;        /* blocks written */
	__u64 spent_ns;    /* on them */
};

/* What discovery asks and is answered; map `exchange`. */
#define COLLECT_READ_BYTES 4096

struct onlooker_exchange {
	__u64 address;
	__u32 bytes;
	__u32 cpu;
	__u64 runqueue;      /* of `cpu` */
	__u64 percpu_offset; /* __per_cpu_offset[cpu] */
	__u64 net;           /* network namespace of the caller */
	__u64 jiffies;
	__u64 now_ns;
	__u8 data[COLLECT_READ_BYTES];
};

/* A network namespace, and by what it is told from a later one at the same address. */
struct onlooker_space {
	__u64 net;
	__u64 cookie;
};

#define COLLECT_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size on the Rust side")
#define COLLECT_OFFSET(type, field, at) \
	_Static_assert(__builtin_offsetof(struct type, field) == (at), #type "." #field " is elsewhere on the Rust side")

COLLECT_SIZE(onlooker_table, 24);
COLLECT_OFFSET(onlooker_table, first_row, 0);
COLLECT_OFFSET(onlooker_table, rows, 4);
COLLECT_OFFSET(onlooker_table, row_words, 8);
COLLECT_OFFSET(onlooker_table, width, 12);
COLLECT_OFFSET(onlooker_table, first_cpu, 16);
COLLECT_OFFSET(onlooker_table, cpus, 20);
COLLECT_SIZE(onlooker_packed_piece, 4);
COLLECT_OFFSET(onlooker_packed_piece, collector, 0);
COLLECT_OFFSET(onlooker_packed_piece, block, 1);
COLLECT_OFFSET(onlooker_packed_piece, at, 2);
COLLECT_OFFSET(onlooker_packed_piece, words, 3);
COLLECT_SIZE(onlooker_packed_block, 4 + 4 * COLLECT_PACKED_PIECES);
COLLECT_OFFSET(onlooker_packed_block, pieces, 0);
COLLECT_OFFSET(onlooker_packed_block, piece, 4);
COLLECT_SIZE(onlooker_publication_facts, 48);
COLLECT_OFFSET(onlooker_publication_facts, interval_ns, 0);
COLLECT_OFFSET(onlooker_publication_facts, identity, 8);
COLLECT_OFFSET(onlooker_publication_facts, first_block, 16);
COLLECT_OFFSET(onlooker_publication_facts, blocks, 20);
COLLECT_OFFSET(onlooker_publication_facts, next, 24);
COLLECT_OFFSET(onlooker_publication_facts, turn_blocks, 28);
COLLECT_OFFSET(onlooker_publication_facts, runs, 32);
COLLECT_OFFSET(onlooker_publication_facts, spent_ns, 40);
COLLECT_SIZE(onlooker_exchange, 56 + COLLECT_READ_BYTES);
COLLECT_OFFSET(onlooker_exchange, address, 0);
COLLECT_OFFSET(onlooker_exchange, bytes, 8);
COLLECT_OFFSET(onlooker_exchange, cpu, 12);
COLLECT_OFFSET(onlooker_exchange, runqueue, 16);
COLLECT_OFFSET(onlooker_exchange, percpu_offset, 24);
COLLECT_OFFSET(onlooker_exchange, net, 32);
COLLECT_OFFSET(onlooker_exchange, jiffies, 40);
COLLECT_OFFSET(onlooker_exchange, now_ns, 48);
COLLECT_OFFSET(onlooker_exchange, data, 56);
COLLECT_SIZE(onlooker_space, 16);
COLLECT_OFFSET(onlooker_space, net, 0);
COLLECT_OFFSET(onlooker_space, cookie, 8);
_Static_assert(4 * COLLECT_PAIR_SLOTS == 124 && 2 * COLLECT_CPU_SLOTS <= COLLECT_PAIR_SLOTS, "pairs of CPUs fill blocks exactly");

#endif
