// SPDX-License-Identifier: Apache-2.0
//! Group `disk`: /proc/diskstats, the devices of node_exporter's default choice, a row each.

use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Field, Metric, Type};

use super::{METRICS, SECTOR_BYTES, Unit, is_left_out};
use crate::procfs::{Source, number, words};
use crate::sampled::rows::{self, Rows};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

const KEY_WORDS: usize = 4;
/// Rows are for twice the disks, at least so many and at most so many.
const ROWS: std::ops::RangeInclusive<usize> = 10..=160;

/// Older kernels have the first 11 columns (since 4.18: 15, since 5.5: 17).
const FEWEST_COLUMNS: usize = 11;

/// The field of a column, without a slot.
fn field(column: usize) -> Field {
    let (name, unit, help) = METRICS[column];
    let metric = if unit == Unit::Now { Metric::Gauge } else { Metric::Counter };
    let mut field = Field::new(name, metric, Type::U64, 0);
    let (unit, scale) = match unit {
        Unit::SectorBytes => ("bytes", SECTOR_BYTES),
        Unit::Time | Unit::Busy => ("seconds", 1e-3),
        Unit::Count | Unit::Sectors | Unit::Now => ("", 1.0),
    };
    (field.unit, field.scale, field.help) = (unit.into(), scale, help.into());
    field
}

struct Disk {
    source: Source,
    /// Columns that are served, in the order of value slots.
    columns: Vec<usize>,
    rows: Rows,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let source = Source::open("/proc/diskstats")?;
    let (mut disks, mut most) = (0, 0);
    timed(context, &["diskstats"], |context| {
        source.each_line(context.buffer, |line| {
            if let Some((_, _, count)) = parse(line) {
                (disks, most) = (disks + 1, most.max(count));
            }
        })
    })?;
    let columns: Vec<usize> = (0..most).filter(|column| ask.is_left(&field(*column))).collect();
    let fields = columns.iter().copied().map(field).collect();
    let groups = vec![rows::group("device", KEY_WORDS, fields, (disks * 2).clamp(*ROWS.start(), *ROWS.end()))];
    let groups = if columns.is_empty() { Vec::new() } else { groups };
    Ok(Made { groups, sampler: Box::new(Disk { source, columns, rows: Rows::new(KEY_WORDS) }) })
}

/// A line's device and columns, and how many it has; `None` for a device of no interest.
pub(super) fn parse(line: &[u8]) -> Option<(&str, [u64; METRICS.len()], usize)> {
    let mut words = words(line).skip(2);
    let device = std::str::from_utf8(words.next()?).ok().filter(|device| !is_left_out(device))?;
    let mut columns = [0; METRICS.len()];
    let mut count = 0;
    for (column, word) in columns.iter_mut().zip(words) {
        *column = number(word)?;
        count += 1;
    }
    (count >= FEWEST_COLUMNS).then_some((device, columns, count))
}

impl Sampler for Disk {
    fn begin(&mut self, place: &Place, schema: &Schema, now_ns: u64) {
        self.rows.begin(place, 0, &schema.groups[0], now_ns);
    }

    fn sample(&mut self, _: &Place, context: &mut Context) -> io::Result<()> {
        let Self { source, columns, rows } = self;
        timed(context, &["diskstats"], |context| {
            let Context { now_ns, buffer, loss, .. } = context;
            source.each_line(buffer, |line| {
                if let Some((device, counters, _)) = parse(line) {
                    rows.put(device, *now_ns, loss, columns.iter().map(|column| counters[*column]));
                }
            })?;
            rows.end(*now_ns);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let (device, columns, count) = parse(b" 254       0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17").unwrap();
        assert_eq!((device, columns[0], columns[16], count), ("vda", 1, 17, 17));
        assert_eq!(parse(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11").map(|(_, _, count)| count), Some(11));
        // More columns than we know are of a later kernel.
        assert_eq!(
            parse(b"8 0 sda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19").map(|(_, _, count)| count),
            Some(17)
        );
        for line in [
            "",
            "8 0",
            "8 0 sda",
            "8 0 sda 1 2 3",
            "8 0 sda1 1 2 3 4 5 6 7 8 9 10 11",
            "8 0 sda 1 2 3 4 5 6 7 8 9 10 x",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
