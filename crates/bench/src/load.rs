// SPDX-License-Identifier: Apache-2.0
//! What the watched core has to bear beside being watched. Each load is child processes, ended with its handle.

use crate::children::{Running, silent, start};
use crate::machine::{ASKING_CORE, WATCHED_CORE, kernel_thread, now_ns, run_time_ns, sleep_ns};
use crate::world::{WATCHED, World};
use anyhow::{Context, Result, bail, ensure};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::process::Command;

const FLOOD_BYTES: usize = 64;
/// Datagrams a second between which the flood's rate is looked for, in so many halvings.
const FLOOD_RATES: (u32, u32) = (30_000, 600_000);
const HALVINGS: u32 = 6;
/// Additions that the sink's socket filter does for each datagram before it drops it: 1 to 2 us, as a firewall with some dozens of rules would take. Without
/// them one core cannot send as many datagrams as the other can drop.
const FILTER_STEPS: usize = 4000;
/// The flood is high enough once ksoftirqd has this share of its core; what is above is more than the core can take, and measures the queue in front of it.
const ENOUGH_PCT: f64 = 3.0;

/// What competes with the responder for its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Idle,
    /// Processes that do nothing but compute.
    Hogs(u32),
    /// UDP datagrams to a socket that nobody reads, so many that ksoftirqd has to run; and as many hogs.
    Flood(u32),
}

impl Load {
    /// Its name in results.
    pub(crate) fn name(self) -> String {
        match self {
            Load::Idle => "idle".to_owned(),
            Load::Hogs(count) => format!("hogs{count}"),
            Load::Flood(0) => "flood".to_owned(),
            Load::Flood(count) => format!("flood_hogs{count}"),
        }
    }

    /// Its name for people.
    pub(crate) fn title(self) -> String {
        match self {
            Load::Idle => "nothing else running".to_owned(),
            Load::Hogs(count) => format!("{count} CPU hogs"),
            Load::Flood(0) => "UDP flood, ksoftirqd awake".to_owned(),
            Load::Flood(count) => format!("UDP flood and {count} CPU hogs"),
        }
    }

    /// Floods come by the device that has the address `at`.
    pub(crate) fn start(self, world: &World, flood: &Flood, at: &str) -> Result<Vec<Running>> {
        let (hogs, floods) = match self {
            Load::Idle => (0, false),
            Load::Hogs(count) => (count, false),
            Load::Flood(count) => (count, true),
        };
        let mut running = Vec::new();
        for _ in 0..hogs {
            running.push(start(&mut itself(&["hog"])?, WATCHED_CORE, Some(world.watched()))?);
        }
        if floods {
            running.push(flood.start(at, flood.per_second)?);
        }
        Ok(running)
    }
}

/// A UDP socket that nobody reads, and the rate at which datagrams to it wake ksoftirqd.
#[derive(Debug)]
pub(crate) struct Flood {
    sink: UdpSocket,
    per_second: u32,
}

impl Flood {
    /// Looks for the least rate that wakes ksoftirqd, 0.4 s for each try.
    pub(crate) fn calibrate(world: &World) -> Result<Self> {
        let sink = world.on_watched(|| Ok(UdpSocket::bind(("0.0.0.0", 0))?))?;
        filter(&sink)?;
        let (mut low, mut high) = FLOOD_RATES;
        let mut flood = Self { sink, per_second: high };
        for _ in 0..HALVINGS {
            let per_second = u32::midpoint(low, high);
            let _flooding = flood.start(WATCHED, per_second)?;
            sleep_ns(100_000_000);
            let meter = Ksoftirqd::now()?;
            sleep_ns(300_000_000);
            let pct = meter.pct()?;
            println!("flood: {per_second} datagrams/s: ksoftirqd/{WATCHED_CORE} has {pct:.1} % of its core");
            if pct >= ENOUGH_PCT { high = per_second } else { low = per_second }
        }
        flood.per_second = high;
        Ok(flood)
    }

    /// Datagrams a second.
    pub(crate) fn rate(&self) -> u32 {
        self.per_second
    }

    fn start(&self, at: &str, per_second: u32) -> Result<Running> {
        let target = format!("{at}:{}", self.sink.local_addr()?.port());
        start(&mut itself(&["flood", &target, &per_second.to_string()])?, ASKING_CORE, None)
    }
}

/// Attaches a filter that takes its time and drops everything.
fn filter(socket: &UdpSocket) -> Result<()> {
    let step = |code: u32, k: u32| -> Result<libc::sock_filter> {
        Ok(libc::sock_filter { code: u16::try_from(code)?, jt: 0, jf: 0, k })
    };
    let mut program = vec![step(libc::BPF_LD | libc::BPF_IMM, 1)?];
    program.resize(FILTER_STEPS, step(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 3)?);
    program.push(step(libc::BPF_RET | libc::BPF_K, 0)?);
    let filter = libc::sock_fprog { len: u16::try_from(program.len())?, filter: program.as_mut_ptr() };
    let bytes = libc::socklen_t::try_from(size_of_val(&filter))?;
    // SAFETY: `filter` and the instructions that it points at live until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            bytes,
        )
    };
    ensure!(result == 0, "socket filter: {}", std::io::Error::last_os_error());
    Ok(())
}

/// How much of the watched core its ksoftirqd gets.
#[derive(Debug)]
pub(crate) struct Ksoftirqd {
    pid: u32,
    ran_ns: u64,
    at_ns: u64,
}

impl Ksoftirqd {
    pub(crate) fn now() -> Result<Self> {
        let pid = kernel_thread(&format!("ksoftirqd/{WATCHED_CORE}"))?;
        Ok(Self { pid, ran_ns: run_time_ns(pid)?, at_ns: now_ns() })
    }

    /// Percent since then.
    pub(crate) fn pct(&self) -> Result<f64> {
        Ok(100.0 * (run_time_ns(self.pid)? - self.ran_ns) as f64 / (now_ns() - self.at_ns) as f64)
    }
}

/// This program with other arguments.
pub(crate) fn itself(arguments: &[&str]) -> Result<Command> {
    let path = std::env::current_exe().context("finding this program")?;
    let mut command = silent(&path.to_string_lossy());
    command.args(arguments);
    Ok(command)
}

/// The program `hog`: computes until it is killed, and then some seconds at most.
pub(crate) fn hog() -> Result<bool> {
    let end_ns = now_ns() + 600_000_000_000;
    let mut value = 1u64;
    while now_ns() < end_ns {
        for _ in 0..1_000_000 {
            value = std::hint::black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7));
        }
    }
    bail!("nobody ended this hog ({value})")
}

/// The program `flood`: sends until it is killed. One datagram a system call, so that a requester of higher priority on the same core waits for one at most.
pub(crate) fn flood(target: &str, per_second: &str) -> Result<()> {
    let per_second: u64 = per_second.parse()?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(target)?;
    let begin_ns = now_ns();
    for sent in 0u64.. {
        // Errors are the answers of a receiver that has gone.
        let _ = socket.send(&[0x5a; FLOOD_BYTES]);
        if sent.is_multiple_of(16) {
            if now_ns() - begin_ns > 600_000_000_000 {
                break;
            }
            let due_ns = begin_ns + sent * 1_000_000_000 / per_second;
            while now_ns() < due_ns {
                std::hint::spin_loop();
            }
        }
    }
    Ok(())
}
