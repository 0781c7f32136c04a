// SPDX-License-Identifier: Apache-2.0
//! What this kernel can do, found by trying, once per process. Versions are the first mainline ones; distributions differ, hence the trying.

use std::sync::OnceLock;

use libbpf_rs::libbpf_sys as libbpf;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

use crate::slab::create_array;
use crate::sys;

/// A feature of the kernel and whether it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Name of the feature.
    pub name: &'static str,
    /// First mainline version that has it.
    pub since: &'static str,
    /// Without it there is no responder; otherwise there is another way, see `without`.
    pub required: bool,
    /// What happens where it is missing.
    pub without: &'static str,
    /// Whether it is there, or why not.
    pub found: Result<(), String>,
}

/// All probes, in the order in which their absence hurts. Cached.
pub fn all() -> &'static [Probe] {
    static PROBES: OnceLock<Vec<Probe>> = OnceLock::new();
    PROBES.get_or_init(|| vec![slabs(), sources(), boot_clock(), grow_tc(), store_xdp(), tail_calls(), memory(), tcx()])
}

/// Whether the tcx hook is there; without it tc programs are attached to a clsact qdisc.
#[must_use]
pub fn has_tcx() -> bool {
    all().iter().any(|probe| probe.name == TCX && probe.found.is_ok())
}

const TCX: &str = "tcx";
const MEMORY: &str = "bpf_probe_read_kernel";
/// Of the running kernel (CONFIG_DEBUG_INFO_BTF).
pub const BTF: &str = "/sys/kernel/btf/vmlinux";
const NO_RESPONDER: &str = "no kernel responder: use the TCP responder";

/// Mappable arrays of different length in one array of maps.
fn slabs() -> Probe {
    let found = || -> libbpf_rs::Result<()> {
        let short = create_array("ol_probe", 4)?;
        let long = create_array("ol_probe", 8)?;
        let table = create(MapType::ArrayOfMaps, 4, 4, 2, 0, Some(&short))?;
        put_map(&table, &long)
    };
    required("slabs: mappable inner arrays of any length", "5.10", found())
}

/// Longest-prefix tables.
fn sources() -> Probe {
    let found = create(MapType::LpmTrie, 20, 4, 1, libbpf::BPF_F_NO_PREALLOC, None).map(drop);
    required("sources: longest-prefix tables", "4.11", found)
}

/// The clock of leases and computed blocks.
fn boot_clock() -> Probe {
    helper("bpf_ktime_get_boot_ns", "5.8", libbpf::BPF_PROG_TYPE_SCHED_CLS, libbpf::BPF_FUNC_ktime_get_boot_ns)
}

/// Packets that grow to the answer's size, in tc programs.
fn grow_tc() -> Probe {
    helper("bpf_skb_change_tail", "4.9", libbpf::BPF_PROG_TYPE_SCHED_CLS, libbpf::BPF_FUNC_skb_change_tail)
}

/// Answers written in one call, in XDP programs.
fn store_xdp() -> Probe {
    helper("bpf_xdp_store_bytes", "5.18", libbpf::BPF_PROG_TYPE_XDP, libbpf::BPF_FUNC_xdp_store_bytes)
}

/// The way to collectors and back.
fn tail_calls() -> Probe {
    helper("bpf_tail_call", "4.2", libbpf::BPF_PROG_TYPE_SCHED_CLS, libbpf::BPF_FUNC_tail_call)
}

/// The kernel's own memory, for collectors. Refused in lockdown mode "confidentiality" (LOCKDOWN_BPF_READ_KERNEL, `bpf_base_func_proto` in kernel/bpf/helpers.c) and without
/// CAP_PERFMON.
fn memory() -> Probe {
    let (program_type, function) = (libbpf::BPF_PROG_TYPE_SCHED_CLS, libbpf::BPF_FUNC_probe_read_kernel);
    let without = "kernel metrics are sampled from procfs instead of computed at the READ";
    Probe { required: false, without, ..helper(MEMORY, "5.5", program_type, function) }
}

/// Whether programs of this process may read the kernel's memory.
#[must_use]
pub fn reads_memory() -> bool {
    all().iter().any(|probe| probe.name == MEMORY && probe.found.is_ok())
}

/// Whether the kernel tells its types, by which collectors find its variables.
#[must_use]
pub fn has_btf() -> bool {
    std::path::Path::new(BTF).exists()
}

/// Links at the tc hooks: nobody else's filters are touched, and a pin holds them.
fn tcx() -> Probe {
    // Every network namespace has a loopback device, with this index.
    let found = sys::tcx_programs(1).map(drop).map_err(|error| error.to_string());
    Probe { name: TCX, since: "6.6", required: false, without: "a filter on a clsact qdisc instead of a link", found }
}

fn helper(name: &'static str, since: &'static str, program_type: u32, helper: u32) -> Probe {
    let found = match sys::has_helper(program_type, helper) {
        Ok(true) => Ok(()),
        Ok(false) => Err("the kernel does not know the helper".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    Probe { name, since, required: true, without: NO_RESPONDER, found }
}

fn required(name: &'static str, since: &'static str, found: libbpf_rs::Result<()>) -> Probe {
    Probe { name, since, required: true, without: NO_RESPONDER, found: found.map_err(|error| error.to_string()) }
}

fn create(
    kind: MapType,
    key: u32,
    value: u32,
    entries: u32,
    map_flags: u32,
    inner: Option<&MapHandle>,
) -> libbpf_rs::Result<MapHandle> {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    let options = libbpf::bpf_map_create_opts {
        sz: size_of::<libbpf::bpf_map_create_opts>() as libbpf::size_t,
        map_flags,
        inner_map_fd: inner.map_or(0, |inner| inner.as_fd().as_raw_fd().cast_unsigned()),
        ..Default::default()
    };
    MapHandle::create(kind, Some("ol_probe"), key, value, entries, &options)
}

fn put_map(table: &MapHandle, map: &MapHandle) -> libbpf_rs::Result<()> {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    table.update(&1u32.to_ne_bytes(), &map.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)
}
