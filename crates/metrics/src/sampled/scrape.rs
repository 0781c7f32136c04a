// SPDX-License-Identifier: Apache-2.0
//! Group `scrape`: how long each part of a sample took and whether it succeeded, as node_exporter tells of its collectors, by node_exporter's names of them.

use std::io;
use std::time::Instant;

use super::listed::{Read, Values, listed};
use super::metric::Definition;
use super::{Ask, Context, Made};

static DURATION: Definition =
    Definition::gauge("node_scrape_collector_duration_seconds", "Duration of a collector scrape.")
        .unit("seconds", 1e-9)
        .labels(&["collector"]);
static SUCCESS: Definition =
    Definition::gauge("node_scrape_collector_success", "Whether a collector succeeded.").labels(&["collector"]);

/// The last sample of each collector.
#[derive(Debug, Default)]
pub(super) struct Scrapes(Vec<(&'static str, u64, bool)>);

impl Scrapes {
    fn note(&mut self, collector: &'static str, ns: u64, succeeded: bool) {
        match self.0.iter_mut().find(|(name, ..)| *name == collector) {
            Some(scrape) => *scrape = (collector, ns, succeeded),
            None => self.0.push((collector, ns, succeeded)),
        }
    }
}

/// Does what collectors `names` do, and notes how it went. A file that is read for two of them counts for both.
pub(super) fn timed<T>(
    context: &mut Context,
    names: &[&'static str],
    act: impl FnOnce(&mut Context) -> io::Result<T>,
) -> io::Result<T> {
    let begin = Instant::now();
    let result = act(context);
    let ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    names.iter().for_each(|name| context.scrapes.note(name, ns, result.is_ok()));
    result
}

struct Scrape;

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Scrape, ask, context)
}

impl Read for Scrape {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        for (collector, ns, succeeded) in &context.scrapes.0 {
            values.put(&DURATION, &[collector], *ns);
            values.put(&SUCCESS, &[collector], u64::from(*succeeded));
        }
        Ok(())
    }
}
