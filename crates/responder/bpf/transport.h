/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * RoCEv2's transport headers behind UDP: the base header (BTH) and that of requests for memory (RETH).
 * docs/format/wire.md names the fields and their sources.
 */
#ifndef ONLOOKER_TRANSPORT_H
#define ONLOOKER_TRANSPORT_H

#include <linux/types.h>

#define BTH_READ_REQUEST 0x0c
#define BTH_READ_ANSWER_ONLY 0x10
#define BTH_VERSION_MASK 0x0f
#define BTH_PAD_MASK 0x30
#define BTH_MIGRATION 0x40
#define BTH_FULL_MEMBER 0xffff
#define BTH_LIMITED_MEMBER 0x7fff

struct bth {
	__u8 opcode;
	__u8 flags;
	__be16 partition_key;
	__be32 qpn; /* with resv8a in front */
	__be32 psn; /* with the acknowledge request in front */
};

struct reth {
	__be32 va[2];
	__be32 rkey;
	__be32 length_bytes;
};

#endif
