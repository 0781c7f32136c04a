// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group network: devices of one namespace as rows of a table, with their counters per CPU. A row holds what was found of its device: each READ looks at the
 * device again, and serves the row only if it is still that one (entry.h), of that number, in that namespace, registered, and of that name. When the namespace
 * says that its list of devices has changed, or a row was taken back, READs look through it, a few devices each, and give rows to new ones.
 */
#include "base.h"
#include "facts.h"
#include "entry.h"
#include "rows.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_namespace);
} namespace SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader, as all below */
	__type(key, __u32);
	__type(value, struct onlooker_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8);
	__type(key, __u64);
	__type(value, __u32);
} ways SEC(".maps");

/* Row by device number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} row_of SEC(".maps");

static __always_inline struct onlooker_namespace *namespace_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&namespace, &zero);
}

static __always_inline __u32 registration(__u64 device)
{
	struct net_device___byte *byte = (void *)device;
	struct net_device___enum *bits = (void *)device;

	if (bpf_core_field_exists(byte->reg_state))
		return BPF_CORE_READ_BITFIELD_PROBED(byte, reg_state);
	return BPF_CORE_READ_BITFIELD_PROBED(bits, reg_state);
}

static __always_inline __u64 entry_of(__u64 device)
{
	return onlooker_entry_of(device + bpf_core_field_offset(((struct net_device *)0)->dev));
}

/* netdev_priv of include/linux/netdevice.h: behind the structure, on a multiple of 32. */
static __always_inline __u64 veth_of(__u64 device)
{
	return device + ((bpf_core_type_size(struct net_device) + 31) & ~31ull);
}

static __always_inline __u32 receive_queues(__u64 device)
{
	__u32 queues = 0;

	if (device && READ_FIELD(&queues, struct net_device, device, real_num_rx_queues))
		return COLLECT_VETH_QUEUES + 1;
	return queues;
}

/* The other end, as long as it is there. */
static __always_inline __u64 veth_peer(__u64 device)
{
	__u64 peer = 0;

	READ_FIELD(&peer, struct veth_priv, veth_of(device), peer);
	return peer && registration(peer) == NETREG_REGISTERED ? peer : 0;
}

static __always_inline int is_known_veth(__u64 device)
{
	if (!bpf_core_type_exists(struct veth_priv))
		return 0;
	return receive_queues(device) <= COLLECT_VETH_QUEUES && receive_queues(veth_peer(device)) <= COLLECT_VETH_QUEUES;
}

/* 0: counted in a way that is not known here. */
static __always_inline __u32 way_of(__u64 device)
{
	struct net_device *typed = (void *)device;
	__u64 ops = 0, function = 0, old_function = 0;
	__u32 type = 0, *way;

	if (READ_FIELD(&ops, struct net_device, device, netdev_ops) || !ops ||
	    READ_FIELD(&function, struct net_device_ops, ops, ndo_get_stats64) ||
	    READ_FIELD(&old_function, struct net_device_ops, ops, ndo_get_stats))
		return 0;
	if (bpf_core_field_exists(typed->pcpu_stat_type))
		type = BPF_CORE_READ_BITFIELD_PROBED(typed, pcpu_stat_type);
	/* dev_get_stats of net/core/dev.c. */
	if (!function)
		return !old_function && type == NETDEV_PCPU_STAT_TSTATS ? ONLOOKER_WAY_TSTATS : 0;
	way = bpf_map_lookup_elem(&ways, &function);
	if (!way)
		return 0;
	/* Before 6.7 it does not say how it counts. */
	if (*way == ONLOOKER_WAY_VETH && (type != NETDEV_PCPU_STAT_TSTATS || !is_known_veth(device)))
		return 0;
	return *way;
}

/* Gives a row to a device that has none. */
__noinline int onlooker_add_device(__u64 device)
{
	struct onlooker_namespace *space = namespace_get();
	struct onlooker_row *row;
	__u32 ifindex = 0, number = 0, way;
	__u64 stats = 0, entry;

	if (!space || READ_FIELD(&ifindex, struct net_device, device, ifindex) || bpf_map_lookup_elem(&row_of, &ifindex))
		return 0;
	way = way_of(device);
	if (!way || READ_FIELD(&stats, struct net_device, device, lstats) || !stats) {
		space->uncovered++;
		return 0;
	}
	if (!take_row(&space->free, &space->used, space->capacity, &number)) {
		space->uncovered++;
		return 0;
	}
	row = bpf_map_lookup_elem(&rows, &number);
	if (!row || bpf_map_update_elem(&row_of, &ifindex, &number, BPF_ANY))
		return 0;
	entry = entry_of(device);
	change_begins(&row->sequence);
	row->device = device;
	row->entry = entry;
	row->stats = stats;
	row->ifindex = ifindex;
	row->way = way;
	row->name[0] = 0;
	row->name[1] = 0;
	bpf_probe_read_kernel_str(row->name, sizeof(row->name), (const void *)device + bpf_core_field_offset(((struct net_device *)0)->name));
	row->generation = next_generation(row->generation);
	change_ends(&row->sequence);
	return 1;
}

