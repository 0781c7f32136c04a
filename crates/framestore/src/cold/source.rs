// SPDX-License-Identifier: Apache-2.0
//! One cold file, opened: its pages as runs and numbers. Damaged or hostile bytes are errors.
//!
//! The library reads footer and page headers; of files that nobody of ours wrote it might panic, which is an error
//! here. Memory is bounded by the rows that a footer tells, [`MAX_ROWS`] a row group at most.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::schema::types::SchemaDescPtr;

use super::coding::{Coding, of_whole};
use super::index::{Binding, Builder, Dims, Index};
use super::page::{number_bits, take_differences, take_levels, take_runs, take_split};
use super::write::binding;
use super::{Column, GAPS_SCHEMA, GapData, MAX_ROWS, SAMPLES_SCHEMA, damaged, type_of};
use crate::damage::{Damage, StoreError, io_error};
use crate::framing::bytes::Input;

/// Most row groups of a file.
const MAX_GROUPS: usize = 1 << 15;

pub(super) struct Source {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    pub(super) binding: Binding,
}

/// A page that is unpacked.
struct Data {
    bytes: Bytes,
    encoding: Encoding,
}

/// Values of a column of which some are missing.
pub(super) struct Sparse {
    values: Vec<u64>,
    /// First row, rows, and the place of the first value: of those that are there.
    there: Vec<(usize, usize, usize)>,
}

/// Times and numbers of a row group.
pub(super) struct Columns {
    /// When values were acquired.
    pub(super) times: Vec<u64>,
    integers: Sparse,
    floats: Sparse,
    words: Sparse,
}

/// Runs the library.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Damage> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(_)) => Err(Damage::Wrong("its Parquet")),
        Err(_) => Err(Damage::Wrong("its Parquet, which the library does not survive")),
    }
}

