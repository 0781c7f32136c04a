// SPDX-License-Identifier: Apache-2.0
//! What a store has, where, of which hosts, and how far back. Indexes, the catalogue and the log are read, chunks are
//! not.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::log::{Heads, values};
use crate::catalogue::{self, Counts, HostId, Known};
use crate::cold;
use crate::damage::{StoreError, io_error};
use crate::gaps;
use crate::types::TrackId;
use crate::wal::{self, Entry, Source};
use crate::warm::{self, Level};

/// So much of something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks; records of the log; row groups of cold files.
    pub pieces: u64,
    /// Rows; of cold files samples.
    pub rows: u64,
    /// Values in these rows: a part that has nothing new in a row counts, its time does not. Of rollups the values that
    /// they stand for in each bucket.
    pub values: u64,
    /// Earliest time, UTC ns.
    pub from_ns: Option<u64>,
    /// Latest time, UTC ns.
    pub to_ns: Option<u64>,
}

impl Amount {
    fn covers(&mut self, from_ns: u64, to_ns: u64) {
        self.from_ns = Some(self.from_ns.map_or(from_ns, |before_ns| before_ns.min(from_ns)));
        self.to_ns = Some(self.to_ns.map_or(to_ns, |before_ns| before_ns.max(to_ns)));
    }

    /// Bytes of a value; nothing where there are no values.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // for people
    pub fn bytes_per_value(&self) -> Option<f64> {
        (self.values > 0).then(|| self.bytes as f64 / self.values as f64)
    }
}

/// What is a host's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostShare {
    /// Its name; nothing for what is of tracks that the catalogue does not have.
    pub name: String,
    /// Tracks, of all that have had this name.
    pub tracks: u64,
    /// `bytes` of its chunks, and its share of those of the log and of cold files, which have rows of many hosts;
    /// `rows` and `values` as they came, each once.
    pub amount: Amount,
}

/// What a store has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Warm chunks, by their resolution.
    pub levels: Vec<(Level, Amount)>,
    /// Cold files. Times are those of their windows.
    pub cold: Amount,
    /// The write-ahead log. Most of its rows are in chunks, too.
    pub log: Amount,
    /// Rows of the log that are in no chunk yet.
    pub log_only_rows: u64,
    /// The catalogue's files.
    pub catalogue: Amount,
    /// The file of gaps.
    pub gaps: Amount,
    /// What the catalogue has.
    pub counts: Counts,
    /// All hosts, the largest first.
    pub hosts: Vec<HostShare>,
}

impl Survey {
    /// Bytes of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let others = [self.cold, self.log, self.catalogue, self.gaps];
        self.levels.iter().map(|(_, amount)| amount.bytes).chain(others.map(|amount| amount.bytes)).sum()
    }

    /// Earliest and latest time of all rows, UTC ns.
    #[must_use]
    pub fn times_ns(&self) -> Option<(u64, u64)> {
        let mut all = Amount::default();
        for amount in self.levels.iter().map(|(_, amount)| *amount).chain([self.cold, self.log]) {
            if let (Some(from_ns), Some(to_ns)) = (amount.from_ns, amount.to_ns) {
                all.covers(from_ns, to_ns);
            }
        }
        all.from_ns.zip(all.to_ns)
    }
}

/// Hosts while they are counted.
struct Hosts<'a> {
    known: &'a Known,
    /// By track, so that its host is looked up once.
    of_tracks: HashMap<TrackId, (String, u64)>,
    shares: BTreeMap<String, HostShare>,
}

impl<'a> Hosts<'a> {
    fn new(known: &'a Known) -> Self {
        let mut hosts = Self { known, of_tracks: HashMap::new(), shares: BTreeMap::new() };
        known.hosts().filter_map(|id| known.host(id)).for_each(|(name, _)| _ = hosts.share(name));
        for (track, name) in known.tracks_with_hosts() {
            hosts.share(name).tracks += 1;
            let width = known.layout_of(track).map_or(0, |layout| values(layout));
            hosts.of_tracks.insert(track, (name.to_owned(), width));
        }
        hosts
    }

