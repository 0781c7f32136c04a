// SPDX-License-Identifier: Apache-2.0
//! Column chunks of a row group: a dictionary page where runs have texts or constants, and one page of data.
//!
//! Each chunk is one page, however many rows it has: what Zstandard has seen of other series makes the next one small.

use std::collections::HashMap;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter as _};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use zstd::bulk::Compressor;

use super::page::{number_bits, put_differences, put_levels, put_runs, put_split, put_times};

const LEVEL: i32 = 3;
/// Names in statistics are no longer than this.
const MAX_STATISTIC_BYTES: usize = 64;

/// Values of a column of which some are missing.
#[derive(Default)]
pub(super) struct Sparse {
    pub(super) values: Vec<u64>,
    levels: Vec<(bool, usize)>,
}

impl Sparse {
    pub(super) fn extend(&mut self, values: impl ExactSizeIterator<Item = u64>) {
        self.level(true, values.len());
        self.values.extend(values);
    }

    pub(super) fn skip(&mut self, rows: usize) {
        self.level(false, rows);
    }

    fn level(&mut self, is_there: bool, rows: usize) {
        match self.levels.last_mut() {
            Some((last, count)) if *last == is_there => *count += rows,
            _ if rows == 0 => {}
            _ => self.levels.push((is_there, rows)),
        }
    }

    fn rows(&self) -> usize {
        self.levels.iter().map(|(_, rows)| rows).sum()
    }
}

/// The three columns that make words.
#[derive(Default)]
pub(super) struct Numbers {
    pub(super) integers: Sparse,
    pub(super) floats: Sparse,
    pub(super) words: Sparse,
}

impl Numbers {
    pub(super) fn clear(&mut self) {
        for column in [&mut self.integers, &mut self.floats, &mut self.words] {
            column.values.clear();
            column.levels.clear();
        }
    }
}

/// A column chunk as it is to be appended.
pub(super) struct Chunk {
    pub(super) bytes: Bytes,
    pub(super) close: ColumnCloseResult,
}

/// What a chunk is made of.
struct Parts<'a> {
    rows: usize,
    /// Its bytes and how many entries they are.
    dictionary: Option<(&'a [u8], usize)>,
    data: &'a [u8],
    encoding: Encoding,
    statistics: Statistics,
}

/// Makes the chunks of row groups.
pub(super) struct Group {
    packer: Compressor<'static>,
    scratch: Vec<u8>,
}

