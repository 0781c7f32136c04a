// SPDX-License-Identifier: Apache-2.0
//! What the kernel counts of the whole machine in variables of their own: open files (fs/file_table.c), threads and processes (kernel/fork.c). Group stat computes them.
//!
//! Each is found as a symbol, or as an operand of the function that prints or checks it, where exactly one candidate has the value that procfs has before and after.

use std::fs;

use super::procfs;
use crate::discover::{Discovery, Read};

/// Attempts to meet procfs's value while nothing moves.
const TRIES: u32 = 30;
/// How far procfs may be from a candidate's value for a closer look.
const ROUGHLY: u64 = 256;
/// Files that are opened to see whether procfs tells of each at once.
const PROBES: u32 = 20;
/// The least that a CPU holds back (compute_batch_value in lib/percpu_counter.c).
const BATCH: u64 = 32;

/// Addresses; 0: not found.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Totals {
    /// `nr_threads`, an int.
    pub(crate) threads: u64,
    /// `max_files` of `files_stat`, an unsigned long.
    pub(crate) most_files: u64,
    /// `count` of `nr_files`, a `struct percpu_counter`.
    pub(crate) files: u64,
    /// Its `counters`: with a CPU's offset its part. 0 where procfs leaves the parts out, too.
    pub(crate) file_parts: u64,
}

impl Totals {
    /// What can be found; why not is noted.
    pub(crate) fn find(discovery: &mut Discovery, cpus: u32) -> Self {
        let mut totals = Self { threads: threads(discovery).unwrap_or(0), ..Self::default() };
        totals.most_files = most_files(discovery).unwrap_or(0);
        if let Ok((files, parts)) = files(discovery, cpus) {
            (totals.files, totals.file_parts) = (files, parts);
        }
        totals
    }
}

fn threads(discovery: &mut Discovery) -> Result<u64, String> {
    discovery.global("nr_threads", &["loadavg_proc_show"], |address, read: &Read<'_>| {
        let value = || Some(u32::from_le_bytes(read(address, 4)?.try_into().ok()?).into());
        is_between(value, || procfs::threads().ok()).then_some(address)
    })
}

/// Whether a value lies between what procfs says before and after, in one of some attempts.
fn is_between(value: impl Fn() -> Option<u64>, printed: impl Fn() -> Option<u64>) -> bool {
    for _ in 0..TRIES {
        let Some((before, value, after)) = printed().zip(value()).zip(printed()).map(|((b, v), a)| (b, v, a)) else {
            return false;
        };
        if value.abs_diff(before) > ROUGHLY {
            return false;
        }
        if before.min(after) <= value && value <= before.max(after) {
            return true;
        }
    }
    false
}

/// proc_nr_files fills in the first number of `files_stat`, the second is always 0, the third is the limit.
fn most_files(discovery: &mut Discovery) -> Result<u64, String> {
    let at = discovery.offset("files_stat_struct", &["max_files"])?;
    let unused = discovery.offset("files_stat_struct", &["nr_free_files"])?;
    let base = discovery.global("files_stat", &["proc_nr_files", "alloc_empty_file"], |address, read: &Read<'_>| {
        let word = |address: u64| Some(u64::from_le_bytes(read(address, 8)?.try_into().ok()?));
        let (_, most) = procfs::files().ok()?;
        // The structure itself, or the limit in it.
        let is_it = |base: u64| Some(word(base.wrapping_add(at))? == most && word(base.wrapping_add(unused))? == 0);
        [address, address.wrapping_sub(at)].into_iter().find(|base| is_it(*base) == Some(true))
    })?;
    Ok(base + at)
}

fn files(discovery: &mut Discovery, cpus: u32) -> Result<(u64, u64), String> {
    let count_at = discovery.offset("percpu_counter", &["count"])?;
    let counters_at = discovery.offset("percpu_counter", &["counters"])?;
    let offsets = discovery.percpu_offsets(cpus)?;
    let sums = procfs_adds_up().ok_or("/proc/sys/fs/file-nr cannot be read")?;
    let base = discovery.global("nr_files", &["proc_nr_files", "alloc_empty_file"], |address, read: &Read<'_>| {
        let word = |address: u64| Some(u64::from_le_bytes(read(address, 8)?.try_into().ok()?));
        let value = |base: u64| {
            let counters = word(base.wrapping_add(counters_at))?;
            let part = |offset: &u64| {
                let bytes = read(counters.wrapping_add(*offset), 4)?.try_into().ok()?;
                Some(i64::from(i32::from_le_bytes(bytes)))
            };
            let parts = offsets.iter().map(part).sum::<Option<i64>>()?;
            word(base.wrapping_add(count_at)).map(|count| count.wrapping_add_signed(if sums { parts } else { 0 }))
        };
        let printed = || procfs::files().ok().map(|(open, _)| open);
        // The counter itself, or its count.
        [address, address.wrapping_sub(count_at)].into_iter().find(|base| is_between(|| value(*base), printed))
    })?;
    let counters = discovery.word(base + counters_at)?;
    Ok((base + count_at, if sums { counters } else { 0 }))
}

/// Whether file-nr adds up what CPUs hold back (percpu_counter_sum_positive: recent kernels) or not (get_nr_files), so that it moves by BATCH and more only, or not at all.
fn procfs_adds_up() -> Option<bool> {
    let mut held = Vec::new();
    let mut moved_by_little = 0;
    for _ in 0..PROBES {
        let before = procfs::files().ok()?.0;
        held.push(fs::File::open("/dev/null").ok()?);
        let moved = procfs::files().ok()?.0.abs_diff(before);
        moved_by_little += u32::from((1..BATCH).contains(&moved));
    }
    Some(moved_by_little >= PROBES / 4)
}
