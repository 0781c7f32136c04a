// SPDX-License-Identifier: Apache-2.0
//! A store as tests look into it: two hosts with rows of two parts, one of them with a table, gaps, chunks and a log.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::client::Appender;
use crate::fixture::description;
use crate::store::{Columns, Config, Store, Writer, open};
use crate::types::{Gap, Line, SECOND_NS, TrackId};

/// A quarter past ten, so that an hour is over after 270 rows.
pub(crate) const FROM_NS: u64 = (1_764_000_000 / 3_600 * 3_600 + 900) * SECOND_NS;
pub(crate) const STEP_NS: u64 = 10 * SECOND_NS;
const DISKS: [&str; 3] = ["sda", "sdb", "sdc"];

/// A store and its owner.
pub(crate) struct Filled {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) open: Option<(Store, Writer, Appender)>,
    /// Rows of each track that were appended.
    pub(crate) rows: u64,
}

/// Samples of each series, by its name and labels.
pub(crate) type All = BTreeMap<String, Vec<(u64, Vec<u64>)>>;

impl Filled {
    /// With so many rows of each track, a reading each [`STEP_NS`].
    pub(crate) fn new(rows: u64) -> Self {
        let mut filled = Self { dir: tempfile::tempdir().unwrap(), open: None, rows: 0 };
        filled.again();
        filled.fill(rows);
        filled
    }

    pub(crate) fn store_dir(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Nobody owns it any more.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    pub(crate) fn again(&mut self) {
        self.open = None;
        let (dir, ring) = (self.store_dir(), self.dir.path().join("ring"));
        let (store, writer, appender, _) = open(Config::keeping_all(dir, ring, 4 << 20, 64 << 20)).unwrap();
        self.open = Some((store, writer, appender));
    }

    pub(crate) fn turn(&mut self) {
        self.open.as_mut().unwrap().1.turn().unwrap();
    }

    pub(crate) fn appender(&mut self) -> &mut Appender {
        &mut self.open.as_mut().unwrap().2
    }

    pub(crate) fn track(&mut self, host: &str, is_table: bool) -> TrackId {
        self.appender().track(&description(host, &format!("{host}:1"), is_table), FROM_NS).unwrap()
    }

    pub(crate) fn fill(&mut self, rows: u64) {
        let tracks = ["a", "b"].map(|host| self.track(host, false));
        let table = self.track("a", true);
        let lines = DISKS.map(|disk| {
            let texts = [(1, format!("model of {disk}"))];
            self.appender().line(table, &[("disk".into(), disk.into())], &texts, FROM_NS).unwrap()
        });
        for at in self.rows..self.rows + rows {
            let time_ns = FROM_NS + at * STEP_NS;
            for track in tracks {
                // The second part has something new with every third row.
                let seldom_ns = FROM_NS + at / 3 * 3 * STEP_NS - 5;
                let words = [time_ns - 7, at * 3, (at as f64 / 4.0).to_bits(), seldom_ns, at / 3, 0];
                self.appender().append(track, Line::ONLY, time_ns, &words).unwrap();
            }
            let line = lines[(at % 7 % 3) as usize];
            self.appender().append(table, line, time_ns, &[at, (at as f64).to_bits()]).unwrap();
            if at % 100 == 99 {
                self.turn();
            }
        }
        self.rows += rows;
        // A slow machine rolls up less in a turn.
        self.open.as_mut().unwrap().1.settle();
    }

    pub(crate) fn gap(&mut self, host: &str, of: Option<u32>, from_ns: u64, to_ns: u64) {
        let track = self.track(host, false);
        self.appender().gap(&Gap { track, of, from_ns, to_ns, reason: "late".into() });
    }

    /// All samples of these hosts, as the store reads them.
    pub(crate) fn all(&self, hosts: &[&str]) -> All {
        let store = &self.open.as_ref().unwrap().0;
        let mut all = All::new();
        for named in hosts.iter().flat_map(|host| store.series_of(host)) {
            for one in &named.series {
                let words = (one.at..).take(one.form.words()).collect();
                let samples = all.entry(one.text()).or_default();
                let wanted = Columns { words, ..named.columns.clone() };
                let read = store.read(&wanted, 0, u64::MAX, |time_ns, words| {
                    samples.push((time_ns, words.to_vec()));
                    ControlFlow::Continue(())
                });
                assert_eq!(read.unwrap(), []);
            }
        }
        all
    }
}

/// All files below a directory, with what is in them.
pub(crate) fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    all
}
