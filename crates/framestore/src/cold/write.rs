// SPDX-License-Identifier: Apache-2.0
//! Makes a cold file: takes series, fills row groups, leaves samples, gaps and index.
//!
//! One thread writes a file, one at a time a window; nobody sees it before [`Writer::finish`]. Memory: a row group (32
//! bytes a row), the index, and the times of each host's readings.

use std::cmp::Reverse;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_series::series::{Form, Series};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::coding::{bounds, coded, put_words};
use super::columns::{Group, Numbers};
use super::index::{Binding, Builder, Dims, Index, split_labels};
use super::names::Window;
use super::readings::Readings;
use super::{Column, GAPS_SCHEMA, ROW_GROUP_ROWS, SAMPLES_SCHEMA, not_written, type_text, words};
use crate::damage::{StoreError, io_error};

/// The disk is asked to take so much at once.
const SETTLED_BYTES: usize = 2 << 20;

/// Samples of a series in the window of a file, or some of them.
#[derive(Clone, Copy, Debug)]
pub struct SeriesData<'a> {
    /// What is said of it; its labels and its place in rows are not looked at.
    pub series: &'a Series,
    /// All its labels. A series of texts is given once for each text, with the text as label `value`.
    pub labels: &'a [(String, String)],
    /// When they were acquired, UTC, ns.
    pub times_ns: &'a [u64],
    /// Its words, each as long as the times: one, or a histogram's buckets and sum.
    pub words: &'a [&'a [u64]],
}

/// A time without samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GapData {
    /// Whose: label `instance`.
    pub instance: String,
    /// Of which region; nothing: of all.
    pub region: String,
    /// The first time, UTC, ns.
    pub from_ns: u64,
    /// The last time.
    pub to_ns: u64,
    /// In a word.
    pub reason: String,
}

/// A cold file that is whole, synced, and has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where.
    pub path: PathBuf,
    /// Of samples, index and gaps.
    pub bytes: u64,
    /// Samples, buckets counted as such.
    pub rows: u64,
    /// Its row groups.
    pub groups: u32,
}

/// Where a column of what was pushed stands in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) group: u32,
    /// The first row there.
    pub(crate) first: u32,
    /// What its whole numbers are to be divided by for floats: 0, or 1 + the power of ten.
    pub(crate) decimal: u8,
}

/// A column of what was pushed, and the number of its spot.
pub(crate) type Piece = (usize, u32);

/// Rows that stand together in a row group: what they are, and where their numbers wait.
struct Rows {
    dims: Dims,
    /// Number of its spot.
    spot: u32,
    bounds: Option<(f64, f64)>,
    /// Places in the times and in the words.
    times: usize,
    words: usize,
    rows: usize,
}

/// The rows of a row group in their order. Kept for the next one: fresh memory costs more than what is done with it.
#[derive(Default)]
struct Gathered {
    times: Vec<u64>,
    offsets: Vec<u64>,
    numbers: Numbers,
}

/// Makes one file.
pub struct Writer {
    window: Window,
    number: u32,
    cold: PathBuf,
    /// Of the file that is not whole.
    path: PathBuf,
    sink: SerializedFileWriter<File>,
    group: Group,
    index: Builder,
    gaps: Vec<GapData>,
    /// What the row group in the making has.
    pending: Vec<Rows>,
    pending_rows: usize,
    /// When values were acquired: many series have the same times, which are here once.
    times: Vec<u64>,
    words: Vec<u64>,
    gathered: Gathered,
    readings: Readings,
    /// Whose times were the last ones, which, and where they are.
    last: (Arc<str>, Vec<u64>, usize),
    rows: u64,
    groups: u32,
    /// Most rows of a row group.
    group_rows: usize,
    spots: Vec<Spot>,
    /// Bytes that the disk was asked to take.
    settled: usize,
}

