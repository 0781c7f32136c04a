// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Collectors for tests (build.rs compiles one for each name): each does one thing that it must not; FLAKY and GOOD are let in. */
#if defined(REFUSED_FILLED) || defined(REFUSED_HEADERS)
/* Without the headers: maps of the responder's names, as the object likes them. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

int refuse_tc(void *context);

struct {
#if defined(REFUSED_FILLED)
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} collectors_tc SEC(".maps") = { .values = { [0] = (void *)&refuse_tc } };
#else
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} scratch SEC(".maps");
#endif

SEC("tc") int refuse_tc(void *context)
{
	(void)context;
	return 2;
}

SEC("xdp") int refuse_xdp(void *context)
{
	(void)context;
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
#else
#include "collector.h"

#if defined(REFUSED_HASH)
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} own SEC(".maps");
#elif defined(REFUSED_LARGE)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << 18);
	__type(key, __u32);
	__type(value, __u64);
} own SEC(".maps");
#elif defined(REFUSED_PINNED)
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} own SEC(".maps");
#else
struct page {
	char bytes[4096];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct page);
} own SEC(".maps");
#endif

__u64 runs;

#if defined(REFUSED_LOOP)
static long once(__u32 index, void *sum)
{
	*(__u64 *)sum += index;
	return 0;
}
#elif defined(REFUSED_FUNCTION)
__attribute__((noinline)) int apart(__u32 block)
{
	return block > 1 ? block : 7;
}
#elif defined(REFUSED_KFUNC)
extern void bpf_rcu_read_lock(void) __ksym;
#endif

static __always_inline int fill(__u64 *slots, __u32 block)
{
	__u32 zero = 0;

	slots[0] = ++runs;
#if defined(REFUSED_GOOD)
	/* Whatever an object writes there, the responder's counters are others. */
#pragma unroll
	for (__u32 exit = 0; exit < ONLOOKER_EXITS; exit++) {
		__u32 key = exit;
		__u64 *here = bpf_map_lookup_elem(&counters, &key), *there = bpf_map_lookup_percpu_elem(&counters, &key, 0);

		if (here)
			*here = 1ull << 40;
		if (there)
			*there = 1ull << 40;
	}
#elif defined(REFUSED_HELPER)
	slots[1] = bpf_redirect(1, 0);
#elif defined(REFUSED_LOOP)
	bpf_loop(1 << 23, once, &slots[1], 0);
#elif defined(REFUSED_BACKWARD)
#pragma clang loop unroll(disable)
	for (volatile __u32 i = 0; i < 100; i++)
		slots[1] += i;
#elif defined(REFUSED_FUNCTION)
	slots[1] = apart(block);
#elif defined(REFUSED_KFUNC)
	bpf_rcu_read_lock();
#elif defined(REFUSED_HASH) || defined(REFUSED_LARGE) || defined(REFUSED_PINNED)
	slots[1] = bpf_map_lookup_elem(&own, &zero) != 0;
#elif defined(REFUSED_SCRATCH)
	/* The request's identity. */
	slots[-24] = 1;
#elif defined(REFUSED_WANDERING)
	/* Within the payload, at a place that is no constant. */
	slots[1 + (bpf_get_smp_processor_id() & 7)] = 1;
#elif defined(REFUSED_REGIONS)
	slots[1] = bpf_map_lookup_elem(&regions, &zero) != 0;
#elif defined(REFUSED_VERIFIER)
	/* Null on all CPUs but the first. */
	zero = bpf_get_smp_processor_id();
	slots[1] = *(__u64 *)bpf_map_lookup_elem(&own, &zero);
#elif defined(REFUSED_SLOW)
	void *page = bpf_map_lookup_elem(&own, &zero);
	const void *task = (const void *)bpf_get_current_task();

	if (!page)
		return 0;
#pragma unroll
	for (int i = 0; i < 500; i++)
		bpf_probe_read_kernel(page, 128, task);
#elif defined(REFUSED_GREEDY)
	/* More in all than a program may read, on a way that is not taken when it is measured. */
	void *page = bpf_map_lookup_elem(&own, &zero);

	if (!page || runs < (1ull << 40))
		return 1;
#pragma unroll
	for (int i = 0; i < 17; i++)
		bpf_probe_read_kernel(page, sizeof(struct page), (const void *)bpf_get_current_task());
#elif defined(REFUSED_NEVER)
	return 0;
#elif defined(REFUSED_FLAKY)
	/* Three answers, then a bad address. */
	if (runs > 3 && bpf_probe_read_kernel(&slots[1], 8, (const void *)8))
		return 0;
#endif
	(void)zero;
	(void)block;
	return 1;
}

#if defined(REFUSED_PACKET) || defined(REFUSED_MARK) || defined(REFUSED_TAIL) || defined(REFUSED_VERDICT)
#define REFUSED_BY_HAND(context, collectors, drop) \
	struct onlooker_scratch *s = scratch_get(); \
\
	if (s && fill(COLLECTOR_BLOCK(s) + COLLECTOR_PAYLOAD, 0)) \
		COLLECTOR_FINISH(context, collectors); \
	return drop

SEC("tc")
int by_hand_tc(struct __sk_buff *skb)
{
#if defined(REFUSED_PACKET)
	char *data = (char *)(long)skb->data;

	if (data + 1 <= (char *)(long)skb->data_end)
		*data = 0;
#elif defined(REFUSED_MARK)
	skb->mark = 1;
#elif defined(REFUSED_TAIL)
	bpf_tail_call(skb, &collectors_tc, 5);
#endif
#if defined(REFUSED_VERDICT)
	REFUSED_BY_HAND(skb, collectors_tc, TC_ACT_OK);
#else
	REFUSED_BY_HAND(skb, collectors_tc, TC_ACT_SHOT);
#endif
}

SEC("xdp")
int by_hand_xdp(struct xdp_md *xdp)
{
	REFUSED_BY_HAND(xdp, collectors_xdp, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
#elif defined(REFUSED_SECTION)
SEC("tc")
int alone_tc(struct __sk_buff *skb)
{
	struct onlooker_scratch *s = scratch_get();

	if (s && fill(COLLECTOR_BLOCK(s) + COLLECTOR_PAYLOAD, 0))
		COLLECTOR_FINISH(skb, collectors_tc);
	return collector_refuse_tc();
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
#else
ONLOOKER_COLLECTOR(fill);
#endif

#if defined(REFUSED_EXTRA)
SEC("cgroup/skb")
int elsewhere(struct __sk_buff *skb)
{
	(void)skb;
	return 1;
}
#endif
#endif