/* All devices of a bucket; returns how many there were. The heads of all buckets are in the scratch. */
__noinline int onlooker_scan_bucket(struct onlooker_scratch *s, __u32 bucket)
{
	__u64 node;
	int seen;

	if (!s || bucket >= COLLECT_BUCKETS)
		return 0;
	node = COLLECT_ROOM(s)[bucket];
	for (seen = 0; seen < COLLECT_CHAIN_DEVICES && node; seen++) {
		onlooker_add_device(node - bpf_core_field_offset(((struct net_device *)0)->index_hlist));
		if (READ_FIELD(&node, struct hlist_node, node, next))
			break;
	}
	return seen;
}

struct scan {
	struct onlooker_scratch *s;
	__u32 cursor;
	__u32 seen;
};

static long scan_next(__u32 index, struct scan *scan)
{
	(void)index;
	if (scan->seen >= COLLECT_SCAN_DEVICES)
		return 1;
	scan->seen += onlooker_scan_bucket(scan->s, scan->cursor++);
	return 0;
}

static __always_inline void scan_namespace(struct onlooker_scratch *s, struct onlooker_namespace *space)
{
	__u64 *heads = COLLECT_ROOM(s), list = 0;
	struct scan scan = { .s = s };
	__u32 sequence = 0;

	READ_FIELD(&sequence, struct net, space->net, dev_base_seq);
	if (sequence != space->sequence) {
		space->sequence = sequence;
		space->cursor = 0;
		space->uncovered = 0;
	}
	if (space->cursor >= COLLECT_BUCKETS)
		return;
	if (READ_FIELD(&list, struct net, space->net, dev_index_head) ||
	    bpf_probe_read_kernel(heads, COLLECT_BUCKETS * sizeof(__u64), (const void *)list))
		return;
	scan.cursor = space->cursor;
	/* Not a for loop: the verifier walks this once. */
	bpf_loop(COLLECT_BUCKETS - scan.cursor, scan_next, &scan, 0);
	space->cursor = scan.cursor;
}

/* Whether the device is still the one that the row was given to, but for its name: then its statistics are where they were, and count as they did. */
static __always_inline int is_same(const struct onlooker_row *row, __u64 net)
{
	__u32 ifindex = 0;
	__u64 own = 0;

	return !READ_FIELD(&ifindex, struct net_device, row->device, ifindex) && ifindex == row->ifindex &&
	       !READ_FIELD(&own, struct net_device, row->device, nd_net.net) && own == net &&
	       registration(row->device) == NETREG_REGISTERED && entry_of(row->device) == row->entry &&
	       (row->way != ONLOOKER_WAY_VETH || is_known_veth(row->device));
}

/* What is being counted; in the scratch, since functions take five arguments. */
struct counting {
	__u64 device, stats, core, peer, peer_stats, offset;
	__u32 way, slot, width, once;
};

#define COUNTING(s) ((struct counting *)COLLECT_ROOM(s))

/* In the order of the schema's fields. */
struct counters {
	__u64 rx_dropped, tx_dropped, rx_bytes, rx_packets, tx_bytes, tx_packets;
};

#define COUNTERS(s) ((struct counters *)(COLLECT_ROOM(s) + 32))

static __always_inline void begin_counting(struct onlooker_scratch *s, const struct onlooker_row *row)
{
	struct counting *on = COUNTING(s);

	on->device = row->device;
	on->stats = row->stats;
	on->way = row->way;
	on->core = 0;
	on->peer = 0;
	on->peer_stats = 0;
	if (bpf_core_field_exists(((struct net_device *)0)->core_stats))
		READ_FIELD(&on->core, struct net_device, row->device, core_stats);
	if (row->way == ONLOOKER_WAY_VETH && bpf_core_type_exists(struct veth_priv)) {
		on->peer = veth_peer(row->device);
		if (on->peer)
			READ_FIELD(&on->peer_stats, struct net_device, on->peer, lstats);
	}
}

