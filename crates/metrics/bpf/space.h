/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The namespace whose numbers a group reads; the loader found it, and it may be gone by now. */
#ifndef ONLOOKER_COLLECT_SPACE_H
#define ONLOOKER_COLLECT_SPACE_H

#include "base.h"
#include "percpu.h"

/*
 * Whether the namespace is still there: net_cookie is never given twice (setup_net of net/core/net_namespace.c), and `passive` is 0 once the structure may be
 * freed, with the lists that it points at freed before.
 */
static __always_inline int space_is_there(const struct onlooker_space *space)
{
	__u64 cookie = 0;
	int passive = 1;

	if (READ_FIELD(&cookie, struct net, space->net, net_cookie) || cookie != space->cookie)
		return 0;
	if (bpf_core_field_exists(((struct net *)0)->passive))
		READ_FIELD(&passive, struct net, space->net, passive.refs.counter);
	return passive > 0;
}

#endif
