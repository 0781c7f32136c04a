// SPDX-License-Identifier: Apache-2.0
//! Records what agents give to a reader that asks every so many milliseconds, as rows of the frame store
//! ([`super::recording`] has the format).
//!
//! `record FILE INTERVAL_MS SECONDS HOST:PORT=TOKEN_FILE...`: each host over its kernel responder, else over TCP, on a
//! thread of its own. Sums are made, and regions left alone between their samples, as in the controller.
//! `bench/bench-store` starts the agents.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::read_host;

use super::recording::Track;
use super::taken::{Taken, assemble};
use crate::agents::{Agent, beside};

/// For one reading.
const READING_NS: u64 = 1_000_000_000;
/// Readings in a row that may fail; each costs a bootstrap.
const MAX_FAILED: u32 = 20;

/// Reads it at each due time; a due time that is over when the reading before ends is left out.
fn record(agent: &Agent, begin_ns: u64, interval_ns: u64, readings: u32) -> Result<Taken> {
    let (mut way, mut session) = agent.connect()?;
    let (mut taken, mut failed) = (Taken::default(), 0);
    for reading in 0..readings {
        let due_ns = begin_ns + u64::from(reading) * interval_ns;
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(steady_ns())));
        if steady_ns() >= due_ns + interval_ns {
            continue;
        }
        match read_host(&mut *way.requester, &mut session, steady_ns() + READING_NS, steady_ns) {
            Ok(()) => {
                failed = 0;
                taken.take(reading, &session, &mut way.told.relation);
            }
            Err(error) if failed == MAX_FAILED => return Err(error.into()),
            Err(_) => {
                failed += 1;
                (way, session) = agent.connect()?;
            }
        }
    }
    Ok(taken)
}

pub(crate) fn run(file: &str, interval_ms: &str, seconds: &str, agents: &[&str]) -> Result<()> {
    let interval_ns = interval_ms.parse::<u64>()? * 1_000_000;
    let readings = u32::try_from(seconds.parse::<u64>()? * 1_000_000_000 / interval_ns.max(1))?;
    let agents = agents.iter().map(|agent| Agent::parse(agent)).collect::<Result<Vec<_>>>()?;
    let begin_ns = steady_ns() + interval_ns;
    let count = agents.len().max(1) as u64;
    // Spread over the interval, as a controller spreads its hosts.
    let taken = beside(&agents, |number, agent| {
        record(agent, begin_ns + interval_ns * number as u64 / count, interval_ns, readings)
    })?;
    let recording = assemble(interval_ns, readings, taken);
    recording.write(Path::new(file))?;
    let series = |track: &Track| track.layout.parts().iter().map(|part| part.part.series.len()).sum::<usize>();
    let widest = recording.tracks.iter().max_by_key(|track| track.layout.kinds().len()).context("nothing was read")?;
    println!(
        "{file}: {} hosts, {} readings of {readings}, {} tracks, {} rows, {} new values; a host row has {} series of {} parts, {} words",
        recording.hosts(),
        recording.readings(),
        recording.tracks.len(),
        recording.rows.len(),
        recording.values(),
        series(widest),
        widest.layout.parts().len(),
        widest.layout.kinds().len(),
    );
    Ok(())
}
