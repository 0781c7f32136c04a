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
struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
};

struct rq {
	unsigned int nr_running;
	__u64 nr_switches;
	struct {
		int counter;
	} nr_iowait;
	int cpu;
	int online;
	/* CONFIG_SCHEDSTATS. */
	struct sched_info rq_sched_info;
	unsigned long long rq_cpu_time;
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
	struct {
		struct {
			int counter;
		} refs;
	} passive;
	__u64 net_cookie;
	unsigned int dev_base_seq;
	struct hlist_head *dev_index_head;
};

struct nsproxy {
	struct net *net_ns;
};

struct task_struct {
	struct task_group *sched_task_group;
	struct nsproxy *nsproxy;
	struct files_struct *files;
	struct fs_struct *fs;
};

/* fs/kernfs: a device's directory in sysfs. */
struct kernfs_node {
	__u64 id;
};

struct kobject {
	struct kernfs_node *sd;
};

struct device {
	struct kobject kobj;
};

/* include/linux/netdevice.h; lstats and tstats share a union. pcpu_stat_type is there from 6.7 on. */
struct net_device_ops {
	void *ndo_get_stats64;
	void *ndo_get_stats;
};

/* What a driver counts for the whole device, and what the stack drops per CPU. */
struct net_device_stats {
	unsigned long rx_packets;
	unsigned long tx_packets;
	unsigned long rx_bytes;
	unsigned long tx_bytes;
	unsigned long rx_dropped;
	unsigned long tx_dropped;
	unsigned long rx_missed_errors;
};

struct net_device_core_stats {
	unsigned long rx_dropped;
	unsigned long tx_dropped;
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
	void *core_stats;
	struct net_device_stats stats;
	struct device dev;
	unsigned int real_num_rx_queues;
	/* CO-RE takes enumerations for the same only by their name. */
	enum netdev_stat_type { NETDEV_PCPU_STAT_NONE } pcpu_stat_type : 8;
};

/* drivers/net/veth.c; a module's types where veth is one. What receive queues count with NAPI or XDP is there once, not per CPU. */
struct veth_stats {
	__u64 rx_drops;
	__u64 xdp_packets;
	__u64 xdp_bytes;
	__u64 xdp_tx_err;
	__u64 peer_tq_xdp_xmit_err;
};

struct veth_rq_stats {
	struct veth_stats vs;
};

struct veth_rq {
	struct veth_rq_stats stats;
};

struct veth_priv {
	struct net_device *peer;
	struct {
		__s64 counter;
	} dropped;
	struct veth_rq *rq;
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

/* include/linux/netdevice.h. What was dropped was a number until 6.9, an atomic one until 6.17, and is one a NUMA node since. */
struct sd_flow_limit {
	unsigned int count;
};

struct softnet_data {
	struct {
		unsigned int qlen;
	} process_queue, input_pkt_queue;
	unsigned int processed;
	unsigned int time_squeeze;
	unsigned int received_rps;
	struct sd_flow_limit *flow_limit;
	struct {
		struct {
			int counter;
		} drops0, drops1;
	} drop_counters;
};

struct softnet_data___number {
	unsigned int dropped;
};

struct softnet_data___atomic {
	struct {
		int counter;
	} dropped;
};

/* fs/file.c, net/socket.c: from a descriptor to its protocol. */
struct sock_common {
	void *skc_prot;
};

struct sock {
	struct sock_common __sk_common;
};

struct socket {
	struct sock *sk;
};

struct file {
	void *private_data;
};

struct fdtable {
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

/* include/linux/kernel_stat.h */
struct kernel_stat {
	unsigned long irqs_sum;
	unsigned int softirqs[10]; /* NR_SOFTIRQS */
};

/* arch/x86/include/asm/hardirq.h; until 6.1 with the pending softirqs, which were in pcpu_hot up to 6.14 and are a variable of their own since. */
typedef struct {
	unsigned short __softirq_pending;
	unsigned int __nmi_count;
	unsigned int apic_timer_irqs;
	unsigned int irq_spurious_count;
	unsigned int icr_read_retry_count;
	unsigned int x86_platform_ipis;
	unsigned int apic_perf_irqs;
	unsigned int apic_irq_work_irqs;
	unsigned int irq_resched_count;
	unsigned int irq_call_count;
	unsigned int irq_thermal_count;
	unsigned int irq_threshold_count;
	unsigned int irq_hv_callback_count;
	unsigned int irq_hv_reenlightenment_count;
	unsigned int hyperv_stimer0_count;
} irq_cpustat_t;

struct pcpu_hot {
	unsigned short softirq_pending;
};

/* include/linux/psi_types.h: totals by aggregator and state; only the first aggregator's, PSI_AVGS, are read. */
struct psi_group {
	__u64 total[7];
};

struct psi_group_cpu {
	unsigned int state_mask;
};

/* fs/super.c, fs/inode.c, block/bdev.c: block devices are inodes of a file system of their own. */
struct list_head {
	struct list_head *next, *prev;
};

struct super_block {
	struct list_head s_inodes;
};

struct vfsmount {
	struct super_block *mnt_sb;
};

struct path {
	struct vfsmount *mnt;
};

struct fs_struct {
	struct path root;
};

struct inode {
	struct {
		void *pprev;
	} i_hash;
	struct list_head i_sb_list;
};

struct gendisk {
	char disk_name[32];
};

/* The partition's number became the low byte of the flags in 6.10. */
struct block_device {
	struct gendisk *bd_disk;
	void *bd_stats;
	__u32 bd_dev;
	struct device bd_device;
	struct {
		int counter;
	} __bd_flags;
};

struct block_device___number {
	__u8 bd_partno;
};

struct bdev_inode {
	struct block_device bdev;
	struct inode vfs_inode;
};

/* include/linux/part_stat.h; by STAT_READ, STAT_WRITE, STAT_DISCARD, STAT_FLUSH. */
struct disk_stats {
	__u64 nsecs[4];
	unsigned long sectors[4];
	unsigned long ios[4];
	unsigned long merges[4];
	unsigned long io_ticks;
	struct {
		long a;
	} in_flight[2]; /* local_t */
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
