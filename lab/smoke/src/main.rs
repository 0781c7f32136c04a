// SPDX-License-Identifier: Apache-2.0
//! Runs inside a laboratory guest and proves that the guest is what later tests take it for: the kernel asked for, with
//! BTF, mapped BPF arrays, tc, cgroup v2, and a soft-RoCE device whose READs return live memory and refuse wrong keys.
//!
//! `onlooker-lab-smoke 6.1` prints a line for each check, then `N passed, M failed`; exit code 0 only when none failed.
//! Each check stands alone: no failure hides another. `onlooker-lab-smoke pair` is for two guests on a wire.

mod bpf;
mod pair;
mod rdma;

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering;

use sideway::ibverbs::completion::WorkCompletionStatus;

/// What a check found when all was well, for the reader of the log.
type Outcome = Result<String, Box<dyn Error>>;

/// A block, the unit of every READ in the project.
const BLOCK_BYTES: usize = 1024;
const BLOCK_WORDS: usize = BLOCK_BYTES / 8;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("pair") => report(&[("RDMA READ across the wire", pair::read_across_the_wire())]),
        Some(series) => report(&[
            ("kernel is of the series asked for", kernel_is(series)),
            ("file systems are mounted", file_systems()),
            ("cgroup v2 has cpu and memory for children", cgroup_controllers()),
            ("kernel has BTF", kernel_btf()),
            ("clsact qdisc loads its module", clsact()),
            ("BPF array is mapped and live", bpf_array_is_live()),
            ("rxe port is ACTIVE", port_is_active()),
            ("RDMA READ returns live bytes of a BPF array", read_is_live()),
            ("RDMA READ with a wrong rkey is refused", wrong_rkey_is_refused()),
        ]),
        None => {
            eprintln!("usage: onlooker-lab-smoke KERNEL_SERIES (such as 6.1) | pair");
            ExitCode::from(2)
        }
    }
}

fn report(outcomes: &[(&str, Outcome)]) -> ExitCode {
    let failed = outcomes.iter().filter(|(name, outcome)| !reported_ok(name, outcome)).count();
    println!("{} passed, {failed} failed", outcomes.len() - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn reported_ok(name: &str, outcome: &Outcome) -> bool {
    match outcome {
        Ok(detail) => println!("ok   {name}: {detail}"),
        Err(error) => println!("FAIL {name}: {error}"),
    }
    outcome.is_ok()
}

fn kernel_is(series: &str) -> Outcome {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    // With the dot: 6.1 must not be satisfied by 6.12.
    if release.starts_with(&format!("{series}.")) { Ok(release) } else { Err(format!("{release} booted").into()) }
}

fn file_systems() -> Outcome {
    let wanted = ["/sys/fs/bpf bpf", "/sys/kernel/tracing tracefs", "/sys/fs/cgroup cgroup2", "/dev/shm tmpfs"];
    let mounts = fs::read_to_string("/proc/mounts")?;
    for mount in wanted {
        if !mounts.contains(&format!(" {mount} ")) {
            return Err(format!("'{mount}' is not in /proc/mounts").into());
        }
    }
    Ok(wanted.join(", "))
}

fn cgroup_controllers() -> Outcome {
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control")?.trim().to_owned();
    for wanted in ["cpu", "memory"] {
        if !controllers.split(' ').any(|controller| controller == wanted) {
            return Err(format!("no '{wanted}' in '{controllers}'").into());
        }
    }
    Ok(controllers)
}

fn kernel_btf() -> Outcome {
    let btf = fs::read("/sys/kernel/btf/vmlinux")?;
    // Linux, include/uapi/linux/btf.h: BTF_MAGIC, little-endian here.
    if !btf.starts_with(&0xeb9f_u16.to_le_bytes()) {
        return Err("/sys/kernel/btf/vmlinux does not begin with BTF's magic number".into());
    }
    Ok(format!("{} KiB", btf.len() / 1024))
}

fn clsact() -> Outcome {
    // By its path: busybox has a tc of its own that knows no clsact.
    let output = Command::new("/usr/local/bin/tc").args(["qdisc", "replace", "dev", "lo", "clsact"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    if !Path::new("/sys/module/sch_ingress").exists() {
        return Err("tc succeeded but sch_ingress is not loaded".into());
    }
    Ok("on lo".to_owned())
}

fn bpf_array_is_live() -> Outcome {
    let array = bpf::MappedArray::new(BLOCK_BYTES, 4)?;
    array.words()[BLOCK_WORDS + 5].store(0x0123_4567_89ab_cdef, Ordering::Relaxed);
    let mut block = [0_u64; BLOCK_WORDS];
    array.lookup(1, &mut block)?;
    match block[5] {
        0x0123_4567_89ab_cdef => Ok("the kernel sees a store through the mapping".to_owned()),
        other => Err(format!("stored 0x123456789abcdef through the mapping, the kernel sees {other:#x}").into()),
    }
}

fn port_is_active() -> Outcome {
    let device = std::env::var("LAB_RDMA")?;
    let state = fs::read_to_string(format!("/sys/class/infiniband/{device}/ports/1/state"))?.trim().to_owned();
    if state.ends_with("ACTIVE") { Ok(format!("{device} {state}")) } else { Err(format!("{device} is {state}").into()) }
}

/// Two ends on this guest's device, connected to each other; the first exposes a fresh array.
fn loopback() -> Result<(rdma::End, rdma::End), Box<dyn Error>> {
    let mut exposing = rdma::End::exposing(bpf::MappedArray::new(BLOCK_BYTES, 4)?)?;
    let mut reading = rdma::End::reading()?;
    exposing.connect(&reading.address())?;
    reading.connect(&exposing.address())?;
    Ok((exposing, reading))
}

/// Reads a block twice with its memory changed in between: a copy made at registration would pass the first time only.
fn read_is_live() -> Outcome {
    let (exposing, mut reading) = loopback()?;
    let peer = exposing.address();
    let block = 2;
    for round in 1..=2_u64 {
        let expected = |index: usize| round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index as u64;
        for (index, word) in exposing.words().iter().enumerate() {
            word.store(expected(index), Ordering::Release);
        }
        let status = reading.read(peer.rkey, peer.memory, block)?;
        if status != WorkCompletionStatus::Success {
            return Err(format!("READ {round} completed with {status:?}").into());
        }
        for (index, word) in reading.block().into_iter().enumerate() {
            let wanted = expected(block * BLOCK_WORDS + index);
            if word != wanted {
                return Err(format!("READ {round}: word {index} is {word:#x}, not {wanted:#x}").into());
            }
        }
    }
    Ok(format!("{BLOCK_BYTES} bytes, twice, between two queue pairs"))
}

fn wrong_rkey_is_refused() -> Outcome {
    let (exposing, mut reading) = loopback()?;
    let peer = exposing.address();
    for word in exposing.words() {
        word.store(u64::MAX, Ordering::Release);
    }
    match reading.read(peer.rkey ^ 0x55, peer.memory, 0)? {
        WorkCompletionStatus::RemoteAccessError if reading.block().iter().all(|word| *word == 0) => {
            Ok("IBV_WC_REM_ACCESS_ERR, nothing was written".to_owned())
        }
        status => Err(format!("completed with {status:?}, or bytes arrived").into()),
    }
}
