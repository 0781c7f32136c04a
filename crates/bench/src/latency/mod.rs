// SPDX-License-Identifier: Apache-2.0
//! `make bench-latency`: READs of 1 KiB by five ways, and scrapes, while the watched core idles, is saturated by hogs, or is flooded.

mod figure;
mod frames;
mod http;
mod lane;
mod openloop;
mod reads;

use crate::load::{Flood, Ksoftirqd, Load};
use crate::machine::{self, ASKING_CORE, CoreTicks, WATCHED_CORE, is_quick, parameter, sleep_ns};
use crate::peers;
use crate::report::{Results, percentile, time};
use crate::responder::{BLOCKS, KernelResponder, PORT, RKEY, VA, is_known_block};
use crate::world::{WATCHED, World};
use anyhow::{Context, Result, ensure};
use onlooker_reader::Via;
use onlooker_region::Identity;
use onlooker_region::guard::check;
use onlooker_responder::Hook;
use onlooker_transport::soft::{Config, FlowConfig, SoftRequester};
use onlooker_transport::tcp::TcpRequester;
use openloop::{Outcome, Path, Plan};
use reads::{Reads, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

const LOADS: [Load; 5] = [Load::Idle, Load::Hogs(4), Load::Hogs(16), Load::Flood(0), Load::Flood(4)];
const MS: u64 = 1_000_000;
/// Measuring goes round all loads and ways in pieces of this length, so that the machine's own drift meets all alike.
const PIECE_NS: u64 = 5_000 * MS;
const REALTIME_PRIORITY: i32 = 50;
/// The promise: under hogs the kernel responder's p99 stays within this many times its idle p99.
const KERNEL_RATIO_BOUND: f64 = 3.0;

/// The addresses of the devices that READs and floods come by: the usual one, and the one that has a lane.
const DEVICES: [&str; 2] = [WATCHED, lane::WATCHED];

/// A way to get at values of the watched machine.
struct Subject<'a> {
    name: &'static str,
    title: &'static str,
    interval_ns: u64,
    requests: u64,
    path: Box<dyn Path + 'a>,
    outcomes: [Outcome; LOADS.len()],
}

impl Subject<'_> {
    /// The address of the device that it comes by.
    fn device(&self) -> &'static str {
        if self.name == lane::NAME { lane::WATCHED } else { WATCHED }
    }

    /// Requests of the next piece under a load.
    fn piece(&self, load: usize) -> u64 {
        let left = self.requests.saturating_sub(self.outcomes[load].latencies_ns.len() as u64);
        left.min((PIECE_NS / self.interval_ns).max(1))
    }
}

fn wait_readable(fd: RawFd, timeout: Duration) -> Result<()> {
    // SAFETY: the caller owns the descriptor for the duration of this call.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let timeout = Timespec { tv_sec: timeout.as_secs().try_into()?, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("poll"),
    }
}

/// The requester's own floor: how late its timer is with nothing to ask.
struct Nothing;

impl Path for Nothing {
    fn send(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn poll(&mut self, _: &mut Vec<(u64, openloop::End)>) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        std::thread::sleep(timeout);
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        Ok(())
    }
}

fn kernel_tc(at: &str) -> Result<Reads<SoftRequester>> {
    let flow = FlowConfig { max_read_bytes: 1024, credit_bytes: 64 << 10 };
    let requester = SoftRequester::connect(format!("{at}:{PORT}").parse()?, Config::default(), flow)?;
    let target = Target { va: VA, rkey: RKEY, blocks: BLOCKS.into(), is_right: Box::new(is_known_block) };
    Ok(Reads::new(requester, target))
}

