// SPDX-License-Identifier: Apache-2.0
//! What the frame store costs with recorded rows of real agents: CPU time and bytes a value on the way ring, head, log,
//! warm chunk, cold file; scans of one column; memory.
//!
//! `make bench-store` runs `store DIRECTORY NAME RECORDING HOSTS READINGS`: the files go to DIRECTORY. Each figure is a
//! line `figure store_..._NAME VALUE UNIT`. A value is one that is new: what its part had in the row before at the same
//! time does not count, however wide the rows are. Times are CPU time of this thread, which does what a processor's
//! thread and the store's do; `bench/bench-store` compares them with other databases.

pub(crate) mod export;
pub(crate) mod record;
mod recording;
mod taken;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use onlooker_framestore::catalogue::{Catalogue, HostId, TrackKey};
use onlooker_framestore::chunk::{Builder, Chunk, Shape};
use onlooker_framestore::cold::{SeriesData, Window, Writer};
use onlooker_framestore::framing::files::Lock;
use onlooker_framestore::head::Head;
use onlooker_framestore::layout::{ContentId, Layout, Placed};
use onlooker_framestore::ring::{self, Consumer, Producer, Refused};
use onlooker_framestore::types::{Line, TrackId};
use onlooker_framestore::wal::Wal;
use recording::{Labels, Recording, Row};

use crate::allocations::allocated_bytes;
use crate::machine::thread_cpu_ns;
use crate::report::figure;

/// The store thread's rhythm.
const DRAIN_NS: u64 = 250_000_000;
const SYNC_NS: u64 = 1_000_000_000;
const RING_BYTES: u64 = 32 << 20;
const SEGMENT_BYTES: u64 = 64 << 20;
/// Values that are scanned, at least, and columns that are, at most.
const SCANNED: usize = 20_000_000;
const COLUMNS: usize = 60;

/// Adds the CPU time of some work.
fn timed<T>(total_ns: &mut u64, work: impl FnOnce() -> T) -> T {
    let begin_ns = thread_cpu_ns();
    let done = work();
    *total_ns += thread_cpu_ns() - begin_ns;
    done
}

/// Prints figures of one recording.
struct Figures {
    name: String,
    values: f64,
}

impl Figures {
    fn one(&self, what: &str, value: f64, unit: &str) {
        figure(&format!("store_{what}_{}", self.name), value, unit);
    }

    fn time(&self, what: &str, total_ns: u64) {
        self.one(&format!("{what}_time"), total_ns as f64 / self.values, "ns_a_value");
    }
}

/// From rows to durable bytes.
struct Store {
    heads: Vec<Head>,
    /// Of each head, rows and bytes that the log has.
    logged: Vec<(u32, usize)>,
    log: Wal,
    consumer: Consumer,
    head_ns: u64,
    log_ns: u64,
}

impl Store {
    /// What the store thread does four times a second.
    fn drain(&mut self) -> Result<()> {
        let Self { heads, consumer, head_ns, .. } = self;
        timed(head_ns, || {
            while let Some(record) = consumer.next() {
                heads[record.track.0 as usize].push(record.line, record.time_ns, record.words())?;
            }
            Ok(())
        })
    }

    /// What it does once a second.
    fn sync(&mut self) -> Result<()> {
        let Self { heads, logged, log, consumer, log_ns, .. } = self;
        timed(log_ns, || {
            let position = consumer.position();
            for (number, (head, logged)) in heads.iter().zip(logged).enumerate() {
                let track = TrackId(u32::try_from(number)?);
                log.rows(track, head.rows() - logged.0, head.bytes_since(logged.1))?;
                *logged = (head.rows(), head.len_bytes());
                if log.is_full() {
                    log.finish(0, position.sequence());
                }
            }
            log.finish(0, position.sequence());
            log.write()?;
            log.sync()?;
            consumer.release(position);
            Ok(())
        })
    }
}

/// A ring of which all pages were used before, as those of a running store were.
fn used_ring() -> Result<(Producer, Consumer)> {
    let file = PathBuf::from(format!("/dev/shm/bench-store-{}", std::process::id()));
    let (mut producer, mut consumer, _) = ring::open(&file, RING_BYTES, 0)?;
    // It is mapped; nobody else needs its name.
    std::fs::remove_file(&file)?;
    let piece = [0; 1 << 16];
    for _ in 0..2 * RING_BYTES / piece.len() as u64 {
        producer.push_bytes(ring::ROW + 1, &piece)?;
        consumer.next();
        consumer.release(consumer.position());
    }
    Ok((producer, consumer))
}

