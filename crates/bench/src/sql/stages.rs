// SPDX-License-Identifier: Apache-2.0
//! The hosts' rows on their way through a store: in the log, in chunks, in cold files; and what PromQL answers each time.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use onlooker_framestore::client::Appender;
use onlooker_framestore::inspect::{Survey, survey};
use onlooker_framestore::warm::Level;
use onlooker_framestore::{Config, Cooled, Store, Writer, open};

use super::data::{Hosts, TOTAL};
use super::promql;

const NEVER: u64 = u64::MAX;
/// Longer than heads of tracks that have ended wait.
const PATIENCE: Duration = Duration::from_secs(60);

struct World<'a> {
    dir: &'a Path,
    store: Store,
    writer: Writer,
    appender: Appender,
}

impl<'a> World<'a> {
    fn open(dir: &'a Path, cold_after_ns: u64) -> Result<Self> {
        let config = Config::keeping_all(dir, dir.join("ring"), 64 << 20, 1 << 30);
        let (store, writer, appender, _) = open(Config { cold_after_ns, ..config })?;
        Ok(Self { dir, store, writer, appender })
    }

    /// Lets the store work until its files are as they are to be.
    fn until(&mut self, what: &str, is_so: impl Fn(&Survey) -> bool) -> Result<()> {
        let begin = Instant::now();
        let mut cooler = self.store.cooler();
        loop {
            self.writer.turn()?;
            while cooler.turn(|| true)? != Cooled::Nothing {}
            let found = survey(self.dir)?;
            if is_so(&found) {
                return Ok(());
            }
            ensure!(begin.elapsed() < PATIENCE, "not {what}, but {found:?}");
            sleep(Duration::from_millis(20));
        }
    }
}

fn raw_rows(found: &Survey) -> u64 {
    found.levels.iter().filter(|(level, _)| *level == Level::Raw).map(|(_, amount)| amount.rows).sum()
}

/// Leaves two cold files in `dir`, each of half of the time.
pub(crate) fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let log = tempfile::tempdir_in(dir)?;
    let mut world = World::open(log.path(), NEVER)?;
    let (_, all) = Hosts::new(0..TOTAL).append(&mut world.appender)?;
    world.until("in the log", |found| (found.log_only_rows, raw_rows(found)) == (all, 0))?;
    promql::print(&world.store, "log")?;
    for seconds in [0..TOTAL / 2, TOTAL / 2..TOTAL] {
        let mut world = World::open(dir, NEVER)?;
        let (tracks, _) = Hosts::new(seconds.clone()).append(&mut world.appender)?;
        tracks.into_iter().for_each(|track| world.appender.end(track));
        world.until("in chunks", |found| found.log_only_rows == 0 && raw_rows(found) > 0)?;
        if seconds.end == TOTAL {
            ensure!(raw_rows(&survey(dir)?) == all, "chunks have other rows than the log");
            promql::print(&world.store, "chunks")?;
        }
    }
    let mut world = World::open(dir, 1)?;
    // Each with a file of gaps.
    world.until("in cold files", |found| found.cold.files == 4 && raw_rows(found) == 0)?;
    promql::print(&world.store, "cold")
}
