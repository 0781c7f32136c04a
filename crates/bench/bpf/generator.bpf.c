// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sends frames as fast as a processor can: run on live frames (BPF_F_TEST_XDP_LIVE_FRAMES), each is given another key and goes to a device. And what stands where a
 * collector would: a program that counts and drops, and one that lets pass.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct settings {
	__u32 device; /* that frames go out by */
	__u32 at;     /* where four bytes of a frame change */
	__u32 keys;   /* how many there are of them, a power of two */
	__u32 next;
	__u64 interval_ns; /* between two frames; 0: as fast as can be */
	__u64 due_ns;
};

/* Who was held up catches up with so much, which a veth pair's ring has room for. */
#define BURST_NS 100000

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} dropped SEC(".maps");

SEC("xdp")
int generate(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	__u32 zero = 0;
	struct settings *s = bpf_map_lookup_elem(&settings, &zero);
	__u32 *key;

	if (!s)
		return XDP_DROP;
	key = data + (s->at & 127);
	if ((void *)(key + 1) > end)
		return XDP_DROP;
	if (s->interval_ns) {
		__u64 now_ns = bpf_ktime_get_ns();

		if (now_ns < s->due_ns)
			return XDP_DROP;
		if (s->due_ns + BURST_NS < now_ns)
			s->due_ns = now_ns - BURST_NS;
		s->due_ns += s->interval_ns;
	}
	*key = __builtin_bswap32(s->next++ & (s->keys - 1));
	return bpf_redirect(s->device, 0);
}

SEC("xdp")
int count_and_drop(struct xdp_md *xdp)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&dropped, &zero);

	(void)xdp;
	if (count)
		++*count;
	return XDP_DROP;
}

SEC("xdp")
int pass(struct xdp_md *xdp)
{
	(void)xdp;
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