/// Says what there is.
fn define(recording: &mut Recording, lock: &Arc<Lock>) -> Result<Catalogue> {
    let (mut catalogue, _) = Catalogue::open(lock)?;
    for (number, track) in (0..).zip(&mut recording.tracks) {
        track.layout = catalogue.define_layout(&track.layout)?;
        let host = HostId(track.host);
        catalogue.enter_host(host, &format!("host-{:05}", track.host), &BTreeMap::new())?;
        let key = TrackKey {
            host,
            source: track.source,
            labels: track.labels.clone(),
            texts: Vec::new(),
            layout: track.layout.id(),
        };
        catalogue.enter_track(TrackId(number), &key, 1)?;
        for (line, labels) in (0..).zip(track.lines.iter()).filter(|_| track.layout.is_table()) {
            catalogue.enter_line(TrackId(number), Line(line), labels, 1)?;
        }
    }
    catalogue.write()?;
    catalogue.sync()?;
    Ok(catalogue)
}

/// Appends all rows, until they are durable.
fn append(recording: &mut Recording, directory: &Path, figures: &Figures) -> Result<Vec<Head>> {
    // What the recording has of its own is not given back while the store's memory is counted.
    let _layouts: Vec<Arc<Layout>> = recording.tracks.iter().map(|track| track.layout.clone()).collect();
    let before_bytes = allocated_bytes();
    let lock = Lock::take(directory)?;
    let catalogue = define(recording, &lock)?;
    let recording = &*recording;
    let head = |track: &recording::Track| Head::new(track.layout.kinds().clone(), track.layout.is_table());
    let heads: Vec<Head> = recording.tracks.iter().map(head).collect();
    let (log, _) = Wal::open(&lock, SEGMENT_BYTES, |_, _| {})?;
    let logged = vec![(0, 0); heads.len()];
    let (mut producer, consumer) = used_ring()?;
    let mut store = Store { heads, logged, log, consumer, head_ns: 0, log_ns: 0 };
    let readings = |ns: u64| u32::try_from((ns / recording.interval_ns).max(1)).unwrap_or(1);
    let mut ring_ns = 0;
    for rows in recording.rows.chunk_by(|a, b| a.reading == b.reading) {
        let mut left = rows;
        while !left.is_empty() {
            let pushed = timed(&mut ring_ns, || push(&mut producer, recording, left))?;
            left = &left[pushed..];
            if !left.is_empty() {
                store.drain()?;
                store.sync()?;
            }
        }
        let next = rows[0].reading + 1;
        if next.is_multiple_of(readings(DRAIN_NS)) {
            store.drain()?;
        }
        if next.is_multiple_of(readings(SYNC_NS)) {
            store.sync()?;
        }
    }
    store.drain()?;
    store.sync()?;
    let total_ns = ring_ns + store.head_ns + store.log_ns;
    figures.one("append", figures.values * 1e3 / total_ns as f64, "M_values_a_core_second");
    figures.time("ring", ring_ns);
    figures.time("head", store.head_ns);
    figures.time("log", store.log_ns);
    figures.one("log", bytes_of(&directory.join("wal"))? as f64 / figures.values, "bytes_a_value");
    let bytes = (allocated_bytes() - before_bytes) as f64;
    let series_of =
        |track: &recording::Track| track.layout.parts().iter().map(|part| part.part.series.len()).sum::<usize>();
    let series: usize = recording.tracks.iter().map(|track| series_of(track) * track.lines.len()).sum();
    figures.one("memory_host", bytes / f64::from(recording.hosts()), "bytes");
    figures.one("memory_series", bytes / series as f64, "bytes");
    figures.one("catalogue_host", catalogue.bytes() as f64 / f64::from(recording.hosts()), "bytes_on_disk");
    Ok(store.heads)
}

