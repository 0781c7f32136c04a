// SPDX-License-Identifier: Apache-2.0
//! A loaded BPF program: what the kernel knows about it, and running it on a packet without a device.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::ProgramHandle;

use crate::error::{CHECK_KERNEL_LOG, Result, system};
use crate::sys;

/// What the kernel knows about a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Kernel's id.
    pub id: u32,
    /// Name, cut to 15 characters.
    pub name: String,
    /// Instructions that the verifier walked; its limit is 1,000,000.
    pub verified_insns: u32,
    /// Instructions after the kernel's rewriting.
    pub translated_insns: u32,
    /// Machine code, bytes; 0 where the JIT is off.
    pub jited_bytes: u32,
    /// How often it ran while `kernel.bpf_stats_enabled` was 1, packets of others included.
    pub runs: u64,
    /// How long these runs took together.
    pub run_time_ns: u64,
}

/// Outcome of [`Program::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The program's return value: `TC_ACT_*` or `XDP_*`.
    pub verdict: u32,
    /// The packet afterwards.
    pub packet: Vec<u8>,
    /// Mean time of a run.
    pub duration_ns: u32,
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    handle: ProgramHandle,
}

/// Room for the longest packet a run may leave.
const RUN_BYTES: usize = 16 << 10;

impl Program {
    pub(crate) fn new(handle: ProgramHandle) -> Self {
        Self { handle }
    }

    pub(crate) fn handle(&self) -> &ProgramHandle {
        &self.handle
    }

    /// # Errors
    /// [`crate::Error::System`].
    pub fn info(&self) -> Result<ProgramInfo> {
        info_of(self.as_fd())
    }

    /// Runs the program on a copy of `packet`, an Ethernet frame, `repeat` times: with real maps, counters and memory, without a device. The packet is
    /// not restored between repetitions.
    ///
    /// # Errors
    /// [`crate::Error::System`]: EINVAL for frames that are too short for the kernel (14 bytes, later ones more).
    pub fn run(&self, packet: &[u8], repeat: u32) -> Result<Run> {
        run(self.as_fd(), packet, repeat)
    }
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// [`Program::info`] of any program.
///
/// # Errors
/// [`crate::Error::System`].
pub fn info_of(program: BorrowedFd<'_>) -> Result<ProgramInfo> {
    let info = sys::program_info(program).map_err(system("BPF_OBJ_GET_INFO_BY_FD", "a program", CHECK_KERNEL_LOG))?;
    Ok(ProgramInfo {
        id: info.id,
        name: sys::program_name(&info),
        verified_insns: info.verified_insns,
        translated_insns: info.xlated_prog_len / 8,
        jited_bytes: info.jited_prog_len,
        runs: info.run_cnt,
        run_time_ns: info.run_time_ns,
    })
}

/// [`Program::run`] of any program.
///
/// # Errors
/// As [`Program::run`].
pub fn run(program: BorrowedFd<'_>, packet: &[u8], repeat: u32) -> Result<Run> {
    let mut out = vec![0; RUN_BYTES];
    let (verdict, bytes, duration_ns) = sys::test_run(program, packet, &mut out, repeat).map_err(system(
        "BPF_PROG_TEST_RUN",
        format!("a frame of {} bytes", packet.len()),
        "give a whole Ethernet frame",
    ))?;
    out.truncate(bytes);
    Ok(Run { verdict, packet: out, duration_ns })
}
