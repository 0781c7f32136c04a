// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Group disk: block devices as rows of a table, with what they count per CPU (struct disk_stats). A row holds where its device was found: each READ looks at
 * it again, and serves the row only if it is still that device (entry.h), of that number, and findable by it. When the list of all block devices has a new
 * first, or a row was taken back, READs look through it, a few each, and give rows to those that node_exporter shows.
 */
#include "base.h"
#include "facts.h"
#include "disk_names.h"
#include "entry.h"
#include "rows.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct onlooker_disks);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader, as all below */
	__type(key, __u32);
	__type(value, struct onlooker_disk);
} rows SEC(".maps");

/* Row by struct block_device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32);
} row_of SEC(".maps");

static __always_inline struct onlooker_disks *disks_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&disks, &zero);
}

static __always_inline __u64 inode_of(__u64 device)
{
	return device - bpf_core_field_offset(((struct bdev_inode *)0)->bdev) + bpf_core_field_offset(((struct bdev_inode *)0)->vfs_inode);
}

/* In the table of inodes from bdev_add to its removal (block/bdev.c): so it can be opened by its number. */
static __always_inline int is_registered(__u64 device)
{
	__u64 hashed = 0;

	return !READ_FIELD(&hashed, struct inode, inode_of(device), i_hash.pprev) && hashed;
}

static __always_inline __u64 entry_of(__u64 device)
{
	return onlooker_entry_of(device + bpf_core_field_offset(((struct block_device *)0)->bd_device));
}

static __always_inline __u32 partition_of(__u64 device)
{
	struct block_device___number *numbered = (void *)device;
	struct block_device *flagged = (void *)device;
	__u32 flags = 0;
	__u8 number = 0;

	if (bpf_core_field_exists(numbered->bd_partno)) {
		READ_FIELD(&number, struct block_device___number, device, bd_partno);
		return number;
	}
	if (bpf_core_field_exists(flagged->__bd_flags))
		READ_FIELD(&flags, struct block_device, device, __bd_flags.counter);
	return flags & 0xff;
}

/* Gives a row to a device that is to have one and has none. */
__noinline int onlooker_add_disk(struct onlooker_scratch *s, __u64 device)
{
	struct onlooker_disks *all = disks_get();
	struct disk_name *name;
	struct onlooker_disk *row;
	__u64 disk = 0, entry;
	__u32 number = 0, dev = 0;

	if (!s || !all || bpf_map_lookup_elem(&row_of, &device))
		return 0;
	/* The root of their file system is an inode among them, and no disk's. */
	if (READ_FIELD(&disk, struct block_device, device, bd_disk) || !disk)
		return 0;
	if (!is_registered(device)) {
		all->waiting = 1;
		return 0;
	}
	name = (struct disk_name *)COLLECT_ROOM(s);
	if (READ_FIELD(&dev, struct block_device, device, bd_dev) ||
	    !onlooker_name_disk(name, disk, partition_of(device)) || onlooker_is_hidden_name(name))
		return 0;
	if (!take_row(&all->free, &all->used, all->capacity, &number)) {
		all->waiting = 1;
		return 0;
	}
	row = bpf_map_lookup_elem(&rows, &number);
	if (!row || bpf_map_update_elem(&row_of, &device, &number, BPF_ANY))
		return 0;
	entry = entry_of(device);
	change_begins(&row->sequence);
	row->device = device;
	row->entry = entry;
	row->number = dev;
#pragma unroll
	for (int word = 0; word < COLLECT_DISK_NAME_WORDS; word++)
		row->name[word] = name->words[word];
	row->generation = next_generation(row->generation);
	change_ends(&row->sequence);
	return 1;
}

struct scan {
	struct onlooker_scratch *s;
	__u64 list;
	__u64 node;
};

/* The device of a node of the list. */
static __always_inline __u64 listed(__u64 node)
{
	__u64 inode = node - bpf_core_field_offset(((struct inode *)0)->i_sb_list);

	return inode - bpf_core_field_offset(((struct bdev_inode *)0)->vfs_inode) + bpf_core_field_offset(((struct bdev_inode *)0)->bdev);
}

static long scan_next(__u32 index, struct scan *scan)
{
	(void)index;
	if (!scan->node || scan->node == scan->list) {
		scan->node = 0;
		return 1;
	}
	onlooker_add_disk(scan->s, listed(scan->node));
	if (READ_FIELD(&scan->node, struct list_head, scan->node, next))
		scan->node = 0;
	return 0;
}

/* Whether the node that a scan stopped at is in a list still: who left one points at himself, and freed memory at nobody who points back. */
static __always_inline int is_linked(__u64 node)
{
	__u64 next = 0, back = 0;

	return !READ_FIELD(&next, struct list_head, node, next) && next != node && !READ_FIELD(&back, struct list_head, next, prev) && back == node;
}

static __always_inline void scan_disks(struct onlooker_scratch *s, struct onlooker_disks *all)
{
	struct scan scan = { .s = s, .list = all->list };
	__u64 first = 0, entry, now = bpf_ktime_get_ns();

	if (READ_FIELD(&first, struct list_head, all->list, next))
		return;
	entry = entry_of(listed(first));
	if (first != all->first || entry != all->first_entry || (!all->cursor && all->waiting && now - all->scanned_ns > COLLECT_SCAN_PAUSE_NS) ||
	    (all->cursor && !is_linked(all->cursor))) {
		all->first = first;
		all->first_entry = entry;
		all->cursor = first;
		all->scanned_ns = now;
		all->waiting = 0;
	}
	if (!all->cursor)
		return;
	scan.node = all->cursor;
	/* Not a for loop: the verifier walks this once. */
	bpf_loop(COLLECT_SCAN_DISKS, scan_next, &scan, 0);
	all->cursor = scan.node == all->list ? 0 : scan.node;
}

