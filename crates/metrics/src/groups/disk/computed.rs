// SPDX-License-Identifier: Apache-2.0
//! Group disk: `disk.bpf.c`. One table for each six CPUs, with a row for each block device that node_exporter shows by default.

use std::fs;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Sum, Type};
use onlooker_region::table::{KeyPart, KeyType};

use super::facts::{DISK_BYTES, DISK_CPUS, DISK_NAME_BYTES, disks_bytes};
use super::procfs::parse;
use super::{IN_FLIGHT, METRICS, SECTOR_BYTES, Unit};
use crate::collect::counterpart::{Counterpart, Reading, round};
use crate::collect::intf::{ROWS_PER_BLOCK, TableFacts};
use crate::collect::object::{Content, Image, Prepared};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/disk.bpf.o"));
/// Fewest rows, and most.
const DISKS: std::ops::RangeInclusive<u32> = 8..=256;

/// Why there is nothing of the group here.
pub(super) fn absence() -> Option<String> {
    match present() {
        Ok(names) if !names.is_empty() => None,
        Ok(_) => Some("/proc/diskstats has no disk that node_exporter would show".to_owned()),
        Err(reason) => Some(reason),
    }
}

/// Disks that there are.
///
/// # Errors
/// Why that is not known.
pub(super) fn present() -> Result<Vec<String>, String> {
    let text = fs::read("/proc/diskstats").map_err(|error| format!("/proc/diskstats: {error}"))?;
    let lines = text.split(|byte| *byte == b'\n').filter_map(parse);
    Ok(lines.map(|(name, ..)| name.to_owned()).collect())
}

/// Finds the list of block devices and each CPU's offset; makes room for twice the disks that are there.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let present = u32::try_from(present()?.len()).unwrap_or(u32::MAX);
    discovery.note_limit("disks", present, *DISKS.end());
    let capacity = present.saturating_mul(2).clamp(*DISKS.start(), *DISKS.end());
    let cpus = discovery.cpu_count()?;
    let cpus = cpus.min(crate::collect::percpu::MAX_CPUS);
    let list = discovery.block_devices()?;
    let offsets = discovery.percpu_offsets(cpus)?;
    // Until 6.13 disks with queues (blk-mq) count requests under way elsewhere, and this function walks them.
    let counts_now = !discovery.has_function("blk_mq_in_flight");
    if !counts_now {
        let reason = "this kernel counts requests under way in its queues, not per CPU".to_owned();
        discovery.note(IN_FLIGHT, Err(reason));
    }
    let (schema, tables) = tables(cpus, capacity, discovery.tick_ns()?, counts_now);
    schema.check().map_err(|error| format!("{cpus} CPUs are too many for one schema: {error}"))?;
    let contents = vec![
        Content::array("disks", [disks_bytes(list, capacity)]),
        Content::array("rows", (0..capacity).map(|_| vec![0; DISK_BYTES])),
        Content::array("tables", tables.iter().map(|facts| facts.to_bytes())),
        Content::array("offsets", offsets.iter().map(|offset| offset.to_le_bytes().to_vec())),
        Content::empty("row_of", capacity),
        Content::empty("free_rows", capacity),
    ];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema, counterpart: Counterpart::Samples(adjust) })
}

/// The schema, and what the programs need to know of each of its blocks.
fn tables(cpus: u32, capacity: u32, tick_ns: u64, counts_now: bool) -> (Schema, Vec<TableFacts>) {
    let mut groups = Vec::new();
    let mut facts = Vec::new();
    for first_cpu in (0..cpus).step_by(DISK_CPUS as usize) {
        let width = (cpus - first_cpu).min(DISK_CPUS);
        let kept = (0u32..).zip(METRICS).filter(|(_, (_, unit, _))| counts_now || *unit != Unit::Now);
        let fields = kept.map(|(column, (name, unit, help))| {
            let (metric, kind) =
                if unit == Unit::Now { (Metric::Gauge, Type::I64) } else { (Metric::Counter, Type::U64) };
            let mut field = Field::new(name, metric, kind, column * width);
            #[allow(clippy::cast_precision_loss, reason = "a tick is below 2^53 ns")]
            let (unit, scale, resolution_ns) = match unit {
                Unit::SectorBytes => ("bytes", SECTOR_BYTES, 0),
                // Disks without queues (zram, device mapper) time their requests in ticks.
                Unit::Time => ("seconds", 1e-9, tick_ns),
                Unit::Busy => ("seconds", tick_ns as f64 / 1e9, tick_ns),
                Unit::Count | Unit::Sectors | Unit::Now => ("", 1.0, 0),
            };
            (field.unit, field.scale, field.resolution_ns) = (unit.into(), scale, resolution_ns);
            field.sum = Some(Sum::default());
            if first_cpu == 0 {
                // Once is enough, and MAX_SCHEMA_BYTES is not far.
                field.help = help.into();
            }
            let values = (first_cpu..first_cpu + width).map(|cpu| cpu.to_string()).collect();
            field.array = Some(Array { label: "cpu".into(), count: width, stride: 1, values: Some(values) });
            field
        });
        let mut group = Group::new(Kind::Table, 1, fields.collect());
        group.acquisition = Acquisition::Computed;
        group.key = vec![KeyPart { name: "device".into(), kind: KeyType::Text, bytes: DISK_NAME_BYTES }];
        let (row_words, per_block) =
            group.layout().map_or((0, 1), |layout| (layout.row_words(), layout.rows_per_block()));
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let (row_words, rows) = (number(row_words), number(per_block).min(ROWS_PER_BLOCK));
        group.blocks = capacity.div_ceil(rows);
        facts.extend((0..group.blocks).map(|block| TableFacts {
            first_row: block * rows,
            rows,
            row_words,
            width,
            first_cpu,
            cpus: width,
        }));
        groups.push(group);
    }
    (Schema { name: super::Group::DISK.region().into(), groups }, facts)
}

/// Samples have times in whole ms.
fn adjust(reading: &mut Reading) {
    let times = METRICS.into_iter().filter(|(_, unit, _)| matches!(unit, Unit::Time | Unit::Busy));
    times.for_each(|(metric, ..)| round(reading, metric, 0.001));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema() {
        for cpus in (1..20).chain([64, 108]) {
            let (schema, facts) = tables(cpus, 20, 4_000_000, true);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks() as usize, facts.len());
            for table in &facts {
                assert!(table.rows >= 1 && table.rows * table.row_words <= 124, "{cpus} CPUs");
                assert_eq!(5 + 17 * table.width, table.row_words, "{cpus} CPUs");
            }
        }
        let (with, without) = (tables(2, 8, 1, true), tables(2, 8, 1, false));
        assert_eq!(with.0.groups[0].layout(), without.0.groups[0].layout());
    }
}