impl Group {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut packer = Compressor::new(LEVEL)?;
        packer.include_checksum(true)?;
        Ok(Self { packer, scratch: Vec::new() })
    }

    /// Times; `are_shared`: series have them in common.
    pub(super) fn times(
        &mut self,
        column: &ColumnDescPtr,
        times: &[u64],
        are_shared: bool,
    ) -> Result<Chunk, ParquetError> {
        let ends = |time: Option<&u64>| time.map(|time| time.cast_signed());
        let statistics = Statistics::int64(ends(times.iter().min()), ends(times.iter().max()), None, Some(0), false);
        self.all(column, times, are_shared, statistics)
    }

    /// How much later values were acquired than said, i64.
    pub(super) fn offsets(
        &mut self,
        column: &ColumnDescPtr,
        offsets: &[u64],
        are_shared: bool,
    ) -> Result<Chunk, ParquetError> {
        self.all(column, offsets, are_shared, Statistics::int64(None, None, None, Some(0), false))
    }

    fn all(
        &mut self,
        column: &ColumnDescPtr,
        values: &[u64],
        are_shared: bool,
        statistics: Statistics,
    ) -> Result<Chunk, ParquetError> {
        let mut data = std::mem::take(&mut self.scratch);
        data.clear();
        if are_shared {
            put_times(values, &mut data)
        } else {
            put_differences(values, &mut data)
        }
        let encoding = Encoding::DELTA_BINARY_PACKED;
        let chunk =
            self.chunk(column, &Parts { rows: values.len(), dictionary: None, data: &data, encoding, statistics });
        self.scratch = data;
        chunk
    }

    /// Whole numbers, i64 or u64 as the schema says.
    pub(super) fn integers(
        &mut self,
        column: &ColumnDescPtr,
        of: &Sparse,
        are_signed: bool,
    ) -> Result<Chunk, ParquetError> {
        let values = of.values.iter().map(|value| value.cast_signed());
        // Statistics of u64 are ordered as such; nobody looks for these.
        let (least, most) = if are_signed { (values.clone().min(), values.max()) } else { (None, None) };
        let nulls = (of.rows() - of.values.len()) as u64;
        let statistics = Statistics::int64(least, most, None, Some(nulls), false);
        self.sparse(column, of, Encoding::DELTA_BINARY_PACKED, put_differences, statistics)
    }

    pub(super) fn floats(&mut self, column: &ColumnDescPtr, of: &Sparse) -> Result<Chunk, ParquetError> {
        let nulls = (of.rows() - of.values.len()) as u64;
        // None of values: there may be some that are no numbers.
        let statistics = Statistics::double(None, None, None, Some(nulls), false);
        self.sparse(column, of, Encoding::BYTE_STREAM_SPLIT, put_split, statistics)
    }

    fn sparse(
        &mut self,
        column: &ColumnDescPtr,
        of: &Sparse,
        encoding: Encoding,
        put: fn(&[u64], &mut Vec<u8>),
        statistics: Statistics,
    ) -> Result<Chunk, ParquetError> {
        let mut data = std::mem::take(&mut self.scratch);
        data.clear();
        put_levels(&of.levels, &mut data);
        let is_empty = of.values.is_empty();
        if !is_empty {
            put(&of.values, &mut data);
        }
        let encoding = if is_empty { Encoding::PLAIN } else { encoding };
        let chunk = self.chunk(column, &Parts { rows: of.rows(), dictionary: None, data: &data, encoding, statistics });
        self.scratch = data;
        chunk
    }

    /// Runs of texts.
    pub(super) fn texts<T: AsRef<str>>(
        &mut self,
        column: &ColumnDescPtr,
        runs: impl Iterator<Item = (T, usize)>,
    ) -> Result<Chunk, ParquetError> {
        let runs: Vec<(T, usize)> = runs.collect();
        let (mut dictionary, mut known) = (Vec::new(), HashMap::new());
        let numbered = runs.iter().map(|(text, rows)| {
            let (text, next) = (text.as_ref(), known.len());
            let number = *known.entry(text).or_insert_with(|| {
                dictionary.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                dictionary.extend(text.as_bytes());
                next
            });
            (number, *rows)
        });
        let numbered = merged(numbered);
        let end = |text: Option<&&str>| {
            text.filter(|text| text.len() <= MAX_STATISTIC_BYTES).map(|text| ByteArray::from(*text))
        };
        // Both or none: half of a range says nothing to some readers.
        let ends = end(known.keys().min()).zip(end(known.keys().max())).unzip();
        let statistics = Statistics::byte_array(ends.0, ends.1, None, Some(0), false);
        self.numbered(column, &numbered, None, (&dictionary, known.len()), statistics)
    }

    /// Runs of numbers that are no samples.
    pub(super) fn constants(
        &mut self,
        column: &ColumnDescPtr,
        runs: impl Iterator<Item = (Option<f64>, usize)>,
    ) -> Result<Chunk, ParquetError> {
        let (mut dictionary, mut known, mut levels) = (Vec::new(), HashMap::new(), Sparse::default());
        let mut numbered = Vec::new();
        for (value, rows) in runs {
            levels.level(value.is_some(), rows);
            let Some(value) = value else { continue };
            let next = known.len();
            let number = *known.entry(value.to_bits()).or_insert_with(|| {
                dictionary.extend(value.to_le_bytes());
                next
            });
            numbered.push((number, rows));
        }
        let nulls = levels.levels.iter().filter(|(is_there, _)| !is_there).map(|(_, rows)| *rows as u64).sum();
        let statistics = Statistics::double(None, None, None, Some(nulls), false);
        let levels = (column.max_def_level() > 0).then_some(&levels.levels[..]);
        self.numbered(column, &merged(numbered.into_iter()), levels, (&dictionary, known.len()), statistics)
    }

    fn numbered(
        &mut self,
        column: &ColumnDescPtr,
        runs: &[(u32, usize)],
        levels: Option<&[(bool, usize)]>,
        dictionary: (&[u8], usize),
        statistics: Statistics,
    ) -> Result<Chunk, ParquetError> {
        let mut data = Vec::new();
        let rows = match levels {
            Some(levels) => {
                put_levels(levels, &mut data);
                levels.iter().map(|(_, rows)| rows).sum()
            }
            None => runs.iter().map(|(_, rows)| rows).sum(),
        };
        if runs.is_empty() {
            let encoding = Encoding::PLAIN;
            return self.chunk(column, &Parts { rows, dictionary: None, data: &data, encoding, statistics });
        }
        let bits = number_bits(dictionary.1);
        data.push(bits);
        put_runs(bits, runs.iter().copied(), &mut data);
        let encoding = Encoding::RLE_DICTIONARY;
        self.chunk(column, &Parts { rows, dictionary: Some(dictionary), data: &data, encoding, statistics })
    }

    fn chunk(&mut self, column: &ColumnDescPtr, parts: &Parts) -> Result<Chunk, ParquetError> {
        let mut sink = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut sink);
        let (mut data_at, mut unpacked) = (0, 0);
        let mut encodings = vec![Encoding::RLE, parts.encoding];
        if let Some((entries, count)) = parts.dictionary {
            let page = Page::DictionaryPage {
                buf: self.packer.compress(entries)?.into(),
                num_values: u32::try_from(count)?,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            };
            let spec = pages.write_page(CompressedPage::new(page, entries.len()))?;
            (data_at, unpacked) = (spec.bytes_written, spec.uncompressed_size);
            encodings.push(Encoding::PLAIN);
        }
        let page = Page::DataPage {
            buf: self.packer.compress(parts.data)?.into(),
            num_values: u32::try_from(parts.rows)?,
            encoding: parts.encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        unpacked += pages.write_page(CompressedPage::new(page, parts.data.len()))?.uncompressed_size;
        let bytes = Bytes::from(sink.into_inner()?);
        let metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(LEVEL)?))
            .set_encodings(encodings)
            .set_num_values(i64::try_from(parts.rows)?)
            .set_total_compressed_size(i64::try_from(bytes.len())?)
            .set_total_uncompressed_size(i64::try_from(unpacked)?)
            .set_dictionary_page_offset(parts.dictionary.map(|_| 0))
            .set_data_page_offset(i64::try_from(data_at)?)
            .set_statistics(parts.statistics.clone())
            .build()?;
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: parts.rows as u64,
            metadata,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        Ok(Chunk { bytes, close })
    }
}

/// Neighbours of one number as one.
fn merged(runs: impl Iterator<Item = (usize, usize)>) -> Vec<(u32, usize)> {
    let mut merged: Vec<(u32, usize)> = Vec::new();
    for (number, rows) in runs {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        match merged.last_mut() {
            Some((last, count)) if *last == number => *count += rows,
            _ => merged.push((number, rows)),
        }
    }
    merged
}