/* What a veth's queues count: of its own (veth_get_stats64 of drivers/net/veth.c), and of the other end's. */
__noinline int onlooker_add_queues(struct onlooker_scratch *s, __u64 device, __u32 is_peer)
{
	__u64 queue = 0, unsent;
	__u32 queues = receive_queues(device);

	if (!s || !bpf_core_type_exists(struct veth_priv) || READ_FIELD(&queue, struct veth_priv, veth_of(device), rq) || !queue)
		return 0;
	for (__u32 at = 0; at < COLLECT_VETH_QUEUES; at++) {
		if (at >= queues)
			break;
		if (READ_WHOLE(s, struct veth_stats, queue + bpf_core_field_offset(((struct veth_rq *)0)->stats.vs)))
			break;
		unsent = WHOLE(s, struct veth_stats, peer_tq_xdp_xmit_err);
		if (is_peer) {
			COUNTERS(s)->tx_packets += WHOLE(s, struct veth_stats, xdp_packets);
			COUNTERS(s)->tx_bytes += WHOLE(s, struct veth_stats, xdp_bytes);
			COUNTERS(s)->rx_dropped += WHOLE(s, struct veth_stats, xdp_tx_err);
			COUNTERS(s)->tx_dropped += unsent;
		} else {
			COUNTERS(s)->rx_packets += WHOLE(s, struct veth_stats, xdp_packets);
			COUNTERS(s)->rx_bytes += WHOLE(s, struct veth_stats, xdp_bytes);
			COUNTERS(s)->rx_dropped += WHOLE(s, struct veth_stats, rx_drops) + unsent;
			COUNTERS(s)->tx_dropped += WHOLE(s, struct veth_stats, xdp_tx_err);
		}
		queue += bpf_core_type_size(struct veth_rq);
	}
	return 1;
}

/* What the device counts once: it stands with the first CPU's. */
static __always_inline void add_once(struct onlooker_scratch *s)
{
	struct counting *on = COUNTING(s);
	struct counters *to = COUNTERS(s);
	__u64 value = 0;

	if (on->way == ONLOOKER_WAY_TSTATS) {
		/* dev_get_tstats64 of net/core/dev.c begins with these; /proc/net/dev counts what was missed as dropped. */
		if (READ_WHOLE(s, struct net_device_stats, on->device + bpf_core_field_offset(((struct net_device *)0)->stats)))
			return;
		to->rx_dropped += WHOLE(s, struct net_device_stats, rx_dropped) + WHOLE(s, struct net_device_stats, rx_missed_errors);
		to->tx_dropped += WHOLE(s, struct net_device_stats, tx_dropped);
		to->rx_bytes += WHOLE(s, struct net_device_stats, rx_bytes);
		to->rx_packets += WHOLE(s, struct net_device_stats, rx_packets);
		to->tx_bytes += WHOLE(s, struct net_device_stats, tx_bytes);
		to->tx_packets += WHOLE(s, struct net_device_stats, tx_packets);
	} else if (on->way == ONLOOKER_WAY_VETH && bpf_core_type_exists(struct veth_priv)) {
		READ_FIELD(&value, struct veth_priv, veth_of(on->device), dropped.counter);
		to->tx_dropped += value;
		onlooker_add_queues(s, on->device, 0);
		if (on->peer)
			onlooker_add_queues(s, on->peer, 1);
	}
}

/* A device's counters on one CPU. A function of its own, so that the verifier walks it once. */
__noinline int onlooker_put_counters(struct onlooker_scratch *s)
{
	struct counting *on;
	struct counters *to;
	__u64 address;

	if (!s)
		return 0;
	on = COUNTING(s);
	to = COUNTERS(s);
	__builtin_memset(to, 0, sizeof(*to));
	address = on->stats + on->offset;
	if (on->way == ONLOOKER_WAY_LSTATS) {
		if (!READ_WHOLE(s, struct pcpu_lstats, address)) {
			to->rx_packets = to->tx_packets = WHOLE(s, struct pcpu_lstats, packets);
			to->rx_bytes = to->tx_bytes = WHOLE(s, struct pcpu_lstats, bytes);
		}
	} else if (!READ_WHOLE(s, struct pcpu_sw_netstats, address)) {
		to->rx_packets = WHOLE(s, struct pcpu_sw_netstats, rx_packets);
		to->rx_bytes = WHOLE(s, struct pcpu_sw_netstats, rx_bytes);
		to->tx_packets = WHOLE(s, struct pcpu_sw_netstats, tx_packets);
		to->tx_bytes = WHOLE(s, struct pcpu_sw_netstats, tx_bytes);
	}
	if (on->peer_stats && !READ_WHOLE(s, struct pcpu_sw_netstats, on->peer_stats + on->offset)) {
		to->rx_packets += WHOLE(s, struct pcpu_sw_netstats, tx_packets);
		to->rx_bytes += WHOLE(s, struct pcpu_sw_netstats, tx_bytes);
	}
	if (on->core && !READ_WHOLE(s, struct net_device_core_stats, on->core + on->offset)) {
		to->rx_dropped = WHOLE(s, struct net_device_core_stats, rx_dropped);
		to->tx_dropped = WHOLE(s, struct net_device_core_stats, tx_dropped);
	}
	if (on->once)
		add_once(s);
	put(s, on->slot, to->rx_dropped);
	put(s, on->slot + on->width, to->tx_dropped);
	put(s, on->slot + 2 * on->width, to->rx_bytes);
	put(s, on->slot + 3 * on->width, to->rx_packets);
	put(s, on->slot + 4 * on->width, to->tx_bytes);
	put(s, on->slot + 5 * on->width, to->tx_packets);
	return 1;
}

