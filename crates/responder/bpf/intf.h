/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract between the BPF programs and their loader. src/intf.rs has the same on the Rust side; both assert sizes and offsets, and a test
 * compares the enumerators. Little-endian hosts only, as the block format is.
 */
#ifndef ONLOOKER_INTF_H
#define ONLOOKER_INTF_H

#include <linux/types.h>
#include "limits.h"

/*
 * How a packet that was ours left the program: index of the per-CPU map `counters`. Everything but ONLOOKER_ANSWERED and ONLOOKER_PASSED is a drop. The
 * order is that of the checks, so a counter says that all checks above it had passed; ONLOOKER_PASSED is beside it.
 */
enum onlooker_exit {
	ONLOOKER_GO_ON = 0, /* inside the programs only: nothing found wrong yet; never counted */
	ONLOOKER_ANSWERED = 1,
	ONLOOKER_OPTIONS = 2,            /* IPv4 options or IPv6 extension headers in front of UDP */
	ONLOOKER_AGGREGATED = 3,         /* several datagrams merged by receive offload (rx-udp-gro-forwarding): switch it off */
	ONLOOKER_LEASE = 4,              /* the lease is over: nobody looks after this responder any more */
	ONLOOKER_MARTIAN = 5,            /* source address that nobody can have on this device */
	ONLOOKER_SOURCE = 6,             /* source address not in `sources` */
	ONLOOKER_TRUNCATED = 7,          /* ends before the BTH does */
	ONLOOKER_OPCODE = 8,             /* anything but an RC READ request */
	ONLOOKER_TRANSPORT_VERSION = 9,  /* BTH, TVer */
	ONLOOKER_PARTITION_KEY = 10,     /* BTH, P_Key */
	ONLOOKER_IPV4_FLAGS = 11,        /* not "don't fragment" alone */
	ONLOOKER_IPV4_CHECKSUM = 12,     /* header checksum */
	ONLOOKER_IP_LENGTH = 13,         /* no room for UDP, or beyond what was received */
	ONLOOKER_UDP_LENGTH = 14,        /* unlike the IP payload */
	ONLOOKER_ROCE_LENGTH = 15,       /* not the length of a READ request */
	ONLOOKER_PAD_COUNT = 16,         /* pad on a packet without payload */
	ONLOOKER_RKEY = 17,              /* no such region */
	ONLOOKER_RANGE = 18,             /* outside of the region */
	ONLOOKER_PROFILE = 19,           /* length or alignment that the profile does not serve */
	ONLOOKER_SOURCE_RATE = 20,       /* over the source's budget */
	ONLOOKER_CPU_RATE = 21,          /* over this processor's budget for all sources */
	ONLOOKER_ICRC = 22,              /* request damaged */
	ONLOOKER_SLAB = 23,              /* region entry names a slab or block that is not there */
	ONLOOKER_COLLECTOR = 24,         /* region is computed and its collector is not installed */
	ONLOOKER_COLLECTOR_REFUSED = 25, /* the collector had nothing to say */
	ONLOOKER_MTU = 26,               /* the answer would be longer than the device's MTU, which was lowered since the attachment */
	ONLOOKER_ROOM = 27,              /* the packet could not grow to the answer's size (XDP: ask with padded requests, or use tc) */
	ONLOOKER_PASSED = 28,            /* RoCEv2's own port: a READ request that is not for us, left to the stack (read.h, claim) */
	ONLOOKER_EXITS = 29,
};

/* IPv6 address, or IPv4 as ::ffff:a.b.c.d. Key of `own_addresses` and `rate`. */
struct onlooker_address {
	__u8 bytes[16];
};

/* Key of `sources`; bits counts from the front of the 16 bytes. */
struct onlooker_prefix {
	__u32 bits;
	struct onlooker_address address;
};

#define ONLOOKER_KIND_MEMORY 0

/* Value of `regions`, by rkey. */
struct onlooker_region {
	__u64 va;          /* of the region's first byte */
	__u64 bytes;       /* whole blocks */
	__u64 identity;    /* computed regions: identity word of block 0; the block index is added (docs/format/block.md) */
	__u32 slab;        /* index into `slabs` */
	__u32 first_block; /* of the region, within the slab */
	__u32 kind;        /* ONLOOKER_KIND_MEMORY, or the collector's slot */
	__u32 reserved;
};

/*
 * Read-only data, set before loading. Rates count READs, in the form of the generic cell rate algorithm: of a source requests, of a processor blocks of
 * memory, and of computed blocks their time (policy.h, charge_time).
 */