impl Source {
    /// Opens a file of samples.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_as(path, &SAMPLES_SCHEMA)
    }

    /// The same of a file that is open.
    pub(super) fn of_samples(file: File, path: &Path) -> Result<Self, StoreError> {
        Self::of(file, path, &SAMPLES_SCHEMA)
    }

    fn open_as(path: &Path, schema: &SchemaDescPtr) -> Result<Self, StoreError> {
        Self::of(File::open(path).map_err(io_error("open", path))?, path, schema)
    }

    fn of(file: File, path: &Path, schema: &SchemaDescPtr) -> Result<Self, StoreError> {
        let binding = binding(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                damaged(path, Damage::Wrong("its end"))
            }
            _ => io_error("read", path)(error),
        })?;
        let reader = guarded(|| SerializedFileReader::new(file)).map_err(|damage| damaged(path, damage))?;
        let source = Self { path: path.to_owned(), reader, binding };
        let metadata = source.reader.metadata();
        let is_ours = metadata.file_metadata().schema().get_fields() == schema.root_schema().get_fields();
        if !is_ours || metadata.num_row_groups() > MAX_GROUPS {
            return Err(source.damaged(Damage::Wrong("its schema")));
        }
        Ok(source)
    }

    fn damaged(&self, damage: Damage) -> StoreError {
        damaged(&self.path, damage)
    }

    pub(super) fn groups(&self) -> usize {
        self.reader.metadata().num_row_groups()
    }

    /// Where a row group begins, and its bytes.
    pub(super) fn place(&self, group: usize) -> (u64, u64) {
        let group = self.reader.metadata().row_group(group);
        // Of a hostile footer: numbers that are none.
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let starts = group.columns().iter().map(|column| {
            let first = column.data_page_offset();
            number(column.dictionary_page_offset().map_or(first, |at| at.min(first)))
        });
        (starts.min().unwrap_or(0), number(group.compressed_size()))
    }

    /// Reads all of a row group: every page against its checksum, every number and name. Returns its rows.
    pub(super) fn check_group(&self, group: usize, builder: &mut Builder) -> Result<u64, Damage> {
        let rows = self.rows(group)?;
        let columns = self.columns_of(group)?;
        columns.words(0, rows, None)?;
        self.index_group(group, builder)?;
        for column in [Column::Low, Column::High] {
            self.pages(group, column as usize)?;
        }
        Ok(rows as u64)
    }

    fn rows(&self, group: usize) -> Result<usize, Damage> {
        if group >= self.groups() {
            return Err(Damage::Wrong("the number of a row group"));
        }
        let rows = self.reader.metadata().row_group(group).num_rows();
        usize::try_from(rows).ok().filter(|rows| *rows <= MAX_ROWS).ok_or(Damage::Wrong("the rows of a row group"))
    }

    /// The pages of a column chunk: perhaps a dictionary with so many entries, and the data.
    fn pages(&self, group: usize, column: usize) -> Result<(Option<(Bytes, usize)>, Data), Damage> {
        let rows = self.rows(group)?;
        let pages = guarded(|| {
            let group = self.reader.get_row_group(group)?;
            let mut pages = group.get_column_page_reader(column)?;
            Ok([pages.get_next_page()?, pages.get_next_page()?])
        })?;
        let [mut first, mut second] = pages;
        let mut dictionary = None;
        if let Some(Page::DictionaryPage { buf, num_values, encoding: Encoding::PLAIN, .. }) = &first {
            dictionary = Some((buf.clone(), *num_values as usize));
            first = second.take();
        }
        match (first, second) {
            (Some(Page::DataPage { buf, num_values, encoding, .. }), None) if num_values as usize == rows => {
                Ok((dictionary, Data { bytes: buf, encoding }))
            }
            _ => Err(Damage::Wrong("the pages of a column")),
        }
    }

    fn times(&self, group: usize, column: usize) -> Result<Vec<u64>, Damage> {
        let (_, data) = self.pages(group, column)?;
        let mut input = Input(&data.bytes);
        expect(data.encoding == Encoding::DELTA_BINARY_PACKED)?;
        let times = take_differences(&mut input, self.rows(group)?)?;
        expect(input.0.is_empty())?;
        Ok(times)
    }

    fn sparse(&self, group: usize, column: Column) -> Result<Sparse, Damage> {
        let (_, data) = self.pages(group, column as usize)?;
        let mut input = Input(&data.bytes);
        let levels = take_levels(&mut input, self.rows(group)?)?;
        let (mut there, mut row, mut place) = (Vec::new(), 0, 0);
        for (is_there, rows) in levels {
            if is_there {
                there.push((row, rows, place));
                place += rows;
            }
            row += rows;
        }
        let values = match data.encoding {
            Encoding::DELTA_BINARY_PACKED => take_differences(&mut input, place)?,
            Encoding::BYTE_STREAM_SPLIT => take_split(&mut input, place)?,
            Encoding::PLAIN if place == 0 => Vec::new(),
            _ => return Err(Damage::Wrong("the encoding of numbers")),
        };
        expect(input.0.is_empty())?;
        Ok(Sparse { values, there })
    }

    /// Times and numbers of a row group.
    pub(super) fn columns(&self, group: u32) -> Result<Columns, StoreError> {
        self.columns_of(group as usize).map_err(|damage| self.damaged(damage))
    }

    fn columns_of(&self, group: usize) -> Result<Columns, Damage> {
        let mut times = self.times(group, Column::Time as usize)?;
        let offsets = self.times(group, Column::Offset as usize)?;
        times.iter_mut().zip(offsets).for_each(|(time, offset)| *time = time.wrapping_add(offset));
        Ok(Columns {
            times,
            integers: self.sparse(group, Column::IntValue)?,
            floats: self.sparse(group, Column::FloatValue)?,
            words: self.sparse(group, Column::Word)?,
        })
    }

    /// Entries of a dictionary by number, and the runs of them.
    fn numbered<T>(
        &self,
        group: usize,
        column: usize,
        take: impl Fn(&mut Input) -> Result<T, Damage>,
    ) -> Result<Runs<T>, Damage> {
        let (dictionary, data) = self.pages(group, column)?;
        let (entries, count) = dictionary.ok_or(Damage::Wrong("a dictionary"))?;
        let mut entries = Input(&entries);
        expect(data.encoding == Encoding::RLE_DICTIONARY && count <= entries.0.len())?;
        let values = (0..count).map(|_| take(&mut entries)).collect::<Result<Vec<T>, _>>()?;
        let mut input = Input(&data.bytes);
        expect(entries.0.is_empty() && input.byte()? == number_bits(count))?;
        let runs = take_runs(&mut input, number_bits(count), self.rows(group)?)?;
        expect(input.0.is_empty() && runs.iter().all(|(number, _)| (*number as usize) < count))?;
        Ok(Runs { values, runs, at: 0 })
    }

    fn texts(&self, group: usize, column: usize) -> Result<Runs<Arc<str>>, Damage> {
        let take = |input: &mut Input| {
            let text = std::str::from_utf8(input.sized()?).map_err(|_| Damage::Wrong("a text"))?;
            Ok(Arc::from(text))
        };
        self.numbered(group, column, take)
    }

    fn constants(&self, group: usize, column: Column) -> Result<Runs<f64>, Damage> {
        let take = |input: &mut Input| input.word().map(f64::from_bits);
        self.numbered(group, column as usize, take)
    }

    /// Makes the index of the file again: of its columns only those that name a series are read.
    pub(super) fn index(&self) -> Result<Index, StoreError> {
        let mut builder = Builder::default();
        (0..self.groups())
            .try_for_each(|group| self.index_group(group, &mut builder))
            .map_err(|damage| self.damaged(damage))?;
        Ok(builder.finish())
    }

    fn index_group(&self, group: usize, builder: &mut Builder) -> Result<(), Damage> {
        let texts = |column: Column| self.texts(group, column as usize);
        let (mut metrics, mut labels) = (texts(Column::Metric)?, texts(Column::Labels)?);
        let (mut instances, mut units) = (texts(Column::Instance)?, texts(Column::Unit)?);
        let (mut types, mut forms) = (texts(Column::Type)?, texts(Column::Form)?);
        let mut divisors = self.constants(group, Column::Divisor)?;
        let mut multipliers = self.constants(group, Column::Multiplier)?;
        let (mut row, rows) = (0, self.rows(group)?);
        while row < rows {
            let all = [&metrics, &labels, &instances, &units, &types, &forms];
            let texts = all.iter().map(|runs| runs.left()).min().unwrap_or(0);
            let count = texts.min(divisors.left()).min(multipliers.left());
            expect(count > 0)?;
            let coding = Coding::parse(&forms.take(count)?)?;
            let metric = metrics.take(count)?;
            let name = metric.strip_suffix(coding.suffix()).ok_or(Damage::Wrong("the name of a histogram"))?;
            let dims = Dims {
                name: name.into(),
                labels: labels.take(count)?,
                instance: instances.take(count)?,
                unit: units.take(count)?,
                metric: type_of(&types.take(count)?)?,
                coding,
                divisor: divisors.take(count)?,
                multiplier: multipliers.take(count)?,
            };
            let [number, first, rows] = [group, row, count]
                .map(|value| u32::try_from(value).map_err(|_| Damage::Wrong("the rows of a row group")));
            builder.add(&dims, number?, first?, rows?);
            row += count;
        }
        Ok(())
    }

    /// The gaps of a file of gaps.
    pub(super) fn gaps(path: &Path) -> Result<Vec<GapData>, StoreError> {
        let source = Self::open_as(path, &GAPS_SCHEMA)?;
        (0..source.groups()).try_fold(Vec::new(), |mut gaps, group| {
            gaps.extend(source.gap_group(group).map_err(|damage| source.damaged(damage))?);
            Ok(gaps)
        })
    }

    fn gap_group(&self, group: usize) -> Result<Vec<GapData>, Damage> {
        let (mut instances, mut regions) = (self.texts(group, 0)?, self.texts(group, 1)?);
        let (from, to) = (self.times(group, 2)?, self.times(group, 3)?);
        let mut reasons = self.texts(group, 4)?;
        let gap = |(from_ns, to_ns)| {
            let text = |of: &mut Runs<Arc<str>>| of.take(1).map(|text| text.as_ref().to_owned());
            let (instance, region) = (text(&mut instances)?, text(&mut regions)?);
            Ok(GapData { instance, region, from_ns, to_ns, reason: text(&mut reasons)? })
        };
        from.into_iter().zip(to).map(gap).collect()
    }
}

