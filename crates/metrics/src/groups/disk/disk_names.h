/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names of block devices as /proc/diskstats has them (bdev_name of lib/vsprintf.c), and which of them node_exporter leaves out. */
#ifndef ONLOOKER_COLLECT_DISK_NAMES_H
#define ONLOOKER_COLLECT_DISK_NAMES_H

#include "base.h"
#include "facts.h"

#define DISK_NAME_BYTES (8 * COLLECT_DISK_NAME_WORDS)

struct disk_name {
	union {
		__u64 words[COLLECT_DISK_NAME_WORDS];
		__u8 bytes[DISK_NAME_BYTES];
	};
};

static __always_inline int is_digit(__u32 byte)
{
	return byte >= '0' && byte <= '9';
}

static __always_inline __u8 name_byte(const struct disk_name *name, __u32 at)
{
	/* Opaque, so that the verifier sees the bound of the very number that is used. */
	asm volatile("" : "+r"(at));
	return at < DISK_NAME_BYTES ? name->bytes[at] : 0;
}

static __always_inline void name_put(struct disk_name *name, __u32 at, __u8 byte)
{
	asm volatile("" : "+r"(at));
	if (at < DISK_NAME_BYTES)
		name->bytes[at] = byte;
}

/* The disk's name, and for partitions their number behind it, set off by a p where the disk's ends in a digit. 0: it has none, or one that is too long. */
__noinline int onlooker_name_disk(struct disk_name *name, __u64 disk, __u32 partition)
{
	__u32 length;
	long read;

	if (!name)
		return 0;
#pragma unroll
	for (int word = 0; word < COLLECT_DISK_NAME_WORDS; word++)
		name->words[word] = 0;
	read = bpf_probe_read_kernel_str(name->bytes, DISK_NAME_BYTES, (const void *)disk + bpf_core_field_offset(((struct gendisk *)0)->disk_name));
	if (read <= 1)
		return 0;
	length = read - 1;
	if (!partition)
		return 1;
	if (length > DISK_NAME_BYTES - 5)
		return 0;
	if (is_digit(name_byte(name, length - 1)))
		name_put(name, length++, 'p');
	if (partition >= 100)
		name_put(name, length++, '0' + partition / 100 % 10);
	if (partition >= 10)
		name_put(name, length++, '0' + partition / 10 % 10);
	name_put(name, length, '0' + partition % 10);
	return 1;
}

/* How far a name is understood: its length, that of its stem (what stands before the last digits), and how it goes on behind "nvme". */
#define STEM(walk) ((walk) >> 8 & 0xff)
#define LENGTH(walk) ((walk) >> 16 & 0xff)
#define NVME(walk) ((walk) & 0xff)
/* Digits, n, digits, p, digits: each part is one more. */
#define NVME_PARTITION 5
#define NVME_NOT 8

/* One byte more. A function of its own, so that the verifier walks it once. */
__noinline __u32 onlooker_name_step(__u32 walk, __u32 byte)
{
	__u32 nvme = NVME(walk), stem = STEM(walk), length = LENGTH(walk);

	if (length < 4)
		nvme = 0;
	else if (is_digit(byte))
		nvme |= 1;
	else if (nvme == 1 && byte == 'n')
		nvme = 2;
	else if (nvme == 3 && byte == 'p')
		nvme = 4;
	else
		nvme = NVME_NOT;
	length++;
	if (!is_digit(byte))
		stem = length;
	return (nvme & 0xff) | stem << 8 | length << 16;
}

/* node_exporter's default --collector.diskstats.device-exclude: ^(ram|loop|fd|(h|s|v|xv)d[a-z]|nvme[0-9]+n[0-9]+p)[0-9]+$ */
__noinline int onlooker_is_hidden_name(const struct disk_name *name)
{
	__u32 walk = 0, stem, begin = 0;

	if (!name)
		return 0;
	for (__u32 at = 0; at < DISK_NAME_BYTES; at++) {
		if (!name->bytes[at])
			break;
		walk = onlooker_name_step(walk, name->bytes[at]);
	}
	stem = STEM(walk);
	if (stem == LENGTH(walk))
		return 0;
	if (name->bytes[0] == 'n')
		return name->bytes[1] == 'v' && name->bytes[2] == 'm' && name->bytes[3] == 'e' && NVME(walk) == NVME_PARTITION;
	if (stem == 4 && name->bytes[0] == 'l')
		return name->bytes[1] == 'o' && name->bytes[2] == 'o' && name->bytes[3] == 'p';
	if (stem == 3 && name->bytes[0] == 'r')
		return name->bytes[1] == 'a' && name->bytes[2] == 'm';
	if (stem == 2 && name->bytes[0] == 'f')
		return name->bytes[1] == 'd';
	if (name->bytes[0] == 'x')
		begin = 1;
	if (stem != begin + 3)
		return 0;
	if (begin ? name->bytes[1] != 'v' : name->bytes[0] != 'h' && name->bytes[0] != 's' && name->bytes[0] != 'v')
		return 0;
	return name_byte(name, begin + 1) == 'd' && name_byte(name, begin + 2) >= 'a' && name_byte(name, begin + 2) <= 'z';
}

#endif
