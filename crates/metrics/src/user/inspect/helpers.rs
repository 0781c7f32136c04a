// SPDX-License-Identifier: Apache-2.0
//! The kernel's helpers that a collector may call, and names of some that it may not.

/// A helper that only looks, and how many arguments it takes.
pub(super) struct Helper {
    pub(super) number: i32,
    pub(super) name: &'static str,
    pub(super) arguments: u8,
}

pub(super) const TAIL_CALL: i32 = 12;
pub(super) const MAP_LOOKUP: i32 = 1;
pub(super) const MAP_LOOKUP_PERCPU: i32 = 195;
pub(super) const PROBE_READ_KERNEL: i32 = 113;
pub(super) const PROBE_READ_KERNEL_STR: i32 = 115;

/// linux/bpf.h, ___BPF_FUNC_MAPPER.
pub(super) const ALLOWED: [Helper; 14] = [
    Helper { number: MAP_LOOKUP, name: "map_lookup_elem", arguments: 2 },
    Helper { number: 5, name: "ktime_get_ns", arguments: 0 },
    Helper { number: 8, name: "get_smp_processor_id", arguments: 0 },
    Helper { number: TAIL_CALL, name: "tail_call", arguments: 3 },
    Helper { number: 35, name: "get_current_task", arguments: 0 },
    Helper { number: 42, name: "get_numa_node_id", arguments: 0 },
    Helper { number: PROBE_READ_KERNEL, name: "probe_read_kernel", arguments: 3 },
    Helper { number: PROBE_READ_KERNEL_STR, name: "probe_read_kernel_str", arguments: 3 },
    Helper { number: 118, name: "jiffies64", arguments: 0 },
    Helper { number: 125, name: "ktime_get_boot_ns", arguments: 0 },
    Helper { number: 153, name: "per_cpu_ptr", arguments: 2 },
    Helper { number: 154, name: "this_cpu_ptr", arguments: 1 },
    Helper { number: MAP_LOOKUP_PERCPU, name: "map_lookup_percpu_elem", arguments: 3 },
    Helper { number: 208, name: "ktime_get_tai_ns", arguments: 0 },
];

/// Names of some others, for messages.
pub(super) const OTHERS: [(i32, &str); 18] = [
    (2, "map_update_elem"),
    (3, "map_delete_elem"),
    (4, "probe_read"),
    (6, "trace_printk"),
    (9, "skb_store_bytes"),
    (13, "clone_redirect"),
    (23, "redirect"),
    (25, "perf_event_output"),
    (26, "skb_load_bytes"),
    (44, "xdp_adjust_head"),
    (51, "redirect_map"),
    (65, "xdp_adjust_tail"),
    (93, "spin_lock"),
    (130, "ringbuf_output"),
    (131, "ringbuf_reserve"),
    (164, "for_each_map_elem"),
    (169, "timer_init"),
    (181, "loop"),
];