impl Writer {
    /// A file for a window in `<dir>/cold`, which is made where it is not there. Files of one window are numbered.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(dir: &Path, window: Window) -> Result<Self, StoreError> {
        let cold = dir.join("cold");
        let gaps = cold.join("gaps");
        if !gaps.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(&gaps).map_err(io_error("create", &gaps))?;
            [&*cold, dir].into_iter().try_for_each(sync_dir)?;
        }
        let named = |number: &u32| cold.join(window.name(*number)).with_extension("parquet").exists();
        let number = (0..).find(|number| !named(number)).unwrap_or(u32::MAX);
        let path = cold.join(window.name(number)).with_extension("parquet.tmp");
        let file = create(&path)?;
        let how = "coalesce(float_value, int_value) / divisor * multiplier";
        let properties = WriterProperties::builder()
            .set_created_by(format!("onlooker {}", env!("CARGO_PKG_VERSION")))
            .set_key_value_metadata(Some(vec![KeyValue::new("onlooker.value".to_owned(), how.to_owned())]))
            .build();
        let schema = SAMPLES_SCHEMA.root_schema_ptr();
        let sink = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(not_written(&path))?;
        Ok(Self {
            window,
            number,
            sink,
            group: Group::new().map_err(io_error("pack", &path))?,
            cold,
            path,
            index: Builder::default(),
            gaps: Vec::new(),
            pending: Vec::new(),
            pending_rows: 0,
            times: Vec::new(),
            words: Vec::new(),
            gathered: Gathered::default(),
            readings: Readings::default(),
            last: ("".into(), Vec::new(), 0),
            rows: 0,
            groups: 0,
            group_rows: ROW_GROUP_ROWS,
            spots: Vec::new(),
            settled: 0,
        })
    }

    /// With smaller row groups, for those who want few rows of a file.
    #[must_use]
    pub(crate) fn with_groups_of(self, group_rows: usize) -> Self {
        Self { group_rows, ..self }
    }

    /// Name of the file that it makes, without an ending.
    pub(crate) fn name(&self) -> String {
        self.window.name(self.number)
    }

    /// Has the disk take what is written so far, if that is much: at the end all at once would hold up others.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        if self.sink.bytes_written() - self.settled >= SETTLED_BYTES {
            self.settled = self.sink.bytes_written();
            self.sink.inner().sync_data().map_err(io_error("sync", &self.path))?;
        }
        Ok(())
    }

    /// Takes a series, or more of one. Those that have their times in common should come one after the other.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for a time outside of the window, and what the system says; the file is then to be
    /// dropped.
    ///
    /// # Panics
    /// If the words are not as many, or not as long, as the series' form and the times say.
    pub fn push(&mut self, data: &SeriesData) -> Result<(), StoreError> {
        self.push_told(data).map(drop)
    }

    /// The same, and tells which columns have which spots of [`Writer::finish_told`]. Those of which all is 0 have none,
    /// long ones several.
    pub(crate) fn push_told(&mut self, data: &SeriesData) -> Result<Vec<Piece>, StoreError> {
        let SeriesData { series, labels, times_ns, words: columns } = *data;
        assert_eq!(columns.len(), words(series.form), "words of {}", series.name);
        assert!(columns.iter().all(|column| column.len() == times_ns.len()), "times of {}", series.name);
        let is_inside = |time: &u64| (self.window.from_ns()..self.window.to_ns()).contains(time);
        if let Some(time_ns) = times_ns.iter().find(|time| !is_inside(time)) {
            let as_limit = |time_ns: u64| usize::try_from(time_ns).unwrap_or(usize::MAX);
            let limit = as_limit(self.window.to_ns());
            return Err(StoreError::Limit { what: "a sample's time", limit, got: as_limit(*time_ns) });
        }
        // Buckets that are empty all the time are no rows.
        let wanted: Vec<usize> = match series.form {
            Form::Histogram(shape) => {
                let is_used = |bucket: &usize| columns[*bucket].iter().any(|word| *word > 0);
                (0..shape.buckets()).filter(is_used).chain([shape.buckets()]).collect()
            }
            _ => vec![0],
        };
        // All words of a time stand in one row group.
        let piece = (self.group_rows / wanted.len()).max(1);
        let (instance, others) = split_labels(labels);
        let whose = [&*series.name, &*others, instance, &*series.unit].map(Arc::from);
        let mut told = Vec::new();
        for (at, times) in times_ns.chunks(piece).enumerate() {
            if self.pending_rows > 0 && self.pending_rows + times.len() * wanted.len() > self.group_rows {
                self.flush()?;
            }
            let times_at = self.put_times(&whose[2], times);
            for column in &wanted {
                let words = &columns[*column][at * piece..][..times.len()];
                let (coding, divisor, multiplier) = coded(series, *column, words);
                let [name, labels, instance, unit] = whose.clone();
                let dims = Dims { name, labels, instance, unit, metric: series.metric, coding, divisor, multiplier };
                let rows = times.len();
                let bounds = bounds(coding, series.scale);
                let spot = u32::try_from(self.spots.len()).unwrap_or(u32::MAX);
                self.spots.push(Spot { decimal: coding.power(divisor), ..Spot::default() });
                told.push((*column, spot));
                self.pending.push(Rows { dims, spot, bounds, times: times_at, words: self.words.len(), rows });
                self.words.extend(words);
                self.pending_rows += rows;
            }
        }
        Ok(told)
    }

    /// Where these times are.
    fn put_times(&mut self, instance: &Arc<str>, times: &[u64]) -> usize {
        let (whose, last, at) = &self.last;
        if !self.times.is_empty() && whose == instance && last == times {
            return *at;
        }
        let at = self.times.len();
        self.times.extend(times);
        self.last = (instance.clone(), times.to_vec(), at);
        at
    }

    /// Takes a time without samples.
    pub fn gap(&mut self, gap: GapData) {
        self.gaps.push(gap);
    }

    /// Ends the file: when this returns it is durable.
    ///
    /// # Errors
    /// What the system says; what was written of it is removed.
    pub fn finish(self) -> Result<Written, StoreError> {
        self.finish_told().map(|(written, _)| written)
    }

    /// The same, and tells the spots.
    pub(crate) fn finish_told(self) -> Result<(Written, Vec<Spot>), StoreError> {
        let temporary = self.path.clone();
        self.end().inspect_err(|_| drop(fs::remove_file(&temporary)))
    }

    fn end(mut self) -> Result<(Written, Vec<Spot>), StoreError> {
        self.flush()?;
        let Self { window, number, cold, path, sink, mut group, index, gaps, rows, groups, spots, .. } = self;
        let file = sink.into_inner().map_err(not_written(&path))?;
        file.sync_all().map_err(io_error("sync", &path))?;
        let binding = binding(&file).map_err(io_error("read", &path))?;
        let name = window.name(number);
        let mut bytes = binding.bytes;
        // Gaps first: without their samples they are removed, not the other way round.
        if !gaps.is_empty() {
            bytes += write_gaps(&cold.join("gaps"), &name, &gaps, &mut group)?;
        }
        let whole = cold.join(name).with_extension("parquet");
        fs::rename(&path, &whole).map_err(io_error("rename", &path))?;
        bytes += write_index(&whole, &index.finish(), binding)?;
        sync_dir(&cold)?;
        Ok((Written { path: whole, bytes, rows, groups }, spots))
    }

    /// Writes the row group that has been taken.
    fn flush(&mut self) -> Result<(), StoreError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let time = |rows: &Rows| self.times.get(rows.times).copied();
        let names = |rows: &Rows| (rows.dims.name.clone(), rows.dims.coding.suffix());
        // Names as they stand in the file: a histogram's have something behind them.
        pending.sort_by_cached_key(|rows| {
            let (name, suffix) = names(rows);
            let low = rows.bounds.map(|(low, _)| low.to_bits());
            (format!("{name}{suffix}"), rows.dims.labels.clone(), rows.dims.instance.clone(), low, time(rows))
        });
        let mut first = 0;
        for rows in &pending {
            let count = u32::try_from(rows.rows).unwrap_or(u32::MAX);
            self.index.add(&rows.dims, self.groups, first, count);
            if let Some(spot) = self.spots.get_mut(rows.spot as usize) {
                (spot.group, spot.first) = (self.groups, first);
            }
            first += count;
        }
        self.write_group(&pending).map_err(not_written(&self.path))?;
        self.rows += self.pending_rows as u64;
        self.groups += 1;
        self.pending_rows = 0;
        self.times.clear();
        self.words.clear();
        Ok(())
    }

    /// The times of the readings that all times are of. Those that are most, and first, decide.
    fn readings(&mut self, pending: &[Rows]) -> Vec<u64> {
        let mut runs: Vec<_> = pending.iter().map(|rows| (Reverse(rows.rows), self.times[rows.times], rows)).collect();
        runs.sort_unstable_by_key(|(rows, first, at)| (*rows, *first, at.times));
        runs.dedup_by_key(|(_, _, rows)| rows.times);
        let mut readings = self.times.clone();
        for (_, _, rows) in runs {
            let place = rows.times..rows.times + rows.rows;
            let of = self.readings.of(&rows.dims.instance, &self.times[place.clone()]);
            readings[place].copy_from_slice(&of);
        }
        readings
    }

    fn write_group(&mut self, pending: &[Rows]) -> Result<(), parquet::errors::ParquetError> {
        let columns = SAMPLES_SCHEMA.columns();
        let readings = self.readings(pending);
        let Gathered { times, offsets, numbers } = &mut self.gathered;
        times.clear();
        offsets.clear();
        numbers.clear();
        for rows in pending {
            let (acquired, read) = (&self.times[rows.times..][..rows.rows], &readings[rows.times..][..rows.rows]);
            times.extend_from_slice(read);
            offsets.extend(acquired.iter().zip(read).map(|(acquired, read)| acquired.wrapping_sub(*read)));
            put_words(rows.dims.coding, rows.dims.divisor, &self.words[rows.words..][..rows.rows], numbers);
        }
        // Times that series have in common are there once, and are looked for as bytes.
        let are_shared = self.times.len() * 3 < self.pending_rows * 2;

        let mut out = self.sink.next_row_group()?;
        for (column, described) in COLUMNS.iter().zip(columns) {
            let texts = |of: fn(&Rows) -> &str| pending.iter().map(move |rows| (of(rows), rows.rows));
            let floats = |of: fn(&Rows) -> Option<f64>| pending.iter().map(move |rows| (of(rows), rows.rows));
            let group = &mut self.group;
            let chunk = match column {
                Column::Time => group.times(described, times, are_shared),
                Column::Offset => group.offsets(described, offsets, are_shared),
                Column::Instance => group.texts(described, texts(|rows| &rows.dims.instance)),
                Column::Metric => {
                    let named = |rows: &Rows| format!("{}{}", rows.dims.name, rows.dims.coding.suffix());
                    group.texts(described, pending.iter().map(|rows| (named(rows), rows.rows)))
                }
                Column::Labels => group.texts(described, texts(|rows| &rows.dims.labels)),
                Column::IntValue => group.integers(described, &numbers.integers, true),
                Column::FloatValue => group.floats(described, &numbers.floats),
                Column::Divisor => group.constants(described, floats(|rows| Some(rows.dims.divisor))),
                Column::Multiplier => group.constants(described, floats(|rows| Some(rows.dims.multiplier))),
                Column::Type => group.texts(described, texts(|rows| type_text(rows.dims.metric))),
                Column::Unit => group.texts(described, texts(|rows| &rows.dims.unit)),
                Column::Low => group.constants(described, floats(|rows| rows.bounds.map(|(low, _)| low))),
                Column::High => group.constants(described, floats(|rows| rows.bounds.map(|(_, high)| high))),
                Column::Form => group.texts(described, pending.iter().map(|rows| (rows.dims.coding.text(), rows.rows))),
                Column::Word => group.integers(described, &numbers.words, false),
            }?;
            out.append_column(&chunk.bytes, chunk.close)?;
        }
        out.close()?;
        Ok(())
    }
}