    fn share(&mut self, name: &str) -> &mut HostShare {
        if !self.shares.contains_key(name) {
            self.shares.insert(name.to_owned(), HostShare { name: name.to_owned(), ..HostShare::default() });
        }
        self.shares.get_mut(name).expect("it was put there just now")
    }

    /// The host of a track, and the values of a row.
    fn of(&mut self, track: TrackId) -> (&mut HostShare, u64) {
        let (name, width) = self.of_tracks.get(&track).cloned().unwrap_or_default();
        (self.share(&name), width)
    }

    /// Names of hosts by their label `instance`.
    fn names_of_instances(&self) -> HashMap<String, String> {
        let name = |id: HostId| {
            let (name, mut labels) = self.known.host(id)?;
            Some((labels.remove("instance")?, name.to_owned()))
        };
        self.known.hosts().filter_map(name).collect()
    }
}

/// Looks at the store in `dir`.
///
/// # Errors
/// [`StoreError::Version`], [`StoreError::Io`]. Damage is no error: what cannot be read is not counted.
pub fn survey(dir: &Path) -> Result<Survey, StoreError> {
    let segments = wal::look::hold(dir)?;
    let warm = warm_files(dir)?;
    let (known, _) = catalogue::look::read(dir)?;
    let mut survey = Survey { counts: known.counts(), ..Survey::default() };
    for path in catalogue::look::pairs(dir)?.as_flattened() {
        add_file(path, &mut survey.catalogue);
    }
    add_file(&gaps::path(dir), &mut survey.gaps);
    let mut hosts = Hosts::new(&known);
    let marks = add_chunks(&warm, &mut hosts, &mut survey);
    add_log(&segments, &marks, &mut hosts, &mut survey)?;
    add_cold(dir, &mut hosts, &mut survey)?;
    survey.hosts = hosts.shares.into_values().collect();
    survey
        .hosts
        .sort_by(|one, other| other.amount.bytes.cmp(&one.amount.bytes).then_with(|| one.name.cmp(&other.name)));
    Ok(survey)
}

fn add_file(path: &Path, amount: &mut Amount) {
    // One that is deleted meanwhile takes no room.
    if let Ok(metadata) = fs::metadata(path) {
        amount.files += 1;
        amount.bytes += metadata.len();
    }
}

/// Level, whether it is an outline, what it has, bytes.
type WarmFile = (Level, bool, Vec<warm::look::Entry>, u64);

fn warm_files(dir: &Path) -> Result<Vec<WarmFile>, StoreError> {
    let mut files = Vec::new();
    for named in warm::look::list(dir)? {
        files.extend(
            warm::look::entries(&named)?.map(|(entries, bytes)| (named.level, named.cold.is_some(), entries, bytes)),
        );
    }
    Ok(files)
}

/// Returns the largest mark of each track's raw chunks.
fn add_chunks(files: &[WarmFile], hosts: &mut Hosts<'_>, survey: &mut Survey) -> HashMap<TrackId, u64> {
    let mut marks: HashMap<TrackId, u64> = HashMap::new();
    survey.levels = Level::ALL.map(|level| (level, Amount::default())).to_vec();
    for (level, is_outline, entries, bytes) in files {
        // What an outline has is counted where its cold file is.
        let mut outlined = Amount::default();
        let amount = if *is_outline { &mut outlined } else { &mut survey.levels[*level as usize].1 };
        amount.files += 1;
        amount.bytes += bytes;
        let all: u64 = entries.iter().map(|entry| u64::from(entry.place.bytes)).sum();
        for entry in entries {
            let (host, width) = hosts.of(entry.track);
            let rows = u64::from(entry.place.rows());
            amount.pieces += 1;
            amount.rows += rows;
            amount.values += rows * width;
            let of_chunk = u64::from(entry.place.bytes);
            host.amount.bytes += if *is_outline { share(*bytes, of_chunk, all) } else { of_chunk };
            host.amount.pieces += 1;
            for amount in [&mut *amount, &mut host.amount] {
                amount.covers(entry.place.from_ns, entry.place.to_ns);
            }
            if *level == Level::Raw {
                host.amount.rows += rows;
                host.amount.values += rows * width;
                let mark = marks.entry(entry.track).or_default();
                *mark = entry.mark.max(*mark);
            }
        }
        survey.cold.files += outlined.files;
        survey.cold.bytes += outlined.bytes;
    }
    marks
}

