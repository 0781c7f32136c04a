/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The kernel's own structures, as far as collectors read them. Only names count: offsets are relocated to the running kernel's when an object is loaded
 * (CO-RE), so order, gaps and padding here mean nothing. A field that a kernel may lack is asked for with bpf_core_field_exists; a structure that
 * changed its shape has flavours (`___suffix`, which CO-RE ignores).
 */
#ifndef ONLOOKER_COLLECT_KERNEL_H
#define ONLOOKER_COLLECT_KERNEL_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* kernel/sched/sched.h */
struct rq {
	unsigned int nr_running;
	__u64 nr_switches;
	struct {
		int counter;
	} nr_iowait;
	int cpu;
	int online;
};

struct cfs_rq {
	struct rq *rq;
};

struct task_group {
	struct cfs_rq **cfs_rq;
};

/* kernel/time/tick-sched.h; before 6.10 the flags were bit fields, before 6.4 there was no sequence. */
struct tick_sched {
	unsigned long flags;
	__s64 idle_entrytime;
	__s64 idle_sleeptime;
	__s64 iowait_sleeptime;
	struct {
		unsigned int sequence;
	} idle_sleeptime_seq;
};

struct tick_sched___bits {
	unsigned int idle_active : 1;
};

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

/* include/net/net_namespace.h */
struct net {
	unsigned int dev_base_seq;
	struct hlist_head *dev_index_head;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct task_group *sched_task_group;
	struct nsproxy *nsproxy;
};

/* include/linux/netdevice.h; lstats and tstats share a union. pcpu_stat_type is there from 6.7 on. */
struct net_device_ops {
	void *ndo_get_stats64;
	void *ndo_get_stats;
};

struct net_device {
	char name[16];
	int ifindex;
	const struct net_device_ops *netdev_ops;
	struct {
		struct net *net;
	} nd_net;
	struct hlist_node index_hlist;
	void *lstats;
	/* CO-RE tells enumerations from numbers, by kind and not by name. */
	enum onlooker_stat_type { ONLOOKER_STAT_TYPE } pcpu_stat_type : 8;
};

/* The state was an enumeration and became a byte. */
struct net_device___byte {
	unsigned char reg_state;
};

struct net_device___enum {
	enum onlooker_registration { ONLOOKER_REGISTRATION } reg_state : 8;
};

/* u64_stats_t is a structure of one number on 64-bit machines. */
struct onlooker_u64_stats {
	long v;
};

struct pcpu_lstats {
	struct onlooker_u64_stats packets;
	struct onlooker_u64_stats bytes;
};

struct pcpu_sw_netstats {
	struct onlooker_u64_stats rx_packets;
	struct onlooker_u64_stats rx_bytes;
	struct onlooker_u64_stats tx_packets;
	struct onlooker_u64_stats tx_bytes;
};

/* kernel/bpf: where a per-CPU array keeps its elements. */
struct bpf_array {
	void *pptrs[0];
};

#pragma clang attribute pop

/* TS_FLAG_IDLE_ACTIVE, a define in kernel/time/tick-sched.h. */
#define TICK_IDLE_ACTIVE (1ul << 2)

/* Of enum in struct net_device, and of enum netdev_stat_type. */
#define NETREG_REGISTERED 1
#define NETDEV_PCPU_STAT_TSTATS 2

/* Reads a field of the structure at a kernel address that is only known as a number; non-zero where the address is bad. */
#define READ_FIELD(to, type, address, field) \
	bpf_probe_read_kernel(to, sizeof(*(to)), (const void *)(address) + bpf_core_field_offset(((type *)0)->field))

#endif
