// SPDX-License-Identifier: Apache-2.0
//! One reading of a host before it is accepted: bootstrap, directory, schemas, regions, as the engine would read it.
//!
//! Blocking, on the thread of the caller. It ends within three times the timeout (bootstrap, another one for a queue
//! pair, and reading have one each) and [`onlooker_transport::open::PATIENCE`] for each way that keeps silent; only a
//! resolver of names that hangs takes longer.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onlooker_bootstrap::Id;
use onlooker_reader::bootstrap::resolve;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::read_host;
use onlooker_reader::{Error as HostError, Limits, Pair, Via};
use onlooker_targets::{Choice, Target};
use onlooker_transport::Error;
use onlooker_transport::open::open;

use crate::connect::asker;
use crate::fleet::{Entities, Quota};
use crate::ways::pairs;

/// What a failed trial is called in answers to programs (docs/http.md, Targets).
#[must_use]
pub fn code(error: &Error) -> &'static str {
    match error {
        Error::Silent { .. } => "silent",
        // The last way is the one that nearly every host has.
        Error::Several(errors) => errors.last().map_or("unread", code),
        Error::Host(error) => match error {
            HostError::Resolve { .. } => "resolve",
            HostError::Refused { .. } => "refused",
            HostError::Timeout { .. } => "timeout",
            HostError::Closed { .. } => "closed",
            HostError::Denied { .. } | HostError::Certificate { .. } => "another_agent",
            HostError::System { source, .. }
                if matches!(source.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable) =>
            {
                "no_route"
            }
            _ => "unread",
        },
        _ => "unread",
    }
}

/// What a test read has shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the host says it is.
    pub host_id: Id,
    /// Who asked and who answered.
    pub pair: Pair,
    /// Regions that were read.
    pub regions: usize,
    /// Series in them.
    pub series: usize,
    /// Time of the bootstrap.
    pub bootstrap: Duration,
    /// Time of the reading.
    pub read: Duration,
    /// What the operator may want to know.
    pub notes: Vec<String>,
}

/// Asks and reads a host once; of its series only so many are counted as the quota has room for.
///
/// # Errors
/// It cannot be watched like this.
pub fn read(target: &Arc<Target>, timeout: Duration, quota: Quota) -> Result<Report, Error> {
    let (asker, began) = (asker(target, timeout), Instant::now());
    let told = asker.ask(&resolve(&target.host, target.port)?)?;
    let bootstrap = began.elapsed();
    let mut way = open(&told, pairs(target.choice), &asker)?;
    let mut notes = way.notes();
    if target.choice == Choice::Auto && way.pair == Pair::TCP && way.lacks(Via::Kernel) {
        notes.push(
            "it has no kernel responder: READs over TCP wake its agent ([kernel] devices in its agent.toml names the \
             devices to answer on)"
                .into(),
        );
    }
    let (pair, address, began) = (way.pair, way.address, Instant::now());
    let mut session = way.session(Limits::default());
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    read_host(&mut *way.requester, &mut session, steady_ns().saturating_add(timeout_ns), steady_ns)
        .map_err(|source| Error::Read { pair, address, source: Box::new(source) })?;
    let read = began.elapsed();
    let mut regions = 0;
    for frame in session.frames() {
        match frame.problem() {
            None => regions += 1,
            Some(problem) => notes.push(format!("region {}: {problem}", frame.entry().name)),
        }
    }
    Ok(Report {
        host_id: way.told.answer.host_id,
        pair,
        regions,
        series: Entities::of(&session, quota).series(),
        bootstrap,
        read,
        notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_has_a_code() {
        let peer = || "10.0.0.3:7177".to_owned();
        let system = |errno| HostError::System {
            peer: peer(),
            operation: "connect",
            source: std::io::Error::from_raw_os_error(errno),
        };
        for (error, code) in [
            (HostError::Refused { peer: peer(), what: "bootstrap endpoint" }, "refused"),
            (HostError::Timeout { peer: peer(), what: "answer", timeout: Duration::ZERO }, "timeout"),
            (HostError::Closed { peer: peer(), what: "answer" }, "closed"),
            (HostError::Denied { peer: peer(), message: "refused, closed, unreachable".into() }, "another_agent"),
            (system(101), "no_route"),
            (system(113), "no_route"),
            (system(5), "unread"),
            (HostError::Busy { peer: peer(), message: String::new() }, "unread"),
        ] {
            assert_eq!(super::code(&error.into()), code);
        }
        let silent = || Error::Silent { responder: "10.0.0.3:7179".parse().unwrap(), own: "10.0.0.1".parse().unwrap() };
        let refused = || HostError::Refused { peer: peer(), what: "TCP responder" }.into();
        assert_eq!((code(&silent()), code(&Error::Several(vec![silent(), refused()]))), ("silent", "refused"));
    }
}
