// SPDX-License-Identifier: Apache-2.0
//! The values that are read of the watched core, where they stand, and reading them by each scheme.

use super::Scheme;
use super::part::Part;
use super::server::{self, COMPUTE, Orders, STORED};
use crate::machine::WATCHED_CORE;
use crate::responder::{KernelResponder, PORT, VA};
use crate::world::{WATCHED, World};
use anyhow::{Context, Result, bail, ensure};
use onlooker_metrics::collect::{InstalledGroup, Options, Publication, Published};
use onlooker_metrics::groups::Group;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::{Outcome, Read, Requester as _};
use onlooker_region::block::guarded_place;
use onlooker_region::guard::check;
use onlooker_region::{Block, Identity};
use onlooker_responder::{Hook, Kind, Region, Slab, SlabMapping};
use onlooker_transport::soft::{Config, FlowConfig, SoftRequester};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const SLAB: u32 = 1;
const SLAB_BLOCKS: u32 = 256;
/// Sampled blocks stand at the slab's beginning, those of published groups from here on, so far apart.
const PUBLISHED_FIRST: u32 = 8;
const PUBLISHED_ROOM: u32 = 64;
const SAMPLED_RKEY: u32 = 0x0b5e_6000;
const PUBLISHED_RKEY: u32 = 0x0b5e_7000;
const PATIENCE_NS: u64 = 5_000_000_000;
/// Attempts at a block that is being written.
const TRIES: u32 = 16;

/// A value: part, word of the block.
type Place = (usize, usize);

/// What a scheme has told of the watched core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reading {
    /// Of the host's clock.
    pub(super) time_ns: u64,
    /// Tasks that run or wait to run.
    pub(super) running: u32,
    pub(super) idle_ns: u64,
    /// Softirqs that wait at this instant; `None` where this build computes none.
    pub(super) pending: Option<u32>,
}

/// Collectors, their blocks in memory, and the threads.
pub(super) struct Watched<'a> {
    responder: &'a KernelResponder<'a>,
    groups: &'a [(InstalledGroup, u32)],
    parts: &'a [Part],
    places: &'a Places,
    slab: Slab,
    orders: &'a Orders,
    sampler: std::thread::Thread,
    requester: SoftRequester,
    stream: TcpStream,
    twins: Vec<Published>,
    /// Tasks of the threads.
    pub(super) own: [u32; 2],
}

/// Where the values stand.
#[derive(Debug, Default)]
struct Places {
    running: Place,
    idle: Vec<Place>,
    pending: Vec<Place>,
}

/// Calls `measure` with all of it set up on the watched core.
pub(super) fn with_watched<T>(world: &World, measure: impl FnOnce(&mut Watched<'_>) -> Result<T>) -> Result<T> {
    let mut responder = KernelResponder::load(world, Hook::Tc)?;
    responder.attach()?;
    let groups = responder.install_groups(&Options::default())?;
    let (parts, places) = find(&groups)?;
    let slab = responder.pinned().create_slab(SLAB, SLAB_BLOCKS)?;
    let memory = slab.map(0, SLAB_BLOCKS, true)?;
    let listener = world.on_watched(|| Ok(TcpListener::bind((WATCHED, 0))?))?;
    let orders = Orders::default();
    for (index, part) in (0u32..).zip(&parts) {
        let blocks = groups[part.group].0.blocks;
        ensure!(blocks <= PUBLISHED_ROOM, "a twin of {blocks} blocks has no room here");
        let kind = Kind::Memory { slab: SLAB, first_block: index };
        responder.pinned().add_region(SAMPLED_RKEY + index, &Region { va: VA, blocks: 1, kind })?;
        let kind = Kind::Memory { slab: SLAB, first_block: published_first(index) + part.block };
        responder.pinned().add_region(PUBLISHED_RKEY + index, &Region { va: VA, blocks: 1, kind })?;
    }
    std::thread::scope(|scope| {
        let threads = Threads::start(scope, &groups, &parts, &memory, (&listener, &orders));
        let result = threads.ready().and_then(|own| {
            let flow = FlowConfig { max_read_bytes: 1024, credit_bytes: 64 << 10 };
            let requester = SoftRequester::connect(format!("{WATCHED}:{PORT}").parse()?, Config::default(), flow)?;
            let stream = connect(listener.local_addr()?)?;
            let mut watched = Watched {
                responder: &responder,
                groups: &groups,
                parts: &parts,
                places: &places,
                slab,
                orders: &orders,
                sampler: threads.sampler.thread().clone(),
                requester,
                stream,
                twins: Vec::new(),
                own,
            };
            measure(&mut watched)
        });
        orders.is_over.store(true, Ordering::Release);
        threads.sampler.thread().unpark();
        // The server waits for a connection.
        drop(TcpStream::connect(listener.local_addr()?));
        let ended = threads.end();
        // What went wrong in a thread is why the measurement failed, if it did.
        ended.and(result)
    })
}

struct Threads<'scope> {
    sampler: ScopedJoinHandle<'scope, Result<()>>,
    server: ScopedJoinHandle<'scope, Result<()>>,
    ready: Receiver<u32>,
}