/// How many of the rows the ring has taken.
fn push(producer: &mut Producer, recording: &Recording, rows: &[Row]) -> Result<usize> {
    for (taken, row) in rows.iter().enumerate() {
        let (track, line) = (TrackId(row.track), Line(row.line));
        match producer.push(ring::ROW, track, line, row.time_ns, recording.words(row)) {
            Ok(_) => {}
            Err(Refused::Full) => return Ok(taken),
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(rows.len())
}

fn bytes_of(directory: &Path) -> Result<u64> {
    std::fs::read_dir(directory)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

/// Makes a warm chunk of each head.
fn merge(recording: &Recording, heads: Vec<Head>, figures: &Figures) -> Result<Vec<Vec<u8>>> {
    let (mut chunks, mut merge_ns) = (Vec::new(), 0);
    for (number, (mut head, track)) in heads.into_iter().zip(&recording.tracks).enumerate() {
        timed(&mut merge_ns, || {
            let mut builder = Builder::new(TrackId(u32::try_from(number)?), Shape::of(&track.layout));
            head.take().rows(|line, time_ns, words| {
                if builder.is_full() {
                    chunks.extend(builder.finish());
                }
                builder.push(line, time_ns, words);
            })?;
            chunks.extend(builder.finish());
            anyhow::Ok(())
        })?;
    }
    figures.time("merge", merge_ns);
    figures.one("warm", chunks.iter().map(Vec::len).sum::<usize>() as f64 / figures.values, "bytes_a_value");
    Ok(chunks)
}

/// Reads columns of the widest rows that are not constant, one after the other, as a query does: through all chunks.
fn scan(chunks: &[Vec<u8>], figures: &Figures) -> Result<()> {
    let columns = |bytes: &Vec<u8>| Chunk::parse(bytes).map_or(0, |chunk| chunk.head().columns);
    let widest = chunks.iter().map(columns).max().unwrap_or(0);
    let wide: Vec<&Vec<u8>> = chunks.iter().filter(|bytes| columns(bytes) == widest).collect();
    let first = Chunk::parse(wide.first().context("there are no chunks")?)?;
    let mut varying = Vec::new();
    for number in 0..widest {
        if first.constant(number)?.is_none() {
            varying.push(number);
        }
    }
    varying.truncate(COLUMNS);
    let (mut scan_ns, mut scanned, mut sum, mut values) = (0, 0, 0u64, Vec::new());
    while scanned < SCANNED && !varying.is_empty() {
        timed(&mut scan_ns, || {
            for column in &varying {
                for bytes in &wide {
                    values.clear();
                    Chunk::parse(bytes)?.column(*column, &mut values)?;
                    scanned += values.len();
                    sum = values.iter().fold(sum, |sum, value| sum.wrapping_add(*value));
                }
            }
            anyhow::Ok(())
        })?;
    }
    std::hint::black_box(sum);
    figures.one("scan", scanned as f64 * 1e3 / scan_ns as f64, "M_values_a_core_second");
    Ok(())
}

/// The samples of a part of a line.
struct Samples<'a> {
    part: &'a Placed,
    labels: Vec<Labels>,
    times_ns: Vec<u64>,
    columns: Vec<Vec<u64>>,
}

/// Writes all that was recorded, and nothing twice, as one cold file.
fn cold(recording: &Recording, directory: &Path, figures: &Figures) -> Result<()> {
    // Part by part, and of each part host by host.
    let mut all: BTreeMap<(ContentId, u32, u32, usize), Samples<'_>> = BTreeMap::new();
    recording.news(|new| {
        let series = &new.part.part.series;
        let samples = all.entry((new.part.id, new.row.track, new.row.line, new.part.at)).or_insert_with(|| Samples {
            part: new.part,
            labels: series.iter().map(|series| recording.labels(&new, series)).collect(),
            times_ns: Vec::new(),
            columns: vec![Vec::new(); new.words.len()],
        });
        // What was read again at another time of ours has the same time; in a file time goes on.
        if samples.times_ns.last().is_none_or(|last| *last < new.time_ns) {
            samples.times_ns.push(new.time_ns);
            samples.columns.iter_mut().zip(new.words).for_each(|(column, word)| column.push(*word));
        }
    });
    let times = || all.values().flat_map(|samples| &samples.times_ns);
    let second = |time_ns: Option<&u64>| time_ns.map_or(0, |time_ns| time_ns / 1_000_000_000);
    let window = Window::new(second(times().min()), second(times().max()) + 1)?;
    let mut cold_ns = 0;
    let written = timed(&mut cold_ns, || {
        let mut writer = Writer::create(directory, window)?;
        for Samples { part, labels, times_ns, columns } in all.values() {
            for (series, labels) in part.part.series.iter().zip(labels) {
                // An info is 1.
                let ones = vec![1; times_ns.len()];
                let own = columns[series.at..][..series.form.words()].iter().map(Vec::as_slice);
                let words: Vec<&[u64]> = if series.form.words() == 0 { vec![&ones] } else { own.collect() };
                writer.push(&SeriesData { series, labels, times_ns, words: &words })?;
            }
        }
        writer.finish()
    })?;
    let samples = std::fs::metadata(&written.path)?.len();
    let series: usize = all.values().map(|samples| samples.labels.len()).sum();
    figures.time("cold", cold_ns);
    figures.one("cold", samples as f64 / figures.values, "bytes_a_value");
    // Of a file with an hour of rows this is little.
    figures.one("cold_index", (written.bytes - samples) as f64 / series as f64, "bytes_a_series");
    Ok(())
}

pub(crate) fn run(directory: &str, name: &str, from: &str, hosts: &str, readings: &str) -> Result<()> {
    let directory = Path::new(directory);
    let recorded = Recording::read(Path::new(from))?;
    let mut recording = recorded.replayed(hosts.parse()?, readings.parse()?);
    let figures = |of: &Recording| Figures { name: name.to_owned(), values: of.values() as f64 };
    // Pieces of a recording overlap, which only packing of many hosts together would take advantage of.
    cold(&recorded, directory, &figures(&recorded))?;
    drop(recorded);
    let figures = figures(&recording);
    figures.one("values", figures.values, "values");
    figures.one("changed", recording.changed() as f64 / figures.values, "of_values");
    let heads = append(&mut recording, directory, &figures)?;
    let chunks = merge(&recording, heads, &figures)?;
    scan(&chunks, &figures)
}
