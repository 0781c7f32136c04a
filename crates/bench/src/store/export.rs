// SPDX-License-Identifier: Apache-2.0
//! Writes recorded rows for other databases: each series with all its labels, then samples as Prometheus has them,
//! doubles with milliseconds.
//!
//! `export RECORDING HOSTS ROUNDS FILE`. Only what is new in a row becomes samples, as a scrape of what has moved.
//! Histograms are left out, since they would be another number of samples in each database, and so are series that
//! another one has the name and labels of. Little-endian:
//!
//! ```text
//! "ONLKSMPL"
//! version      u32, 1
//! series       u32, their number, then each: number of labels u32, then each, sorted: length of the name u32, name, length of the value u32, value
//! records      until the end: time ms i64, first series u32, count u32, values f64 each, of series that follow each other; count 0: a host's reading ends
//! ```

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use onlooker_series::series::{Form, Series};

use super::recording::{Labels, New, Recording};

/// Which part of which line of which track.
type PlaceKey = (u32, u32, usize);

/// The series of a part of a line that are written.
struct Written<'a> {
    first: u32,
    series: Vec<&'a Series>,
}

#[derive(Default)]
struct All<'a> {
    by_place: HashMap<PlaceKey, Written<'a>>,
    labels: Vec<Labels>,
    known: HashSet<Labels>,
    left_out: usize,
}

fn key(new: &New<'_>) -> PlaceKey {
    (new.row.track, new.row.line, new.part.at)
}

impl<'a> All<'a> {
    fn enter(&mut self, recording: &Recording, new: &New<'a>) {
        if self.by_place.contains_key(&key(new)) {
            return;
        }
        let mut written = Written { first: u32::try_from(self.labels.len()).unwrap_or(u32::MAX), series: Vec::new() };
        for series in &new.part.part.series {
            let mut labels = recording.labels(new, series);
            labels.push(("__name__".to_owned(), series.name.to_string()));
            labels.sort();
            if matches!(series.form, Form::Histogram(_)) || !self.known.insert(labels.clone()) {
                self.left_out += 1;
                continue;
            }
            self.labels.push(labels);
            written.series.push(series);
        }
        self.by_place.insert(key(new), written);
    }
}

pub(crate) fn run(from: &str, hosts: &str, rounds: &str, to: &str) -> Result<()> {
    let recording = Recording::read(Path::new(from))?.replayed(hosts.parse()?, rounds.parse()?);
    let mut all = All::default();
    recording.news(|new| all.enter(&recording, &new));
    let mut file = BufWriter::with_capacity(1 << 20, File::create(to)?);
    file.write_all(b"ONLKSMPL\x01\0\0\0")?;
    file.write_all(&length(all.labels.len())?)?;
    for labels in &all.labels {
        file.write_all(&length(labels.len())?)?;
        for text in labels.iter().flat_map(|(name, value)| [name, value]) {
            file.write_all(&length(text.len())?)?;
            file.write_all(text.as_bytes())?;
        }
    }
    let (mut samples, mut reading, mut result) = (0, None, Ok(()));
    recording.news(|new| {
        let now = (new.row.reading, recording.tracks[new.row.track as usize].host);
        let Some(written) = all.by_place.get(&key(&new)).filter(|written| !written.series.is_empty()) else { return };
        if result.is_ok() && reading.replace(now).is_some_and(|before| before != now) {
            result = end(&mut file);
        }
        if result.is_ok() {
            samples += written.series.len();
            let values = written.series.iter().map(|series| series.number(new.words).unwrap_or(f64::NAN));
            result = record(&mut file, new.time_ns, written.first, values);
        }
    });
    result.and_then(|()| end(&mut file))?;
    file.flush()?;
    println!(
        "{to}: {} hosts, {} series, {samples} samples; {} series left out",
        recording.hosts(),
        all.labels.len(),
        all.left_out
    );
    Ok(())
}

/// A host's reading ends.
fn end(file: &mut impl Write) -> Result<()> {
    record(file, 0, 0, std::iter::empty())
}

fn length(length: usize) -> Result<[u8; 4]> {
    Ok(u32::try_from(length)?.to_le_bytes())
}

fn record(
    file: &mut impl Write,
    time_ns: u64,
    first: u32,
    mut values: impl ExactSizeIterator<Item = f64>,
) -> Result<()> {
    file.write_all(&(time_ns / 1_000_000).to_le_bytes())?;
    file.write_all(&first.to_le_bytes())?;
    file.write_all(&length(values.len())?)?;
    values.try_for_each(|value| file.write_all(&value.to_le_bytes()))?;
    Ok(())
}