/* A row of the answer; docs/format/table.md. */
__noinline int onlooker_put_row(struct onlooker_scratch *s, __u32 block, __u32 place, __u32 own)
{
	struct onlooker_table *table = bpf_map_lookup_elem(&tables, &block);
	struct onlooker_namespace *space = namespace_get();
	struct onlooker_row row, *kept;
	__u64 name[2] = {};
	__u32 number, slot;

	if (!s || !table || !space)
		return 0;
	number = table->first_row + place;
	slot = place * table->row_words;
	kept = bpf_map_lookup_elem(&rows, &number);
	if (!kept)
		return 0;
	row.sequence = *(volatile __u32 *)&kept->sequence;
	row.device = *(volatile __u64 *)&kept->device;
	row.entry = *(volatile __u64 *)&kept->entry;
	row.stats = *(volatile __u64 *)&kept->stats;
	row.name[0] = *(volatile __u64 *)&kept->name[0];
	row.name[1] = *(volatile __u64 *)&kept->name[1];
	row.ifindex = *(volatile __u32 *)&kept->ifindex;
	row.generation = *(volatile __u32 *)&kept->generation;
	row.way = *(volatile __u32 *)&kept->way;
	put(s, slot, row.generation);
	if (!row.device || row.sequence & 1 || *(volatile __u32 *)&kept->sequence != row.sequence)
		return 0;
	if (!is_same(&row, space->net)) {
		if (own) {
			bpf_map_delete_elem(&row_of, &row.ifindex);
			change_begins(&kept->sequence);
			kept->device = 0;
			change_ends(&kept->sequence);
			give_row_back(&space->free, number);
			/* For those that found no free one, and for one that was passed over since it had this one's number. */
			space->uncovered = 0;
			space->cursor = 0;
		}
		return 0;
	}
	bpf_probe_read_kernel_str(name, sizeof(name), (const void *)row.device + bpf_core_field_offset(((struct net_device *)0)->name));
	if (name[0] != row.name[0] || name[1] != row.name[1]) {
		if (!own)
			return 0;
		change_begins(&kept->sequence);
		kept->name[0] = name[0];
		kept->name[1] = name[1];
		row.generation = next_generation(row.generation);
		kept->generation = row.generation;
		change_ends(&kept->sequence);
	}
	put(s, slot, row.generation | ROW_LIVE);
	put(s, slot + 1, name[0]);
	put(s, slot + 2, name[1]);
	begin_counting(s, &row);
	for (__u32 cpu = 0; cpu < COLLECT_DEVICE_CPUS; cpu++) {
		__u32 key = table->first_cpu + cpu;
		__u64 *offset;

		if (cpu >= table->cpus)
			break;
		offset = bpf_map_lookup_elem(&offsets, &key);
		if (!offset)
			break;
		COUNTING(s)->offset = *offset;
		COUNTING(s)->slot = slot + 3 + cpu;
		COUNTING(s)->width = table->width;
		COUNTING(s)->once = !key;
		onlooker_put_counters(s);
	}
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	struct onlooker_table *table = bpf_map_lookup_elem(&tables, &block);
	struct onlooker_namespace *space = namespace_get();
	__u32 own;

	if (!s || !table || !space)
		return 0;
	own = !__sync_lock_test_and_set(&space->busy, 1);
	if (own)
		scan_namespace(s, space);
	for (__u32 place = 0; place < COLLECT_ROWS_PER_BLOCK; place++) {
		if (place >= table->rows)
			break;
		onlooker_put_row(s, block, place, own);
	}
	if (own)
		__sync_lock_test_and_set(&space->busy, 0);
	return 1;
}

#include "programs.h"