pub(crate) fn run() -> Result<bool> {
    machine::check_cores()?;
    machine::raise_session();
    let agent = std::env::var("AGENT").unwrap_or_else(|_| "build/onlooker-agent".to_owned());
    let agent = std::fs::canonicalize(&agent).with_context(|| format!("{agent}: build it, or say where with AGENT"))?;
    let (samples, slow) = (parameter("SAMPLES", 2000, 200)?, parameter("SCRAPES", 2000, 12)?);
    let fast = parameter("SAMPLES_1MS", 10_000, 500)?;

    let world = World::new()?;
    let mut tc = KernelResponder::load(&world, Hook::Tc)?;
    tc.attach()?;
    let _lane = lane::Lane::set(&world, &agent)?;
    tc.attach_also(lane::WATCHED_DEVICE, lane::ASKING)?;
    let mut xdp = KernelResponder::load(&world, Hook::Xdp)?;
    xdp.attach()?;
    let (_agent, told) = peers::agent(&world, &agent.to_string_lossy())?;
    let (responder, address) = told.responder(Via::Tcp)?;
    let blocks = told.answer.max_read_blocks(responder);
    let tcp = TcpRequester::connect(address, blocks, Duration::from_secs(5))?;
    let control = &told.answer.control;
    let identity = Identity::first(0, control.generation);
    let is_control = move |block: &_, _| check(block, identity).is_ok();
    let header = Target { va: control.va, rkey: control.rkey, blocks: 1, is_right: Box::new(is_control) };
    let exporter = peers::node_exporter(&world)?;

    let subject = |name, title, interval_ms, requests, path| Subject {
        name,
        title,
        interval_ns: interval_ms * MS,
        requests,
        path,
        outcomes: Default::default(),
    };
    let mut subjects = [
        subject("kernel_tc", "kernel responder, tc", 10, samples, Box::new(kernel_tc(WATCHED)?)),
        subject("kernel_tc_1ms", "kernel responder, tc, every 1 ms", 1, fast, Box::new(kernel_tc(WATCHED)?)),
        subject(lane::NAME, "kernel responder, tc, with a lane", 10, samples, Box::new(kernel_tc(lane::WATCHED)?)),
        subject("kernel_xdp", "kernel responder, native XDP", 10, samples, Box::new(frames::Frames::new()?)),
        subject("agent_tcp", "agent process over TCP", 10, samples, Box::new(Reads::new(tcp, header))),
        subject(
            "node_exporter",
            "node_exporter's own scrape",
            100,
            slow,
            Box::new(http::Scrapes::new(exporter.address)?),
        ),
    ];

    machine::pin(ASKING_CORE)?;
    machine::lock_memory();
    let flood = Flood::calibrate(&world)?;
    machine::set_realtime(REALTIME_PRIORITY)?;
    let plan = Plan { interval_ns: 10 * MS, requests: 100, patience_ns: 0 };
    let mut floor = openloop::run(&mut Nothing, plan)?.lateness_ns;
    println!("floor of the requester: timer late by {}", figures(&mut floor));

    let before = (tc.answered_by_core()?, xdp.answered_by_core()?);
    let mut ksoftirqd = [(0.0, 0.0); LOADS.len()];
    while subjects.iter().any(|subject| (0..LOADS.len()).any(|load| subject.piece(load) > 0)) {
        for (index, load) in LOADS.into_iter().enumerate() {
            for at in DEVICES {
                let _running = load.start(&world, &flood, at)?;
                sleep_ns(300 * MS);
                let (meter, ticks) = (Ksoftirqd::now()?, CoreTicks::of(WATCHED_CORE)?);
                for subject in subjects.iter_mut().filter(|subject| subject.device() == at) {
                    let requests = subject.piece(index);
                    if requests > 0 {
                        let plan = Plan { interval_ns: subject.interval_ns, requests, patience_ns: 3_000 * MS };
                        let outcome = openloop::run(&mut *subject.path, plan);
                        subject.outcomes[index].add(outcome.with_context(|| subject.name)?);
                    }
                }
                if at == WATCHED {
                    ksoftirqd[index] = (meter.pct()?, ticks.busy_pct(WATCHED_CORE)?);
                }
            }
        }
    }
    machine::set_realtime(0)?;
    let by_core = |before: &[u64], after: Vec<u64>| -> Vec<u64> {
        after.into_iter().zip(before).map(|(after, before)| after - before).collect()
    };
    let moved = [by_core(&before.0, tc.answered_by_core()?), by_core(&before.1, xdp.answered_by_core()?)];
    for (load, (soft, busy)) in LOADS.iter().zip(ksoftirqd) {
        let rate =
            if matches!(load, Load::Flood(_)) { format!(", {} datagrams/s", flood.rate()) } else { String::new() };
        println!(
            "{}: core {WATCHED_CORE} busy {busy:.0} %, ksoftirqd/{WATCHED_CORE} {soft:.1} % of it{rate}",
            load.name()
        );
    }
    println!("packets at the responders: tc: {}; XDP: {}", tc.exits()?, xdp.exits()?);
    report(&mut subjects, &moved)
}