#define READ 0
#define WRITE 1
#define DISCARD 2
#define FLUSH 3

/* A disk's counters on one CPU, in the order of the schema's fields. A function of its own, so that the verifier walks it once. */
__noinline int onlooker_put_disk(struct onlooker_scratch *s, __u64 address, __u32 slot, __u32 width)
{
	const __u64 *nsecs, *sectors, *ios, *merges, *flying;

	if (!s || READ_WHOLE(s, struct disk_stats, address))
		return 0;
	nsecs = &WHOLE(s, struct disk_stats, nsecs);
	sectors = &WHOLE(s, struct disk_stats, sectors);
	ios = &WHOLE(s, struct disk_stats, ios);
	merges = &WHOLE(s, struct disk_stats, merges);
	flying = &WHOLE(s, struct disk_stats, in_flight);
	put(s, slot, ios[READ]);
	put(s, slot + width, merges[READ]);
	put(s, slot + 2 * width, sectors[READ]);
	put(s, slot + 3 * width, nsecs[READ]);
	put(s, slot + 4 * width, ios[WRITE]);
	put(s, slot + 5 * width, merges[WRITE]);
	put(s, slot + 6 * width, sectors[WRITE]);
	put(s, slot + 7 * width, nsecs[WRITE]);
	put(s, slot + 8 * width, flying[READ] + flying[WRITE]);
	put(s, slot + 9 * width, WHOLE(s, struct disk_stats, io_ticks));
	put(s, slot + 10 * width, nsecs[READ] + nsecs[WRITE] + nsecs[DISCARD] + nsecs[FLUSH]);
	put(s, slot + 11 * width, ios[DISCARD]);
	put(s, slot + 12 * width, merges[DISCARD]);
	put(s, slot + 13 * width, sectors[DISCARD]);
	put(s, slot + 14 * width, nsecs[DISCARD]);
	put(s, slot + 15 * width, ios[FLUSH]);
	put(s, slot + 16 * width, nsecs[FLUSH]);
	return 1;
}

/* A row of the answer; docs/format/table.md. */
__noinline int onlooker_put_row(struct onlooker_scratch *s, __u32 block, __u32 place, __u32 own)
{
	struct onlooker_table *table = bpf_map_lookup_elem(&tables, &block);
	struct onlooker_disks *all = disks_get();
	struct onlooker_disk row, *kept;
	__u32 number, slot, dev = 0;
	__u64 stats = 0;

	if (!s || !table || !all)
		return 0;
	number = table->first_row + place;
	slot = place * table->row_words;
	kept = bpf_map_lookup_elem(&rows, &number);
	if (!kept)
		return 0;
	row.sequence = *(volatile __u32 *)&kept->sequence;
	row.device = *(volatile __u64 *)&kept->device;
	row.entry = *(volatile __u64 *)&kept->entry;
#pragma unroll
	for (int word = 0; word < COLLECT_DISK_NAME_WORDS; word++)
		row.name[word] = *(volatile __u64 *)&kept->name[word];
	row.number = *(volatile __u32 *)&kept->number;
	row.generation = *(volatile __u32 *)&kept->generation;
	put(s, slot, row.generation);
	if (!row.device || row.sequence & 1 || *(volatile __u32 *)&kept->sequence != row.sequence)
		return 0;
	if (!is_registered(row.device) || READ_FIELD(&dev, struct block_device, row.device, bd_dev) || dev != row.number ||
	    READ_FIELD(&stats, struct block_device, row.device, bd_stats) || !stats || entry_of(row.device) != row.entry) {
		if (own) {
			bpf_map_delete_elem(&row_of, &row.device);
			change_begins(&kept->sequence);
			kept->device = 0;
			change_ends(&kept->sequence);
			/* What stands in its place now was passed over by the last scan: it had this row. */
			all->first = 0;
			give_row_back(&all->free, number);
		}
		return 0;
	}
	put(s, slot, row.generation | ROW_LIVE);
#pragma unroll
	for (int word = 0; word < COLLECT_DISK_NAME_WORDS; word++)
		put(s, slot + 1 + word, row.name[word]);
	for (__u32 cpu = 0; cpu < COLLECT_DISK_CPUS; cpu++) {
		__u32 key = table->first_cpu + cpu;
		__u64 *offset;

		if (cpu >= table->cpus)
			break;
		offset = bpf_map_lookup_elem(&offsets, &key);
		if (!offset)
			break;
		onlooker_put_disk(s, stats + *offset, slot + 1 + COLLECT_DISK_NAME_WORDS + cpu, table->width);
	}
	return 1;
}

__noinline int onlooker_collect(struct onlooker_scratch *s, __u32 block)
{
	struct onlooker_table *table = bpf_map_lookup_elem(&tables, &block);
	struct onlooker_disks *all = disks_get();
	__u32 own;

	if (!s || !table || !all)
		return 0;
	own = !__sync_lock_test_and_set(&all->busy, 1);
	if (own)
		scan_disks(s, all);
	for (__u32 place = 0; place < COLLECT_ROWS_PER_BLOCK; place++) {
		if (place >= table->rows)
			break;
		onlooker_put_row(s, block, place, own);
	}
	if (own)
		__sync_lock_test_and_set(&all->busy, 0);
	return 1;
}

#include "programs.h"