struct onlooker_config {
	__u64 source_interval_ns; /* between two requests of one source at the sustained rate; 0: no limit */
	__u64 source_burst_ns;    /* how far a source may run ahead of it */
	__u64 cpu_interval_ns;    /* the same over all sources, per processor */
	__u64 cpu_burst_ns;
	__u32 max_read_bytes;
	__u16 port;
	__u8 dscp;
	__u8 skip_icrc; /* for measurements: neither check nor write ICRCs */
	__u8 roce;      /* answer RDMA devices on RoCEv2's own port, too; `port` is another one then */
	__u8 reserved[7];
};

/*
 * What a request asks for, kept over tail calls. A collector reads it; only the responder writes it.
 */
struct onlooker_request {
	__u64 va;
	__u64 now_ns;   /* CLOCK_BOOTTIME when the request came */
	__u64 identity; /* computed regions: of the block asked for */
	__u64 offset_bytes; /* within the region */
	__u32 rkey;
	__u32 length_bytes;
	__u32 psn;
	__u32 qpn;
	__u32 kind;
	__u16 l3_offset;
	__u8 ipv6;
	__u8 packed; /* 0 when a collector is entered for a region of its own; the collectors of the kernel's metrics use it (packed.h there) */
};

/*
 * Per-CPU scratch. `packet` is laid out so that one pass over it gives the ICRC and one store puts it into the packet:
 *   words 0-7    IP and UDP header as the ICRC sees them (masked), right-aligned, behind 4 bytes of ones: see crc.h
 *   words 8-9    BTH and AETH
 *   words 10-    data, then the ICRC
 */
#define ONLOOKER_TRANSPORT_WORD 8
#define ONLOOKER_DATA_WORD 10
#define ONLOOKER_PACKET_WORDS (ONLOOKER_DATA_WORD + ONLOOKER_MAX_READ_WORDS + 1)

struct onlooker_scratch {
	struct onlooker_request request;
	__u64 folded[6]; /* crc.h: between the two parts of a sum */
	union {
		__u64 words[ONLOOKER_PACKET_WORDS];
		__u32 halves[2 * ONLOOKER_PACKET_WORDS];
	} packet;
};

#define ONLOOKER_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type " has another size in src/intf.rs")
#define ONLOOKER_OFFSET(type, field, bytes) \
	_Static_assert(__builtin_offsetof(struct type, field) == (bytes), #type "." #field " is elsewhere in src/intf.rs")

ONLOOKER_SIZE(onlooker_address, 16);
ONLOOKER_SIZE(onlooker_prefix, 20);
ONLOOKER_OFFSET(onlooker_prefix, bits, 0);
ONLOOKER_OFFSET(onlooker_prefix, address, 4);
ONLOOKER_SIZE(onlooker_region, 40);
ONLOOKER_OFFSET(onlooker_region, va, 0);
ONLOOKER_OFFSET(onlooker_region, bytes, 8);
ONLOOKER_OFFSET(onlooker_region, identity, 16);
ONLOOKER_OFFSET(onlooker_region, slab, 24);
ONLOOKER_OFFSET(onlooker_region, first_block, 28);
ONLOOKER_OFFSET(onlooker_region, kind, 32);
ONLOOKER_SIZE(onlooker_config, 48);
ONLOOKER_OFFSET(onlooker_config, source_interval_ns, 0);
ONLOOKER_OFFSET(onlooker_config, source_burst_ns, 8);
ONLOOKER_OFFSET(onlooker_config, cpu_interval_ns, 16);
ONLOOKER_OFFSET(onlooker_config, cpu_burst_ns, 24);
ONLOOKER_OFFSET(onlooker_config, max_read_bytes, 32);
ONLOOKER_OFFSET(onlooker_config, port, 36);
ONLOOKER_OFFSET(onlooker_config, dscp, 38);
ONLOOKER_OFFSET(onlooker_config, skip_icrc, 39);
ONLOOKER_OFFSET(onlooker_config, roce, 40);
ONLOOKER_SIZE(onlooker_request, 56);
ONLOOKER_OFFSET(onlooker_request, offset_bytes, 24);
ONLOOKER_SIZE(onlooker_scratch, 8384);
ONLOOKER_OFFSET(onlooker_scratch, packet, 104);
ONLOOKER_OFFSET(onlooker_scratch, packet.words[ONLOOKER_DATA_WORD], 184);

_Static_assert(ONLOOKER_MAX_READ_BYTES == 8 * ONLOOKER_MAX_READ_WORDS, "bytes and words of the largest READ differ");
_Static_assert(ONLOOKER_BLOCK_BYTES == 8 * ONLOOKER_BLOCK_WORDS, "bytes and words of a block differ");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the block format and the ICRC code are little-endian");

#endif
