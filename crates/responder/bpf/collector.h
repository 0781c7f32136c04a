/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * For collectors, in objects of their own: a pair of programs (SEC("tc") and SEC("xdp")) that the loader puts into a slot of `collectors_tc` and
 * `collectors_xdp`. A collector is entered once the request has passed every check. It writes payload words of the block in the scratch and ends with
 * COLLECTOR_FINISH; it must not touch the packet. On entry all words are zero but the time (word 1); version, identity and CRC are added by `finish`.
 *
 * The maps declared here are replaced by the responder's own when the object is loaded (Responder::adopt_maps), so declare no others by these names.
 * The sections must be "tc" and "xdp" exactly: from 6.18 on the kernel allows tail calls only between programs of one expected attach type, and the
 * responder's tc programs have none.
 *
 * If nothing may be told, return collector_refuse_tc() or collector_refuse_xdp(): the request is dropped and counted.
 */
#ifndef ONLOOKER_COLLECTOR_H
#define ONLOOKER_COLLECTOR_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"

/* The block of a scratch, as words: docs/format/block.md, guarded block. */
#define COLLECTOR_BLOCK(scratch) (&(scratch)->packet.words[ONLOOKER_DATA_WORD])
#define COLLECTOR_TIME 1
#define COLLECTOR_PAYLOAD 3
#define COLLECTOR_SLOTS 124

/* Comes back only if the responder is gone. */
#define COLLECTOR_FINISH(context, collectors) bpf_tail_call(context, &(collectors), ONLOOKER_FINISH_SLOT)

static __always_inline int collector_refuse_tc(void)
{
	count(ONLOOKER_COLLECTOR_REFUSED);
	return TC_ACT_SHOT;
}

static __always_inline int collector_refuse_xdp(void)
{
	count(ONLOOKER_COLLECTOR_REFUSED);
	return XDP_DROP;
}

#endif
