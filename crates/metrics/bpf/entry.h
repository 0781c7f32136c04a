/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * By what a device is told from a later one at the same address and under the same number: the id of its directory in sysfs, which is never given twice
 * (__kernfs_new_node of fs/kernfs/dir.c). A disk's diskseq would not do: it stays when a partition is made anew, and changes with the medium, over which counters go on.
 */
#ifndef ONLOOKER_COLLECT_ENTRY_H
#define ONLOOKER_COLLECT_ENTRY_H

#include "base.h"

/* Of a struct device; 0: it has none (any more), or the kernel has no sysfs. A function of its own, so that its stack is not its callers'. */
__noinline __u64 onlooker_entry_of(__u64 device)
{
	__u64 node = 0, id = 0;

	if (!bpf_core_field_exists(((struct kernfs_node *)0)->id))
		return 0;
	if (READ_FIELD(&node, struct device, device, kobj.sd) || !node)
		return 0;
	READ_FIELD(&id, struct kernfs_node, node, id);
	return id;
}

#endif