fn expect(is_so: bool) -> Result<(), Damage> {
    if is_so { Ok(()) } else { Err(Damage::Wrong("the bytes of a page")) }
}

/// Runs of values, taken from the front.
struct Runs<T> {
    values: Vec<T>,
    runs: Vec<(u32, usize)>,
    at: usize,
}

impl<T: Clone> Runs<T> {
    /// Rows of the first.
    fn left(&self) -> usize {
        self.runs.get(self.at).map_or(0, |(_, rows)| *rows)
    }

    /// So many rows of the first.
    fn take(&mut self, rows: usize) -> Result<T, Damage> {
        let (number, left) = self.runs.get_mut(self.at).ok_or(Damage::Wrong("a run"))?;
        let value = self.values.get(*number as usize).ok_or(Damage::Wrong("a run"))?.clone();
        *left = left.checked_sub(rows).ok_or(Damage::Wrong("a run"))?;
        self.at += usize::from(*left == 0);
        Ok(value)
    }
}

impl Sparse {
    /// Hands over the values of these rows: the first one's place in the rows, and values.
    fn each(&self, first: usize, rows: usize, mut give: impl FnMut(usize, &[u64])) -> usize {
        let (end, mut given) = (first + rows, 0);
        let start = self.there.partition_point(|(row, rows, _)| row + rows <= first);
        for (row, rows, place) in self.there[start..].iter().take_while(|(row, ..)| *row < end) {
            let (from, to) = (first.max(*row), end.min(row + rows));
            give(from - first, &self.values[place + from - row..place + to - row]);
            given += to - from;
        }
        given
    }
}

impl Columns {
    /// Words of these rows; `decimal`: what whole numbers are to be divided by for floats.
    pub(super) fn words(&self, first: usize, rows: usize, decimal: Option<f64>) -> Result<Vec<u64>, Damage> {
        if first + rows > self.times.len() {
            return Err(Damage::Wrong("the rows of a series"));
        }
        let mut words = vec![0; rows];
        let mut given = self.integers.each(first, rows, |at, values| match decimal {
            Some(power) => words[at..].iter_mut().zip(values).for_each(|(word, whole)| *word = of_whole(*whole, power)),
            None => words[at..at + values.len()].copy_from_slice(values),
        });
        given += self.floats.each(first, rows, |at, values| words[at..at + values.len()].copy_from_slice(values));
        // Where there is a word, the float is what it counts as.
        self.words.each(first, rows, |at, values| words[at..at + values.len()].copy_from_slice(values));
        if given == rows { Ok(words) } else { Err(Damage::Wrong("the numbers of a series")) }
    }
}
