// SPDX-License-Identifier: Apache-2.0
//! Readings to take: of real agents, and of a region of many counters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use onlooker_bootstrap::{Secret, Token};
use onlooker_controller::Reading;
use onlooker_reader::clock::{Moment, Relation, steady_ns};
use onlooker_reader::drive::read_host;
use onlooker_reader::{Frames, Limits, SchemaCache, Session, Via};
use onlooker_targets::{Choice, Priority, Target};

use crate::agents::{Agent, beside};

#[path = "../../../reader/tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code, reason = "tests need more of it")]
mod memory;

#[path = "../../../reader/tests/common/direct.rs"]
#[allow(unreachable_pub)]
mod direct;

const INTERVAL_NS: u64 = 10_000_000;
/// For one reading.
const READING_NS: u64 = 1_000_000_000;
/// Readings of an agent that may fail.
const MAX_FAILED: usize = 20;
/// Counters of a wide region; each fourth counts.
const WIDE: usize = 1_000;

pub(crate) fn target(name: &str) -> Target {
    Target {
        name: name.into(),
        host: "127.0.0.1".into(),
        port: 1,
        token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
        labels: BTreeMap::new(),
        interval: Duration::from_nanos(INTERVAL_NS),
        priority: Priority::Normal,
        choice: Choice::Auto,
    }
}

/// Reads agents at the same time.
pub(crate) fn of_agents(agents: &[Agent], count: usize) -> Result<Vec<Vec<Reading>>> {
    let schemas = Arc::new(SchemaCache::default());
    beside(agents, |_, agent| of_agent(agent, count, &schemas))
}

fn of_agent(agent: &Agent, count: usize, schemas: &Arc<SchemaCache>) -> Result<Vec<Reading>> {
    let connect = || -> Result<_> {
        let (way, mut session) = agent.connect()?;
        session.share(schemas);
        Ok((way, session))
    };
    let (mut way, mut session) = connect()?;
    let (mut readings, mut failed, mut due_ns) = (Vec::new(), 0, steady_ns());
    while readings.len() < count {
        due_ns += INTERVAL_NS;
        std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(steady_ns())));
        let began_ns = steady_ns();
        match read_host(&mut *way.requester, &mut session, began_ns + READING_NS, steady_ns) {
            Ok(()) => readings.push(reading(&mut session, (began_ns, steady_ns()), way.told.relation)),
            Err(error) if failed == MAX_FAILED => return Err(error.into()),
            Err(_) => {
                failed += 1;
                (way, session) = connect()?;
            }
        }
    }
    Ok(readings)
}

/// What a session has just read.
fn reading(session: &mut Session, (began_ns, ended_ns): (u64, u64), relation: Relation) -> Reading {
    let boot = session.directory().last_header().map(|header| header.boot_id);
    let mut frames = Frames::default();
    session.take(&mut frames);
    Reading { due_ns: began_ns, began_ns, ended_ns, repeated: 0, frames, boot, counters: None, relation }
}

/// A host with nothing but counters.
pub(crate) fn wide(count: usize) -> Result<Vec<Reading>> {
    let schema = format!(
        r#"{{"name":"wide","groups":[{{"kind":"plain","blocks":{},"fields":[{{"name":"wide_total",
            "metric":"counter","type":"u64","array":{{"label":"at","count":{WIDE},"stride":1}}}}]}}]}}"#,
        WIDE.div_ceil(onlooker_region::limits::PLAIN_SLOTS),
    );
    let mut host = memory::Host::new(64);
    let region = host.region(300, "wide", &[], &schema);
    let mut session = Session::new(&host.answer(1), Via::Tcp, 64, Limits::default());
    let (begin_ns, mut readings) = (steady_ns(), Vec::new());
    let at = |steady_ns| Moment { steady_ns, utc_ns: steady_ns };
    let relation = Relation::new(begin_ns, at(begin_ns), at(begin_ns));
    for number in 0..count {
        for slot in (number % 4..WIDE).step_by(4) {
            let (block, word) = onlooker_region::block::plain_place(slot);
            region.words.set(block, word, (number + slot) as u64 * 1_000);
        }
        let now_ns = begin_ns + number as u64 * INTERVAL_NS;
        read_host(&mut direct::Direct::new(&host), &mut session, u64::MAX, || now_ns)?;
        readings.push(reading(&mut session, (now_ns, now_ns), relation));
    }
    Ok(readings)
}
