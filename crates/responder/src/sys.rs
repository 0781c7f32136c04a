// SPDX-License-Identifier: Apache-2.0
//! The libbpf calls that libbpf-rs has not got, each a thin safe function. All structures are zeroed and carry their size, as libbpf asks.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys as libbpf;

/// libbpf returns the errno negated.
fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

/// The `sz` field of an options structure.
fn options_bytes<T>() -> libbpf::size_t {
    size_of::<T>() as libbpf::size_t
}

/// `SEC("tcx/ingress")` of linux/bpf.h.
pub(crate) const TCX_INGRESS: u32 = libbpf::BPF_TCX_INGRESS;
/// `SEC("xdp")`.
pub const XDP: u32 = libbpf::BPF_XDP;
/// `SEC("iter/tcp")`.
pub const TRACE_ITER: u32 = libbpf::BPF_TRACE_ITER;
/// `SEC("tp_btf/...")`.
pub const TRACE_RAW_TP: u32 = libbpf::BPF_TRACE_RAW_TP;
/// The driver runs the program, not the stack.
pub const XDP_NATIVE: u32 = libbpf::XDP_FLAGS_DRV_MODE;
/// The stack runs the program, on packets of its own.
pub const XDP_GENERIC: u32 = libbpf::XDP_FLAGS_SKB_MODE;

/// Attaches a program to a device (0: to none, as programs on tracepoints and iterators are) by a link, which lives as
/// long as its descriptor or pin.
///
/// # Errors
/// As the system has it.
pub fn link_create(program: BorrowedFd<'_>, ifindex: u32, attach_type: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = libbpf::bpf_link_create_opts {
        sz: options_bytes::<libbpf::bpf_link_create_opts>(),
        flags,
        ..Default::default()
    };
    let ifindex = c_int::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the options outlive the call; the program is open.
    let fd = check(unsafe { libbpf::bpf_link_create(program.as_raw_fd(), ifindex, attach_type, &raw const options) })?;
    // SAFETY: a new descriptor, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts another program of the same type into a link: every packet meets the old one or the new one. ENOLINK where the device is gone.
pub(crate) fn link_update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open; null options are allowed.
    check(unsafe { libbpf::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) }).map(drop)
}

/// Ids of the maps that a program uses, at most 32 of them: our programs use fewer.
pub(crate) fn program_maps(program: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; 32];
    let mut info =
        libbpf::bpf_prog_info { nr_map_ids: 32, map_ids: ids.as_mut_ptr().addr() as u64, ..Default::default() };
    let mut bytes = u32::try_from(size_of::<libbpf::bpf_prog_info>()).unwrap_or(u32::MAX);
    // SAFETY: `map_ids` points at as many ids as `nr_map_ids` says, all other pointers are null, and all outlive the call.
    check(unsafe { libbpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) })?;
    Ok(ids.into_iter().take(usize::try_from(info.nr_map_ids).unwrap_or(0)).collect())
}

/// Ids of the programs at a device's tcx ingress hook. EINVAL where the kernel has no tcx (before 6.6).
pub(crate) fn tcx_programs(ifindex: u32) -> io::Result<Vec<u32>> {
    let mut ids = [0u32; 64];
    let mut options =
        libbpf::bpf_prog_query_opts { sz: options_bytes::<libbpf::bpf_prog_query_opts>(), ..Default::default() };
    options.prog_ids = ids.as_mut_ptr();
    options.__bindgen_anon_1.prog_cnt = 64;
    let ifindex = c_int::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `prog_ids` points at as many ids as `prog_cnt` says, and both outlive the call.
    check(unsafe { libbpf::bpf_prog_query_opts(ifindex, TCX_INGRESS, &raw mut options) })?;
    // SAFETY: both fields of the union are u32.
    let count = unsafe { options.__bindgen_anon_1.prog_cnt };
    Ok(ids.into_iter().take(usize::try_from(count).unwrap_or(0)).collect())
}

/// Ids of a device's XDP programs: native, generic, offloaded; 0 where there is none.
///
/// # Errors
/// As the system has it.
pub fn xdp_programs(ifindex: u32) -> io::Result<[u32; 3]> {
    let mut options =
        libbpf::bpf_xdp_query_opts { sz: options_bytes::<libbpf::bpf_xdp_query_opts>(), ..Default::default() };
    let ifindex = c_int::try_from(ifindex).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the options outlive the call.
    check(unsafe { libbpf::bpf_xdp_query(ifindex, 0, &raw mut options) })?;
    Ok([options.drv_prog_id, options.skb_prog_id, options.hw_prog_id])
}

/// What the kernel knows about a loaded program.
pub(crate) fn program_info(program: BorrowedFd<'_>) -> io::Result<libbpf::bpf_prog_info> {
    let mut info = libbpf::bpf_prog_info::default();
    let mut bytes = u32::try_from(size_of::<libbpf::bpf_prog_info>()).unwrap_or(u32::MAX);
    // SAFETY: `info` has `bytes` bytes, all its pointers are null, and both outlive the call.
    check(unsafe { libbpf::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) })?;
    Ok(info)
}

/// The program's name in `bpf_prog_info`, cut to 15 characters by the kernel.
pub(crate) fn program_name(info: &libbpf::bpf_prog_info) -> String {
    // SAFETY: the array is within `info`, and i8 and u8 have the same layout.
    let bytes = unsafe { std::slice::from_raw_parts(info.name.as_ptr().cast::<u8>(), info.name.len()) };
    CStr::from_bytes_until_nul(bytes).unwrap_or(c"").to_string_lossy().into_owned()
}

/// Runs a program on a packet `repeat` times without restoring it in between; returns verdict, bytes written to `out`, and ns per run.
pub(crate) fn test_run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    out: &mut [u8],
    repeat: u32,
) -> io::Result<(u32, usize, u32)> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut options =
        libbpf::bpf_test_run_opts { sz: options_bytes::<libbpf::bpf_test_run_opts>(), ..Default::default() };
    options.data_in = packet.as_ptr().cast();
    options.data_size_in = u32::try_from(packet.len()).map_err(too_long)?;
    options.data_out = out.as_mut_ptr().cast();
    options.data_size_out = u32::try_from(out.len()).map_err(too_long)?;
    options.repeat = c_int::try_from(repeat).map_err(too_long)?;
    // SAFETY: both buffers have the sizes stated and outlive the call; the program is open.
    check(unsafe { libbpf::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok((options.retval, usize::try_from(options.data_size_out).unwrap_or(0), options.duration))
}

/// Runs a program of type `syscall`, which takes no packet; returns its verdict.
///
/// # Errors
/// As the system has it.
pub fn run_syscall(program: BorrowedFd<'_>) -> io::Result<u32> {
    let mut options =
        libbpf::bpf_test_run_opts { sz: options_bytes::<libbpf::bpf_test_run_opts>(), ..Default::default() };
    // SAFETY: the options have no buffers and outlive the call; the program is open.
    check(unsafe { libbpf::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(options.retval)
}

/// Pins a descriptor of a BPF object.
pub(crate) fn pin(object: impl AsFd, path: &CStr) -> io::Result<()> {
    // SAFETY: the path is NUL-terminated and outlives the call; the object is open.
    check(unsafe { libbpf::bpf_obj_pin(object.as_fd().as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Whether the kernel lets programs of a type call a helper, by loading a program that does.
pub(crate) fn has_helper(program_type: u32, helper: u32) -> io::Result<bool> {
    // SAFETY: null options are allowed.
    check(unsafe { libbpf::libbpf_probe_bpf_helper(program_type, helper, std::ptr::null()) }).map(|known| known == 1)
}
