// SPDX-License-Identifier: Apache-2.0
//! What the victim is monitored by. Everything is started once and rests, stopped or detached, while it is not its turn.

use crate::machine::{ASKING_CORE, now_ns, pin, sleep_ns, thread_cpu_ns};
use crate::peers::{self, Peer};
use crate::responder::{BLOCKS, KernelResponder, PORT, RKEY, Readable, VA};
use crate::world::{WATCHED, World};
use anyhow::{Context, Result, ensure};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::{Outcome, Read, Requester as _};
use onlooker_region::Block;
use onlooker_responder::Hook;
use onlooker_transport::soft::{Config, FlowConfig, SoftRequester};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// node_exporter's metrics are asked for so often.
const SCRAPE_MS: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// Nothing, beside nothing: what the method shows where there is nothing to show.
    Control,
    /// Onlooker, reading everything every so many ms.
    Ours(u64),
    NodeExporter,
    Netdata,
}

impl Condition {
    pub(crate) fn name(self) -> String {
        match self {
            Condition::Control => "control".to_owned(),
            Condition::Ours(interval_ms) => format!("ours_{interval_ms}ms"),
            Condition::NodeExporter => format!("node_exporter_{SCRAPE_MS}ms"),
            Condition::Netdata => "netdata_1s".to_owned(),
        }
    }
}

/// What the asking side did during a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) cycles: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) failed: u64,
}

pub(crate) struct Monitors<'a> {
    kernel: KernelResponder<'a>,
    node_exporter: Peer,
    netdata: Peer,
    targets: Vec<Readable>,
}

/// A condition that holds until it is ended.
pub(crate) struct Active {
    condition: Condition,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Asked>>>,
}

impl<'a> Monitors<'a> {
    /// Onlooker reads `blocks` blocks of memory, as programs publish them, and all that the kernel computes.
    pub(crate) fn start(world: &'a World, blocks: u32) -> Result<Self> {
        ensure!(blocks <= BLOCKS, "BLOCKS: at most {BLOCKS}");
        let kernel = KernelResponder::load(world, Hook::Tc)?;
        let mut targets = vec![Readable { rkey: RKEY, blocks }];
        println!("Onlooker reads {blocks} blocks of memory");
        for (name, target) in kernel.install_collectors()? {
            println!("  and {} of {name}, computed at the READ", target.blocks);
            targets.push(target);
        }
        let mut node_exporter = peers::node_exporter(world)?;
        let mut netdata = peers::netdata(world)?;
        // It finds out about the machine first.
        sleep_ns(5_000 * MS);
        netdata.running.pause();
        node_exporter.running.pause();
        Ok(Self { kernel, node_exporter, netdata, targets })
    }

    pub(crate) fn begin(&mut self, condition: Condition) -> Result<Active> {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, targets) = (stop.clone(), self.targets.clone());
        let thread = match condition {
            Condition::Control => None,
            Condition::Ours(interval_ms) => {
                self.kernel.attach()?;
                Some(std::thread::spawn(move || read_blocks(&targets, interval_ms * MS, &flag)))
            }
            Condition::NodeExporter => {
                self.node_exporter.running.resume();
                let address = self.node_exporter.address;
                Some(std::thread::spawn(move || scrape(address, SCRAPE_MS * MS, &flag)))
            }
            Condition::Netdata => {
                self.netdata.running.resume();
                // One of its rounds, with which it catches up.
                sleep_ns(1_000 * MS);
                None
            }
        };
        sleep_ns(300 * MS);
        Ok(Active { condition, stop, thread })
    }

    pub(crate) fn end(&mut self, active: Active) -> Result<Asked> {
        active.stop.store(true, Ordering::Relaxed);
        let asked = match active.thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            None => Asked::default(),
        };
        match active.condition {
            Condition::Control => {}
            Condition::Ours(_) => self.kernel.detach()?,
            Condition::NodeExporter => self.node_exporter.running.pause(),
            Condition::Netdata => self.netdata.running.pause(),
        }
        Ok(asked)
    }

    pub(crate) fn answered_by_core(&self) -> Result<Vec<u64>> {
        self.kernel.answered_by_core()
    }
}

/// Calls `cycle` at due times until told to stop.
fn paced(interval_ns: u64, stop: &AtomicBool, mut cycle: impl FnMut() -> Result<u64>) -> Result<Asked> {
    pin(ASKING_CORE)?;
    let (begin_ns, begin_cpu_ns) = (now_ns(), thread_cpu_ns());
    let mut asked = Asked::default();
    while !stop.load(Ordering::Relaxed) {
        asked.failed += cycle()?;
        asked.cycles += 1;
        sleep_ns((begin_ns + asked.cycles * interval_ns).saturating_sub(now_ns()));
    }
    Ok(Asked { cpu_ns: thread_cpu_ns() - begin_cpu_ns, wall_ns: now_ns() - begin_ns, ..asked })
}

/// READs all blocks, each in a READ of its own, every so often.
fn read_blocks(targets: &[Readable], interval_ns: u64, stop: &AtomicBool) -> Result<Asked> {
    let places = targets.iter().flat_map(|target| (0..target.blocks).map(|block| (target.rkey, block)));
    let places: Vec<(u32, u32)> = places.collect();
    let flow = FlowConfig { max_read_bytes: 1024, credit_bytes: u32::try_from(places.len())? << 10 };
    let mut requester = SoftRequester::connect(format!("{WATCHED}:{PORT}").parse()?, Config::default(), flow)?;
    let mut memory = vec![Block::default(); places.len()];
    let mut completions = Vec::new();
    paced(interval_ns, stop, || {
        let deadline_ns = steady_ns() + 1_000 * MS;
        let read = |(at, &(rkey, block)): (u32, &(u32, u32))| {
            let va = VA + u64::from(block) * 1024;
            Read { id: at.into(), va, rkey, at, blocks: 1, deadline_ns }
        };
        let reads: Vec<Read> = (0..).zip(&places).map(read).collect();
        let mut submitted = requester.submit(&reads)?;
        let (mut ended, mut failed) = (0, 0);
        while ended < reads.len() {
            requester.poll(&mut memory, steady_ns(), &mut completions)?;
            ended += completions.len();
            failed += completions.iter().filter(|completion| completion.outcome != Outcome::Done).count() as u64;
            completions.clear();
            submitted += requester.submit(&reads[submitted..])?;
            if ended < reads.len() {
                requester.wait(Duration::from_millis(1))?;
            }
        }
        Ok(failed)
    })
}

/// GETs /metrics every so often on one connection, and throws them away.
fn scrape(address: SocketAddr, interval_ns: u64, stop: &AtomicBool) -> Result<Asked> {
    let mut stream = TcpStream::connect(address).context("connecting to node_exporter")?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut buffer = vec![0; 1 << 18];
    paced(interval_ns, stop, || {
        stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        loop {
            let got = match stream.read(&mut buffer[filled..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                other => other.context("node_exporter's answer")?,
            };
            ensure!(got > 0, "node_exporter closed the connection, or its answer is larger than expected");
            filled += got;
            // The last chunk is empty.
            if buffer[..filled].ends_with(b"\r\n0\r\n\r\n") {
                return Ok(u64::from(!buffer.starts_with(b"HTTP/1.1 200 ")));
            }
        }
    })
}
