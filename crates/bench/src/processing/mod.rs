// SPDX-License-Identifier: Apache-2.0
//! What it costs to take readings of hosts into the fleet and the store, until they are durable.
//!
//! `make bench-processing` runs `processing DIRECTORY READINGS HOSTS HOST:PORT=TOKEN_FILE...`: reads each agent so
//! often, every 10 ms, by its kernel responder, else over TCP. Then the same readings are taken again and again, as
//! those of other hosts: of one after the other, and of HOSTS in random order, so many that nothing of a host is in a
//! cache when its next reading comes. Then by two threads with half of the hosts each, taking turns with the same on
//! one thread. Last, readings of a region of 1,000 counters, of which a quarter counts. The store's files go to
//! DIRECTORY.
//!
//! Each figure is a line `figure NAME VALUE UNIT`. A value is one that is new, as the controller's counter of values
//! taken in rows has them. Times are CPU time of this thread, which does what a processor's thread and the store's do.

mod readings;
mod replay;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use onlooker_controller::Reading;
use onlooker_targets::Target;
use replay::{Replay, Told, Work};

use crate::agents::Agent;
use crate::report::figure;

/// Readings of a host that are not measured: its names are new, and memory for its rows.
const FIRST: usize = 20;
/// Measured readings of each host, where there are many.
const MANY: usize = 10;
/// Processing threads that are compared with one.
const THREADS: usize = 2;
/// Readings of one host that the store gets at once: a quarter of a second's.
const TURN: usize = 25;

pub(crate) fn run(directory: &str, count: &str, hosts: &str, agents: &[&str]) -> Result<()> {
    let (count, hosts): (usize, usize) = (count.parse()?, hosts.parse()?);
    ensure!(count >= 2 * (FIRST + MANY) && hosts > 0 && !agents.is_empty(), "too few readings, hosts or agents");
    let agents = agents.iter().map(|agent| Agent::parse(agent)).collect::<Result<Vec<_>>>()?;
    let agents = readings::of_agents(&agents, count)?;
    let directory = Path::new(directory);
    one(&directory.join("one"), "warm", &agents)?;
    many(&directory.join("many"), &agents, hosts)?;
    threads(&directory.join("threads"), &agents, hosts)?;
    one(&directory.join("wide"), "wide", &[readings::wide(count)?])
}

/// One host after the other.
fn one(directory: &Path, name: &str, agents: &[Vec<Reading>]) -> Result<()> {
    let mut replay = Replay::new(directory, 1)?;
    let mut total = Work::default();
    for (number, readings) in agents.iter().enumerate() {
        let target = Arc::new(readings::target(&format!("host-{number}")));
        let (first, rest) = readings.split_at(FIRST);
        replay.take(first.iter().map(|reading| (&target, reading)))?;
        for some in rest.chunks(TURN) {
            total.add(&replay.take(some.iter().map(|reading| (&target, reading)))?);
        }
    }
    total.tell(name);
    Ok(())
}

/// Many hosts, each in another order each time.
fn many(directory: &Path, agents: &[Vec<Reading>], hosts: usize) -> Result<()> {
    let mut replay = Replay::new(directory, 1)?;
    let targets = targets(hosts);
    let mut order: Vec<usize> = (0..hosts).collect();
    let (mut total, mut random) = (Work::default(), 1u64);
    for pass in 0..FIRST + MANY {
        for at in (1..hosts).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, usize::try_from(random >> 33)? % (at + 1));
        }
        let work = replay.take(order.iter().map(|host| (&targets[*host], reading(agents, *host, pass))))?;
        if pass >= FIRST {
            total.add(&work);
        }
    }
    total.tell("cold");
    Ok(())
}

fn targets(hosts: usize) -> Vec<Arc<Target>> {
    (0..hosts).map(|host| Arc::new(readings::target(&format!("host-{host:05}")))).collect()
}

/// Hosts that are the same agent go on at different readings of it, after the first one, which has all regions.
fn reading(agents: &[Vec<Reading>], host: usize, pass: usize) -> &Reading {
    let readings = &agents[host % agents.len()];
    let from = (host / agents.len()) % (readings.len() - FIRST - MANY);
    &readings[if pass == 0 { 0 } else { from + pass }]
}

/// How much faster two threads are than one: the same hosts, of which each thread has its own.
fn threads(directory: &Path, agents: &[Vec<Reading>], hosts: usize) -> Result<()> {
    let mut replay = Replay::new(directory, THREADS)?;
    let targets = targets(hosts);
    let (mut one, mut all) = (Duration::ZERO, Duration::ZERO);
    for pass in 0..FIRST + MANY {
        let of_thread = |thread: usize| {
            let hosts = (thread..hosts).step_by(THREADS);
            hosts.map(|host| (&targets[host], reading(agents, host, pass))).collect()
        };
        let readings: Vec<Vec<Told<'_>>> = (0..THREADS).map(of_thread).collect();
        let at_once = pass % 2 == 1;
        let took = replay.take_by_threads(&readings, at_once)?;
        if pass >= FIRST {
            *if at_once { &mut all } else { &mut one } += took;
        }
    }
    figure("processing_threads", one.as_secs_f64() / all.as_secs_f64(), "x");
    Ok(())
}