impl<'scope> Threads<'scope> {
    fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        groups: &'env [(InstalledGroup, u32)],
        parts: &'env [Part],
        memory: &'env SlabMapping,
        (listener, orders): (&'env TcpListener, &'env Orders),
    ) -> Self {
        let (send, ready) = channel();
        let other = send.clone();
        let sampler = scope.spawn(move || server::sample(groups, parts, memory, orders, &other));
        let server = scope.spawn(move || server::serve(groups, parts, memory, (listener, orders), &send));
        Self { sampler, server, ready }
    }

    fn ready(&self) -> Result<[u32; 2]> {
        let one = || self.ready.recv_timeout(Duration::from_secs(20)).context("a thread did not begin");
        Ok([one()?, one()?])
    }

    fn end(self) -> Result<()> {
        for thread in [self.sampler, self.server] {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    }
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_nanos(PATIENCE_NS)))?;
    Ok(stream)
}

impl Watched<'_> {
    /// From now on by this scheme, which is to acquire every so often where that is not done by the request.
    pub(super) fn begin(&mut self, scheme: Scheme, interval_ns: u64) -> Result<()> {
        self.end();
        if scheme == Scheme::Published {
            for (index, part) in (0u32..).zip(self.parts) {
                let interval = Duration::from_nanos(interval_ns);
                let (first_block, identity) = (published_first(index), published_identity(index).word());
                let publication = Publication { interval, slab: &self.slab, first_block, identity, home: None };
                self.twins.push(self.groups[part.group].0.publish(self.responder.pinned(), &publication)?);
            }
        }
        if scheme.is_sampled() {
            self.orders.sample_ns.store(interval_ns, Ordering::Release);
            self.sampler.unpark();
        }
        // Whoever acquires has done so at least twice.
        std::thread::sleep(Duration::from_nanos(2 * interval_ns) + Duration::from_millis(50));
        Ok(())
    }

    /// Nothing is acquired any more.
    pub(super) fn end(&mut self) {
        self.twins.clear();
        self.orders.sample_ns.store(0, Ordering::Release);
    }

    /// One reading.
    pub(super) fn read(&mut self, scheme: Scheme) -> Result<Reading> {
        let mut blocks = vec![Block::default(); self.parts.len()];
        match scheme {
            Scheme::Computed | Scheme::Published | Scheme::Sampled => self.read_one_sided(scheme, &mut blocks)?,
            Scheme::TcpComputed => self.ask(COMPUTE, &mut blocks)?,
            Scheme::TcpSampled => {
                // The sampler may have been interrupted in the middle of a block.
                let is_whole = |(index, block): (usize, &Block)| check(block, server::identity(index)).is_ok();
                for _ in 0..TRIES {
                    self.ask(STORED, &mut blocks)?;
                    if blocks.iter().enumerate().all(is_whole) {
                        break;
                    }
                }
                ensure!(blocks.iter().enumerate().all(is_whole), "sampled blocks are never whole");
            }
        }
        let value = |&(part, word): &Place| blocks[part].0[word];
        let idle_ns = self.places.idle.iter().map(value).sum();
        let pending: u64 = self.places.pending.iter().map(value).sum();
        Ok(Reading {
            time_ns: blocks[self.places.running.0].0[1],
            running: u32::try_from(value(&self.places.running)).unwrap_or(u32::MAX),
            idle_ns,
            pending: (!self.places.pending.is_empty()).then(|| u32::try_from(pending).unwrap_or(u32::MAX)),
        })
    }

    fn ask(&mut self, what: u8, blocks: &mut [Block]) -> Result<()> {
        self.stream.write_all(&[what])?;
        for block in blocks {
            self.stream.read_exact(block.bytes_mut()).context("waiting for an answer over TCP")?;
        }
        Ok(())
    }

    fn read_one_sided(&mut self, scheme: Scheme, blocks: &mut [Block]) -> Result<()> {
        let mut wanted: Vec<usize> = (0..blocks.len()).collect();
        for _ in 0..TRIES {
            self.read_blocks(scheme, &wanted, blocks)?;
            wanted.retain(|&index| check(&blocks[index], self.identity(scheme, index)).is_err());
            if wanted.is_empty() {
                return Ok(());
            }
        }
        let reject = check(&blocks[wanted[0]], self.identity(scheme, wanted[0])).err();
        bail!("{}: block {} is not accepted: {reject:?}", scheme.title(), wanted[0])
    }

    fn identity(&self, scheme: Scheme, index: usize) -> Identity {
        match scheme {
            Scheme::Published => {
                let block = u16::try_from(self.parts[index].block).unwrap_or(0);
                published_identity(u32::try_from(index).unwrap_or(0)).at(block)
            }
            Scheme::Sampled | Scheme::TcpSampled => server::identity(index),
            Scheme::Computed | Scheme::TcpComputed => {
                let part = &self.parts[index];
                let number = u32::try_from(part.group + 1).unwrap_or(0);
                Identity::first(number, 1).at(u16::try_from(part.block).unwrap_or(0))
            }
        }
    }

    fn read_blocks(&mut self, scheme: Scheme, wanted: &[usize], blocks: &mut [Block]) -> Result<()> {
        let deadline_ns = steady_ns() + PATIENCE_NS;
        let mut reads = Vec::with_capacity(wanted.len());
        for &index in wanted {
            let (part, at) = (&self.parts[index], u32::try_from(index)?);
            let (rkey, block) = match scheme {
                Scheme::Published => (PUBLISHED_RKEY + at, 0),
                Scheme::Sampled => (SAMPLED_RKEY + at, 0),
                _ => (self.groups[part.group].1, part.block),
            };
            reads.push(Read { id: at.into(), va: VA + u64::from(block) * 1024, rkey, at, blocks: 1, deadline_ns });
        }
        ensure!(self.requester.submit(&reads)? == reads.len(), "the requester has no credit left");
        let (mut ended, mut completions) = (0, Vec::new());
        while ended < reads.len() {
            self.requester.poll(blocks, steady_ns(), &mut completions)?;
            ended += completions.len();
            for completion in completions.drain(..) {
                ensure!(
                    completion.outcome == Outcome::Done,
                    "{}: a READ ended {:?}",
                    scheme.title(),
                    completion.outcome
                );
            }
            if ended < reads.len() {
                self.requester.wait(Duration::from_millis(1))?;
            }
        }
        Ok(())
    }
}