/// In the order of the schema.
const COLUMNS: [Column; 15] = [
    Column::Time,
    Column::Offset,
    Column::Instance,
    Column::Metric,
    Column::Labels,
    Column::IntValue,
    Column::FloatValue,
    Column::Divisor,
    Column::Multiplier,
    Column::Type,
    Column::Unit,
    Column::Low,
    Column::High,
    Column::Form,
    Column::Word,
];

fn create(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(io_error("create", path))
}

fn sync_dir(path: &Path) -> Result<(), StoreError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(io_error("sync", path))
}

/// What an index of this file is bound to.
pub(super) fn binding(file: &File) -> std::io::Result<Binding> {
    let bytes = file.metadata()?.len();
    let mut end = [0; 8];
    file.read_exact_at(&mut end, bytes.saturating_sub(8))?;
    let footer = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if footer > super::MAX_FOOTER_BYTES.min(bytes.saturating_sub(12)) || &end[4..] != b"PAR1" {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "it does not end as a Parquet file"));
    }
    let mut footer = vec![0; usize::try_from(footer).unwrap_or(0) + 8];
    let from = bytes - footer.len() as u64;
    file.read_exact_at(&mut footer, from)?;
    Ok(Binding { bytes, footer: crc32c::crc32c(&footer) })
}