/// Rows of the log while they are counted.
struct Log<'a> {
    heads: Heads<'a>,
    marks: &'a HashMap<TrackId, u64>,
    /// Tracks whose head, as far as the log has been read, is a chunk.
    in_chunks: HashSet<TrackId>,
    /// Tracks whose head has begun.
    begun: HashSet<TrackId>,
    /// Bytes before they were packed.
    bytes: HashMap<TrackId, u64>,
}

impl Log<'_> {
    fn take(&mut self, source: &Source, entry: &Entry<'_>, hosts: &mut Hosts<'_>, survey: &mut Survey) {
        // What is damaged counts as nothing here.
        let taken = self.heads.take(entry).unwrap_or_default();
        let (track, bytes) = match *entry {
            Entry::Rows { track, bytes, .. } => (track, bytes.len() as u64),
            Entry::Cut { track } | Entry::Lost { track, .. } => {
                self.in_chunks.remove(&track);
                self.begun.remove(&track);
                return;
            }
        };
        *self.bytes.entry(track).or_default() += bytes;
        // As the store tells it when it starts: by the first rows of the head.
        if self.begun.insert(track) && self.marks.get(&track).is_some_and(|mark| *mark >= source.sequence) {
            self.in_chunks.insert(track);
        }
        survey.log.rows += taken.rows;
        survey.log.values += taken.values;
        let Some((from_ns, to_ns)) = taken.times_ns else { return };
        survey.log.covers(from_ns, to_ns);
        if !self.in_chunks.contains(&track) {
            survey.log_only_rows += taken.rows;
            let (host, _) = hosts.of(track);
            host.amount.rows += taken.rows;
            host.amount.values += taken.values;
            host.amount.covers(from_ns, to_ns);
        }
    }
}

fn add_log(
    segments: &[wal::look::Held],
    marks: &HashMap<TrackId, u64>,
    hosts: &mut Hosts<'_>,
    survey: &mut Survey,
) -> Result<(), StoreError> {
    for segment in segments {
        survey.log.files += 1;
        survey.log.bytes += segment.file.metadata().map_err(io_error("look at", &segment.path))?.len();
    }
    let (in_chunks, begun, bytes) = Default::default();
    let mut log = Log { heads: Heads::new(hosts.known), marks, in_chunks, begun, bytes };
    let found = wal::look::replay(segments, |source, entry| log.take(source, &entry, hosts, survey))?;
    survey.log.pieces = found.records;
    let all: u64 = log.bytes.values().sum();
    for (track, bytes) in log.bytes {
        hosts.of(track).0.amount.bytes += share(survey.log.bytes, bytes, all);
    }
    Ok(())
}

/// Of `whole` what `part` of `all` is.
fn share(whole: u64, part: u64, all: u64) -> u64 {
    let share = u128::from(whole) * u128::from(part) / u128::from(all.max(1));
    u64::try_from(share).unwrap_or(u64::MAX) // never more than the whole
}

fn add_cold(dir: &Path, hosts: &mut Hosts<'_>, survey: &mut Survey) -> Result<(), StoreError> {
    let (files, _) = cold::look::list(dir)?;
    let names = if files.is_empty() { HashMap::new() } else { hosts.names_of_instances() };
    for named in files {
        let bytes = named.bytes();
        let summary = match cold::look::summary(&named) {
            Ok(Some(summary)) => summary,
            Ok(None) => continue,
            // It takes its room all the same.
            Err(StoreError::Damaged { .. }) => cold::look::Summary::default(),
            Err(error) => return Err(error),
        };
        let cold = &mut survey.cold;
        cold.files += 1;
        cold.bytes += bytes;
        cold.pieces += summary.groups;
        cold.rows += summary.rows;
        cold.values += summary.rows;
        let (from_ns, to_ns) = (named.window.from_ns(), named.window.to_ns() - 1);
        cold.covers(from_ns, to_ns);
        for (instance, rows) in &summary.instances {
            let name = names.get(&**instance).map_or(&**instance, String::as_str);
            let amount = &mut hosts.share(name).amount;
            amount.bytes += share(bytes, *rows, summary.rows);
            amount.covers(from_ns, to_ns);
        }
    }
    Ok(())
}