fn published_first(index: u32) -> u32 {
    PUBLISHED_FIRST + index * PUBLISHED_ROOM
}

fn published_identity(index: u32) -> Identity {
    Identity::first(200 + index, 1)
}

/// Which blocks have the values of the watched core, and where.
fn find(groups: &[(InstalledGroup, u32)]) -> Result<(Vec<Part>, Places)> {
    let mut parts: Vec<Part> = Vec::new();
    let core = WATCHED_CORE.to_string();
    let mut places_of = |metric: &str, modes: &[&str]| -> Vec<Place> {
        let mut found = Vec::new();
        for (index, (group, _)) in groups.iter().enumerate().filter(|(_, (group, _))| group.group != Group::NETWORK) {
            for field in group.schema.groups.iter().take(1).flat_map(|group| &group.fields) {
                let is_mode = modes.is_empty() || field.labels.get("mode").is_some_and(|mode| modes.contains(&&**mode));
                let array = field.array.as_ref().filter(|array| array.label == "cpu");
                let Some(array) = array.filter(|_| field.name == metric && is_mode) else { continue };
                let element = match &array.values {
                    Some(values) => values.iter().position(|value| *value == core),
                    None => Some(WATCHED_CORE).filter(|core| *core < array.count as usize),
                };
                let Some(element) = element else { continue };
                let (block, word) = guarded_place(field.slot as usize + element * array.stride as usize);
                let block = u32::try_from(block).unwrap_or(u32::MAX);
                let known = parts.iter().position(|part| part.group == index && part.block == block);
                let part = known.unwrap_or_else(|| {
                    parts.push(Part { group: index, block, running: None });
                    parts.len() - 1
                });
                found.push((part, word));
            }
        }
        found
    };
    let running = places_of("onlooker_run_queue_length", &[]);
    let idle = places_of("node_cpu_seconds_total", &["idle", "iowait"]);
    let pending = places_of("onlooker_softirq_pending", &[]);
    let running = *running.first().context("no run queue's length is computed here")?;
    ensure!(idle.len() == 2, "no idle time is computed here");
    parts[running.0].running = Some(running.1 - 3);
    Ok((parts, Places { running, idle, pending }))
}