/// Writes the index of a file, and returns its bytes.
pub(super) fn write_index(of: &Path, index: &Index, binding: Binding) -> Result<u64, StoreError> {
    let path = of.with_extension("index");
    let temporary = of.with_extension("index.tmp");
    let bytes = index.encode(binding).map_err(io_error("pack", &path))?;
    let file = create(&temporary)?;
    file.write_all_at(&bytes, 0).and_then(|()| file.sync_all()).map_err(io_error("write", &temporary))?;
    fs::rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
    Ok(bytes.len() as u64)
}

fn write_gaps(dir: &Path, name: &str, gaps: &[GapData], group: &mut Group) -> Result<u64, StoreError> {
    let path = dir.join(name).with_extension("parquet");
    let temporary = path.with_extension("parquet.tmp");
    let mut put = |file: File| {
        let schema = GAPS_SCHEMA.root_schema_ptr();
        let mut sink = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::builder().build()))?;
        let mut out = sink.next_row_group()?;
        let times = |of: fn(&GapData) -> u64| gaps.iter().map(of).collect::<Vec<u64>>();
        let texts = |of: fn(&GapData) -> &str| gaps.iter().map(move |gap| (of(gap), 1));
        for (at, column) in GAPS_SCHEMA.columns().iter().enumerate() {
            let chunk = match at {
                0 => group.texts(column, texts(|gap| &gap.instance)),
                1 => group.texts(column, texts(|gap| &gap.region)),
                2 => group.times(column, &times(|gap| gap.from_ns), false),
                3 => group.times(column, &times(|gap| gap.to_ns), false),
                _ => group.texts(column, texts(|gap| &gap.reason)),
            }?;
            out.append_column(&chunk.bytes, chunk.close)?;
        }
        out.close()?;
        sink.into_inner()
    };
    let file = put(create(&temporary)?).map_err(not_written(&temporary))?;
    file.sync_all().map_err(io_error("sync", &temporary))?;
    let bytes = file.metadata().map_err(io_error("read", &temporary))?.len();
    fs::rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
    sync_dir(dir)?;
    Ok(bytes)
}