fn figures(samples: &mut [u64]) -> String {
    samples.sort_unstable();
    let at = |share| percentile(samples, share).map_or_else(|| "-".to_owned(), time);
    format!("p50 {}, p90 {}, p99 {}, p99.9 {}, max {}", at(0.5), at(0.9), at(0.99), at(0.999), at(1.0))
}

fn report(subjects: &mut [Subject], moved: &[Vec<u64>; 2]) -> Result<bool> {
    let mut results = Results::default();
    let mut ratios = Vec::new();
    for subject in &mut *subjects {
        println!("{} (every {} ms)", subject.title, subject.interval_ns / MS);
        let mut idle_p99 = None;
        for (outcome, load) in subject.outcomes.iter_mut().zip(LOADS) {
            let (count, lost, wrong) = (outcome.latencies_ns.len(), outcome.lost, outcome.wrong);
            // From sending: what the responder and the way to it took. For information; the requester's delay counts in all other figures.
            let pairs = outcome.latencies_ns.iter().zip(&outcome.lateness_ns);
            let mut since_sent: Vec<u64> =
                pairs.map(|(&ns, late)| if ns == u64::MAX { ns } else { ns.saturating_sub(*late) }).collect();
            outcome.latencies_ns.sort_unstable();
            let p99 = percentile(&outcome.latencies_ns, 0.99).context("no samples")?;
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds")]
            let ratio = p99 as f64 / *idle_p99.get_or_insert(p99) as f64;
            // A lost answer is later than any.
            let ratio = if p99 == u64::MAX { f64::INFINITY } else { ratio };
            println!("  {:12} {} ({} idle's p99)", load.name(), figures(&mut outcome.latencies_ns), times(ratio));
            let late = figures(&mut outcome.lateness_ns);
            println!("  {:12}   {count} requests, {lost} lost, {wrong} wrong; sent late by {late}", "");
            println!("  {:12}   from sending: {}", "", figures(&mut since_sent));
            ensure!(wrong == 0, "{}: {wrong} wrong answers under {}", subject.name, load.name());
            if load != Load::Idle {
                ratios.push((subject.name, load, ratio));
            }
        }
    }
    println!("p99 under load, in times of the same way's idle p99:");
    for (name, load, ratio) in &ratios {
        match (*name, load) {
            ("kernel_tc", Load::Hogs(_)) | (lane::NAME, _) => {
                results.at_most(&format!("{name}_p99_ratio_{}", load.name()), *ratio, "x", KERNEL_RATIO_BOUND);
            }
            _ => println!("{name}_p99_ratio_{} {}", load.name(), times(*ratio)),
        }
    }
    for (name, by_core) in ["kernel_tc", "kernel_xdp"].iter().zip(moved) {
        let all: u64 = by_core.iter().sum();
        #[allow(clippy::cast_precision_loss, reason = "counts")]
        let pct = 100.0 * by_core[WATCHED_CORE] as f64 / all.max(1) as f64;
        println!("{name}: answered by core {by_core:?}");
        let name = format!("{name}_answered_on_core{WATCHED_CORE}");
        results.line(&name, &format!("{pct:.2}"), "%", ">= 99.9", pct >= 99.9);
    }
    let usual = if is_quick() { None } else { Some("docs/images/read-latency.svg".to_owned()) };
    if let Some(path) = std::env::var("SVG").ok().filter(|path| !path.is_empty()).or(usual) {
        let panels = LOADS.iter().enumerate().filter(|(_, load)| **load != Load::Hogs(4));
        let panels: Vec<_> = panels.map(|(index, load)| panel(subjects, index, *load)).collect();
        if let Some(directory) = std::path::Path::new(&path).parent() {
            std::fs::create_dir_all(directory)?;
        }
        std::fs::write(&path, figure::draw(&panels)).with_context(|| path.clone())?;
        println!("drawn: {path}");
    }
    Ok(results.passed())
}

fn panel<'a>(subjects: &'a [Subject], index: usize, load: Load) -> figure::Panel<'a> {
    let shown = ["kernel_tc", lane::NAME, "kernel_xdp", "agent_tcp", "node_exporter"];
    let curves = subjects.iter().filter(|subject| shown.contains(&subject.name));
    let curves = curves.map(|subject| (subject.title, subject.outcomes[index].latencies_ns.as_slice())).collect();
    figure::Panel { title: load.title(), curves }
}

fn times(ratio: f64) -> String {
    if ratio.is_infinite() { "lost, beyond any multiple of".to_owned() } else { format!("{ratio:.2} x") }
}
