// SPDX-License-Identifier: Apache-2.0
//! How long each part of a sample took and whether it succeeded, as node_exporter tells of its collectors, by
//! node_exporter's names of them. Group `scrape` shows it.

use std::io;
use std::time::Instant;

use super::Context;

/// The last sample of each collector.
#[derive(Debug, Default)]
pub(crate) struct Scrapes(pub(crate) Vec<(&'static str, u64, bool)>);

impl Scrapes {
    fn note(&mut self, collector: &'static str, ns: u64, succeeded: bool) {
        match self.0.iter_mut().find(|(name, ..)| *name == collector) {
            Some(scrape) => *scrape = (collector, ns, succeeded),
            None => self.0.push((collector, ns, succeeded)),
        }
    }
}

/// Does what collectors `names` do, and notes how it went. A file that is read for two of them counts for both.
pub(crate) fn timed<T>(
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
