// SPDX-License-Identifier: Apache-2.0
//! A collector that is a process and answers the same questions: a log of reports, with indexes as the one has that the paper compares itself with (Confluo: five
//! indexes), in memory, without a lock, with a fast hash.

use std::hash::Hash;

use hashbrown::HashMap;
use onlooker_wire::dta::{Body, Report};

type Index<K> = HashMap<K, Vec<u32>>;

#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Key and payload of each report.
    log: Vec<([u8; 13], [u8; 20])>,
    newest: HashMap<[u8; 13], u32>,
    by_source: Index<[u8; 4]>,
    by_destination: Index<[u8; 4]>,
    by_port: Index<[u8; 2]>,
    by_switch: Index<[u8; 4]>,
}

/// Reports that are kept; then it begins again.
const MOST: usize = 1 << 21;

fn put<K: Eq + Hash>(index: &mut Index<K>, key: K, at: u32) {
    index.entry(key).or_default().push(at);
}

impl Collector {
    pub(super) fn new() -> Self {
        Self { log: Vec::with_capacity(MOST), ..Self::default() }
    }

    pub(super) fn take(&mut self, datagram: &[u8]) {
        let Ok(Report { body: Body::KeyWrite { key, payload, .. }, .. }) = Report::parse(datagram) else { return };
        let (Ok(key), Ok(path)) = (<[u8; 13]>::try_from(key), <[u8; 20]>::try_from(payload)) else { return };
        if self.log.len() >= MOST {
            let log = std::mem::take(&mut self.log);
            *self = Self { log, ..Self::default() };
            self.log.clear();
        }
        let at = u32::try_from(self.log.len()).unwrap_or(u32::MAX);
        let part = |from: usize| std::array::from_fn(|byte| key[from + byte]);
        self.newest.insert(key, at);
        put(&mut self.by_source, part(0), at);
        put(&mut self.by_destination, part(4), at);
        put(&mut self.by_port, std::array::from_fn(|byte| key[8 + byte]), at);
        put(&mut self.by_switch, std::array::from_fn(|byte| path[byte]), at);
        self.log.push((key, path));
    }

    /// Whether a flow's path is there, and found by each index.
    pub(super) fn knows(&self, key: &[u8; 13]) -> bool {
        let Some((found, path)) = self.newest.get(key).and_then(|at| self.log.get(*at as usize)) else { return false };
        let has = |index: &Index<[u8; 4]>, part: &[u8]| index.get(part).is_some_and(|all| !all.is_empty());
        found == key
            && has(&self.by_source, &key[..4])
            && has(&self.by_destination, &key[4..8])
            && has(&self.by_switch, &path[..4])
    }
}
