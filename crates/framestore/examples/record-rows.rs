// SPDX-License-Identifier: Apache-2.0
//! Records what agents give to a reader that asks every so many milliseconds, as rows of the frame store (`recording/mod.rs` has the format).
//!
//! `record-rows FILE INTERVAL_MS SECONDS HOST:PORT=TOKEN_FILE...`: each host over its kernel responder, else over TCP, on a thread of its own. Sums are made,
//! and regions left alone between their samples, as in the controller. `bench/bench-store` starts the agents.
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

#[allow(dead_code, reason = "reading is for others")]
mod recording;
#[path = "recording/taken.rs"]
mod taken;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use onlooker_bootstrap::Token;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::read_host;
use onlooker_reader::{Limits, Pair, Session};
use onlooker_transport::open::{Asker, Way, open};
use recording::Result;
use taken::{Taken, assemble};

/// Name and version told to agents.
const READER: &str = "record-rows";
/// For the agents' answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// For one reading.
const READING_NS: u64 = 1_000_000_000;
/// Readings in a row that may fail; each costs a bootstrap.
const MAX_FAILED: u32 = 20;

struct Target {
    address: SocketAddr,
    token: Token,
}

impl Target {
    /// Of `HOST:PORT=TOKEN_FILE`.
    fn parse(text: &str) -> Result<Self> {
        let (address, token) = text.split_once('=').ok_or("a target is ADDRESS:PORT=TOKEN_FILE")?;
        Ok(Self { address: address.parse()?, token: Token::parse(std::fs::read_to_string(token)?.trim())? })
    }

    fn connect(&self) -> Result<(Way, Session)> {
        let asker = Asker { token: &self.token, reader: READER, timeout: PATIENCE };
        let mut way = open(&asker.ask(&[self.address])?, &[Pair::SOFT_KERNEL, Pair::TCP], &asker)?;
        let mut session = way.session(Limits::default());
        session.rest();
        Ok((way, session))
    }

    /// Reads it at each due time; a due time that is over when the reading before ends is left out.
    fn record(&self, begin_ns: u64, interval_ns: u64, readings: u32) -> Result<Taken> {
        let (mut way, mut session) = self.connect()?;
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
                    (way, session) = self.connect()?;
                }
            }
        }
        Ok(taken)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, interval_ms, seconds, targets @ ..] = &arguments[..] else {
        return Err("usage: record-rows FILE INTERVAL_MS SECONDS HOST:PORT=TOKEN_FILE...".into());
    };
    let interval_ns = interval_ms.parse::<u64>()? * 1_000_000;
    let readings = u32::try_from(seconds.parse::<u64>()? * 1_000_000_000 / interval_ns.max(1))?;
    let targets = targets.iter().map(|text| Target::parse(text)).collect::<Result<Vec<_>>>()?;
    let begin_ns = steady_ns() + interval_ns;
    let count = targets.len().max(1) as u64;
    // Spread over the interval, as a controller spreads its hosts. Errors of another thread as texts.
    let record = |(number, target): (u64, &Target)| {
        let begin_ns = begin_ns + interval_ns * number / count;
        let taken = target.record(begin_ns, interval_ns, readings);
        taken.map_err(|error| format!("{}: {error}", target.address))
    };
    let taken = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..).zip(&targets).map(|one| scope.spawn(move || record(one))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        ended.collect::<std::result::Result<Vec<_>, String>>()
    });
    let recording = assemble(interval_ns, readings, taken?);
    recording.write(Path::new(file))?;
    let series =
        |track: &recording::Track| track.layout.parts().iter().map(|part| part.part.series.len()).sum::<usize>();
    let widest = recording.tracks.iter().max_by_key(|track| track.layout.kinds().len()).ok_or("nothing was read")?;
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
