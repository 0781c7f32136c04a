/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Every limit of the responder, each with its reason. docs/responder.md repeats them for people. */
#ifndef ONLOOKER_LIMITS_H
#define ONLOOKER_LIMITS_H

/* Unit of alignment, consistency and answers (docs/format/block.md). */
#define ONLOOKER_BLOCK_BYTES 1024
#define ONLOOKER_BLOCK_WORDS 128

/* Largest READ that may be configured: its answer fits an MTU of 9000 (docs/format/wire.md, responder profile). */
#define ONLOOKER_MAX_READ_BYTES 8192
#define ONLOOKER_MAX_READ_WORDS 1024

/* Slabs: one for the agent's own regions and one a user; each is a BPF array of its own. */
#define ONLOOKER_MAX_SLABS 64

/* Regions over all slabs: eight times what the control region's entries can name. Entries are allocated when made. */
#define ONLOOKER_MAX_REGIONS 65536

/* Addresses of the devices that the responder is attached to. */
#define ONLOOKER_MAX_ADDRESSES 256

/* Prefixes that may ask. */
#define ONLOOKER_MAX_SOURCES 1024

/* Sources whose budget is remembered; the least recently used one is forgotten, and starts with a full budget when it returns. */
#define ONLOOKER_MAX_RATED_SOURCES 4096

/* Slots of the collector table; slot 0 is the program that finishes an answer. */
#define ONLOOKER_MAX_COLLECTORS 64
#define ONLOOKER_FINISH_SLOT 0

/* From Ethernet to ICRC: two VLAN tags, IPv6, UDP, BTH, RETH, ICRC. A request is never longer, its padding apart. */
#define ONLOOKER_MAX_REQUEST_BYTES (14 + 8 + 40 + 8 + 12 + 16 + 4)

/* IPv6 extension headers that are followed to find out whether a packet is for our port: each kind of RFC 8200 once, destination options twice. */
#define ONLOOKER_MAX_EXTENSION_HEADERS 8

/*
 * What the processor's budget counts as one READ: that is what 1024 bytes of memory take (docs/responder.md, Cost). A computed block counts as often as
 * its time has room for; beyond the longest time that a collector may be allowed, an interrupt or the hypervisor took it.
 */
#define ONLOOKER_READ_NS 500
#define ONLOOKER_MAX_CHARGED_NS 100000

/* Attempts at a source's budget when other processors change it at the same instant; past them the request is let through. */
#define ONLOOKER_RATE_TRIES 3

#endif
