// SPDX-License-Identifier: Apache-2.0
//! Columns to a chunk's bytes: what building, merging and rolling up have in common.

use super::list::List;
use super::{
    CONSTANT, Column, HEAD_BYTES, LONG, NUMBERED, PLANES, SUM, Shape, TABLE, TIME, VARIES, VERSION, statistics,
};
use crate::column;
use crate::damage::Damage;
use crate::types::{Kind, Line, TrackId};

const INTEGER: Kind = Kind::Integer { signed: false };

/// Values of a column.
pub(crate) enum Values<'a> {
    /// All rows have this one.
    Constant(u64),
    /// One for each row; they may be alike.
    Each(&'a [u64]),
}

/// Where columns come from. Each is asked for once, in their order.
pub(crate) trait Source {
    fn column(&mut self, number: usize) -> Result<Values<'_>, Damage>;
}

/// All that a chunk has beside its columns.
pub(crate) struct Contents<'a> {
    pub(crate) track: TrackId,
    pub(crate) shape: &'a Shape,
    /// Earliest and latest time.
    pub(crate) span_ns: (u64, u64),
    pub(crate) mark: u64,
    /// Of tables, ascending.
    pub(crate) lines: &'a [Line],
    /// Rows of each of them.
    pub(crate) runs: &'a [u32],
    pub(crate) times_ns: &'a [u64],
}

/// Each line once, with all rows of what comes one after the other.
pub(crate) fn runs(rows: impl Iterator<Item = (Line, u32)>) -> (Vec<Line>, Vec<u32>) {
    let (mut lines, mut runs) = (Vec::new(), Vec::<u32>::new());
    for (line, rows) in rows {
        match runs.last_mut().filter(|_| lines.last() == Some(&line)) {
            Some(run) => *run = run.saturating_add(rows),
            None => {
                lines.push(line);
                runs.push(rows);
            }
        }
    }
    (lines, runs)
}

/// The chunk's bytes.
///
/// # Errors
/// Those of the source.
pub(crate) fn write(contents: &Contents, source: &mut impl Source) -> Result<Vec<u8>, Damage> {
    let shape = contents.shape;
    let mut columns = Columns {
        planes: vec![0; PLANES * shape.columns.len().div_ceil(8)],
        ends: Vec::new(),
        constants: List::default(),
        statistics: List::default(),
        body: Vec::new(),
        since: 0,
    };
    for (number, column) in shape.columns.iter().enumerate() {
        columns.push(number, *column, contents, source.column(number)?);
    }
    let mut lines = Vec::new();
    if shape.is_table {
        let numbers: Vec<u64> = contents.lines.iter().map(|line| u64::from(line.0)).collect();
        column::encode(INTEGER, &numbers, &[], &mut lines);
        let rows: Vec<u64> = contents.runs.iter().map(|rows| u64::from(*rows)).collect();
        column::encode(INTEGER, &rows, &[], &mut lines);
    }
    let (times, is_numbered) = times(contents);
    let (constants, statistics) = (columns.constants.finish(), columns.statistics.finish());
    let is_long = columns.body.len() > usize::from(u16::MAX);
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags = flag(shape.is_table, TABLE) | flag(is_numbered, NUMBERED) | flag(is_long, LONG);

    let mut out = vec![0; HEAD_BYTES];
    out.extend(&columns.planes);
    for (end, sum) in &columns.ends {
        out.extend(&end.to_le_bytes()[..if is_long { 4 } else { 2 }]);
        out.extend(sum.to_le_bytes());
    }
    for section in [&lines, &times, &constants, &statistics] {
        out.extend(section);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let front_bytes = out.len();
    (out[0], out[1]) = (VERSION, flags);
    out[2..4].copy_from_slice(&count(contents.times_ns.len()).to_le_bytes()[..2]);
    for (at, number) in [
        (4, contents.track.0),
        (8, count(shape.columns.len())),
        (12, if shape.is_table { count(contents.lines.len()) } else { 1 }),
        (40, shape.bucket_s),
        (44, count(lines.len())),
        (48, count(times.len())),
        (52, count(constants.len())),
        (56, count(front_bytes)),
    ] {
        out[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    for (at, number) in [(16, contents.span_ns.0), (24, contents.span_ns.1), (32, contents.mark)] {
        out[at..at + 8].copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32c::crc32c_append(crc32c::crc32c(&out[..SUM]), &out[SUM + 4..]);
    out[SUM..SUM + 4].copy_from_slice(&sum.to_le_bytes());
    out.extend(columns.body);
    Ok(out)
}

fn count(number: usize) -> u32 {
    u32::try_from(number).expect("bounded by MAX_ROWS and MAX_COLUMNS")
}

/// What has been written of the columns.
struct Columns {
    planes: Vec<u8>,
    ends: Vec<(u32, u32)>,
    constants: List,
    statistics: List,
    body: Vec<u8>,
    /// First row in which the part has ever been acquired.
    since: usize,
}

impl Columns {
    fn push(&mut self, number: usize, column: Column, contents: &Contents, values: Values) {
        let values = match values {
            Values::Each(values) if values.iter().any(|value| *value != values[0]) => Values::Each(values),
            Values::Each(values) => Values::Constant(values[0]),
            constant @ Values::Constant(_) => constant,
        };
        let rows = contents.times_ns.len();
        if column == Column::Time && !contents.shape.is_table {
            self.since = match values {
                Values::Constant(0) => rows,
                Values::Constant(_) => 0,
                Values::Each(values) => values.iter().position(|time_ns| *time_ns != 0).unwrap_or(rows),
            };
        }
        for plane in (0..=TIME).filter(|plane| column.code() >> plane & 1 == 1) {
            self.set(plane, number);
        }
        let kind = column.kind();
        match values {
            Values::Constant(0) => {}
            Values::Constant(value) => {
                self.set(CONSTANT, number);
                statistics::put_word(kind, value, self.constants.next());
            }
            Values::Each(values) => {
                self.set(VARIES, number);
                let is_table = contents.shape.is_table;
                let known = statistics::Statistics::of(kind, &values[self.since..], is_table);
                statistics::put(kind, known, self.statistics.next());
                let start = self.body.len();
                column::encode(kind, values, contents.runs, &mut self.body);
                self.ends.push((count(self.body.len()), crc32c::crc32c(&self.body[start..])));
            }
        }
    }

    fn set(&mut self, plane: usize, column: usize) {
        let bytes = self.planes.len() / PLANES;
        self.planes[plane * bytes + column / 8] |= 1 << (column % 8);
    }
}

/// The times as bytes, and whether they stand there once each: many lines of a table have the same ones.
fn times(contents: &Contents) -> (Vec<u8>, bool) {
    let (times_ns, mut out) = (contents.times_ns, Vec::new());
    let mut different = if contents.shape.is_table { times_ns.to_vec() } else { Vec::new() };
    different.sort_unstable();
    different.dedup();
    if different.is_empty() || different.len() * 2 > times_ns.len() {
        column::encode(INTEGER, times_ns, contents.runs, &mut out);
        return (out, false);
    }
    let mut number = 0;
    let numbers: Vec<u64> = times_ns
        .iter()
        .map(|time_ns| {
            // Within a line it most often is the next one.
            if different.get(number + 1) == Some(time_ns) {
                number += 1;
            } else {
                number = different.partition_point(|other| other < time_ns);
            }
            number as u64
        })
        .collect();
    column::put_unsigned(different.len() as u64, &mut out);
    column::encode(INTEGER, &different, &[], &mut out);
    column::encode(INTEGER, &numbers, contents.runs, &mut out);
    (out, true)
}
