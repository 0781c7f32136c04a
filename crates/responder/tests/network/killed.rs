// SPDX-License-Identifier: Apache-2.0
//! A loader that is killed in the middle of a replacement, at every system call that changes anything: READs go on, and the next loader mends.
//!
//! The loader is this test binary once more, under ptrace: it is stopped at the beginning of each system call and killed at the chosen one.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use onlooker_responder::{Exit, Home, Outcome, Pinned};

use crate::requester::UdpRequester;
use crate::support::{RKEY, exits};
use crate::upgrade::{Way, code_point, marked, programs_of_home, reading};
use crate::world::World;

/// Names the BPF file system to a process that is to replace programs.
const REPLACER: &str = "ONLOOKER_TEST_REPLACER_BPFFS";

fn replace(bpffs: &std::path::Path) -> Outcome {
    Pinned::ensure(&marked(1), &Home::new(bpffs, "test").unwrap()).unwrap().1
}

/// Both a test and the process that the others start.
#[test]
fn a_replacer_that_lives_replaces() {
    if let Some(bpffs) = std::env::var_os(REPLACER) {
        replace(std::path::Path::new(&bpffs));
        return;
    }
    let world = World::new();
    drop(world.responder(&marked(0)));
    assert_eq!(replace(world.bpffs()), Outcome::Replaced);
}

/// On an emulated processor each round takes seconds: after this time some calls are left out.
const SOME_AFTER: Duration = Duration::from_secs(15);

/// Whether a system call may change something that outlives the process. Arguments as in `struct user_regs_struct`.
#[cfg(target_arch = "x86_64")]
fn changes_something(registers: &libc::user_regs_struct) -> bool {
    // BPF_MAP_UPDATE_ELEM, BPF_OBJ_PIN, BPF_LINK_UPDATE of linux/bpf.h.
    const BPF_COMMANDS: [u64; 3] = [2, 6, 29];
    match libc::c_long::try_from(registers.orig_rax).unwrap_or(-1) {
        libc::SYS_bpf => BPF_COMMANDS.contains(&registers.rdi),
        libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_unlink | libc::SYS_unlinkat => true,
        libc::SYS_mkdir | libc::SYS_mkdirat => true,
        // Netlink: to filters. What libbpf sends to find out about the kernel is counted too, which does no harm.
        libc::SYS_sendto | libc::SYS_sendmsg => true,
        _ => false,
    }
}

/// Starts a replacer and kills it as it begins its `nth` call that changes something; false if it ended before.
#[cfg(target_arch = "x86_64")]
fn killed_at(world: &World, nth: u32) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "killed::a_replacer_that_lives_replaces", "--test-threads=1"])
        .env(REPLACER, world.bpffs())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // SAFETY: ptrace(PTRACE_TRACEME) is a plain system call.
    let child = unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    #[expect(clippy::zombie_processes, reason = "waitpid below waits for it")]
    let child = child.spawn().unwrap();
    let first = libc::pid_t::try_from(child.id()).unwrap();
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    let (mut seen, mut killed) = (0, false);
    loop {
        let mut status = 0;
        // SAFETY: `status` is live; only children of this thread are waited for, and the replacer is the only one.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        assert!(pid > 0, "{}", std::io::Error::last_os_error());
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            if pid == first {
                assert!(killed || libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the replacer failed");
                return killed;
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let in_call = signal == libc::SIGTRAP | 0x80;
        // SAFETY: the thread is stopped and traced by this thread; `registers` is live and large enough.
        unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            if pid == first && status >> 8 == libc::SIGTRAP {
                libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options);
            }
            if in_call && libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers) == 0 {
                // At its beginning a call's result is -ENOSYS.
                let begins = registers.rax.cast_signed() == -i64::from(libc::ENOSYS);
                seen += u32::from(begins && changes_something(&registers));
                if begins && seen == nth && !killed {
                    killed = true;
                    libc::kill(first, libc::SIGKILL);
                }
            }
            // Stops of ptrace's own are not handed on.
            let handed_on = if in_call || signal == libc::SIGTRAP || signal == libc::SIGSTOP { 0 } else { signal };
            libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, handed_on);
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn killed_everywhere(way: Way) {
    let world = World::new();
    let home = world.home("test");
    let responder = world.responder(&marked(0));
    way.attach(&world, &responder);
    let attachments = responder.attachments();
    drop(responder);
    let mut requester = UdpRequester::new(&world, false);
    let (mut in_doubt, mut total, mut nth) = (0, 0, 0);
    let start = Instant::now();
    loop {
        nth += if start.elapsed() > SOME_AFTER { 7 } else { 1 };
        let (answered, killed) = reading(&mut requester, &[RKEY], way.read_bytes(), || killed_at(&world, nth));
        total += answered;
        if !killed {
            break;
        }
        in_doubt += u32::from(Pinned::open(&home).is_err());
        // With the old configuration, so that every round begins alike.
        let (answered, (responder, outcome)) =
            reading(&mut requester, &[RKEY], way.read_bytes(), || Pinned::ensure(&marked(0), &home).unwrap());
        total += answered;
        assert!(matches!(outcome, Outcome::Replaced | Outcome::Reopened), "after call {nth}: {outcome}");
        assert_eq!(responder.attachments(), attachments);
        assert_eq!(programs_of_home(&home), ["finish_tc", "finish_xdp", "tc", "xdp"]);
        assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, total)]);
    }
    assert!(in_doubt >= 3, "only {in_doubt} of {nth} were killed in the middle");
    assert_eq!(code_point(&world, way.read_bytes()), 1);
    home.purge().unwrap();
    assert_eq!(requester.read_at(0, way.read_bytes()), None, "something is left that answers");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_killed_replacement_in_a_link_is_mended() {
    killed_everywhere(Way::Tc);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_killed_replacement_in_a_filter_is_mended() {
    killed_everywhere(Way::Filter);
}

/// A purge after a replacer died between a filter and its pin: the filter's program is neither the pinned one nor remembered.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_purge_after_a_killed_replacement_leaves_nothing() {
    let (mut nth, start) = (0, Instant::now());
    loop {
        nth += if start.elapsed() > SOME_AFTER { 7 } else { 3 };
        let world = World::new();
        let responder = world.responder(&marked(0));
        responder.attach_by_filter(&crate::world::device()).unwrap();
        drop(responder);
        if !killed_at(&world, nth) {
            break;
        }
        world.home("test").purge().unwrap();
        let shown = crate::world::programs_shown();
        assert!(!shown.contains("clsact"), "after call {nth}: {shown}");
    }
    assert!(nth > 10);
}
