// SPDX-License-Identifier: Apache-2.0
//! Group network: `network.bpf.c`. One table for each eight CPUs, with a row for each device that counts per CPU in a way that is known here.

use std::fs;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Sum, Type};
use onlooker_region::table::{KeyPart, KeyType};

use super::facts::{DEVICE_CPUS, ROW_BYTES, WAY_LSTATS, WAY_TSTATS, WAY_VETH, namespace_bytes};
use super::procfs::{DEVICES, netdev};
use crate::collect::counterpart::Counterpart;
use crate::collect::intf::{ROWS_PER_BLOCK, TableFacts};
use crate::collect::object::{Content, Image, Prepared};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/network.bpf.o"));
/// Fewest rows.
const MIN_DEVICES: u32 = 24;
/// Most rows.
const MAX_DEVICES: u32 = 1024;
/// IFNAMSIZ.
const NAME_BYTES: u32 = 16;

/// Functions that make a device's statistics, and how those count that use them.
const WAYS: [(&str, u32); 3] =
    [("loopback_get_stats64", WAY_LSTATS), ("dev_get_tstats64", WAY_TSTATS), ("veth_get_stats64", WAY_VETH)];

/// Beyond, the schema of all columns would be longer than MAX_SCHEMA_BYTES: drops are sampled then.
const MAX_CPUS_WITH_DROPS: u32 = 376;

/// In the order of the program's columns: name, unit, help.
const METRICS: [(&str, &str, &str); 6] = [
    ("node_network_receive_drop_total", "", "Network device statistic receive_drop."),
    ("node_network_transmit_drop_total", "", "Network device statistic transmit_drop."),
    ("node_network_receive_bytes_total", "bytes", "Network device statistic receive_bytes."),
    ("node_network_receive_packets_total", "", "Network device statistic receive_packets."),
    ("node_network_transmit_bytes_total", "bytes", "Network device statistic transmit_bytes."),
    ("node_network_transmit_packets_total", "", "Network device statistic transmit_packets."),
];

/// Devices of the calling thread's network namespace.
///
/// # Errors
/// Why that is not known.
pub(super) fn present() -> Result<Vec<String>, String> {
    let text = fs::read(DEVICES).map_err(|error| format!("{DEVICES}: {error}"))?;
    let lines = text.split(|byte| *byte == b'\n').filter_map(netdev);
    Ok(lines.map(|(name, _)| name.to_owned()).collect())
}

/// Finds the namespace and each CPU's offset; makes room for `devices`, and for twice those that are there.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery, devices: u32) -> Result<Prepared, String> {
    let present = u32::try_from(present()?.len()).unwrap_or(u32::MAX);
    let capacity = devices.max(present.saturating_mul(2)).clamp(MIN_DEVICES, MAX_DEVICES);
    discovery.note_limit("network devices", present, MAX_DEVICES);
    let cpus = discovery.cpu_count()?;
    let cpus = cpus.min(crate::collect::percpu::MAX_CPUS);
    let net = discovery.net()?;
    let offsets = discovery.percpu_offsets(cpus)?;
    let mut ways = Vec::new();
    for (function, way) in WAYS {
        match discovery.function(function) {
            Some(address) => ways.push((address.to_le_bytes().to_vec(), way.to_le_bytes().to_vec())),
            None => {
                discovery.note(function, Err("kallsyms does not list it: devices that use it have no row".to_owned()))
            }
        }
    }
    let (schema, tables) = tables(cpus, capacity);
    let contents = vec![
        Content::array("namespace", [namespace_bytes(net, capacity)]),
        Content::array("rows", (0..capacity).map(|_| vec![0; ROW_BYTES])),
        Content::array("tables", tables.iter().map(|facts| facts.to_bytes())),
        Content::array("offsets", offsets.iter().map(|offset| offset.to_le_bytes().to_vec())),
        Content { map: "ways", capacity: 8, elements: ways },
        Content::empty("row_of", capacity),
        Content::empty("free_rows", capacity),
    ];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema, counterpart: Counterpart::Samples(|_| ()) })
}

/// The schema, and what the programs need to know of each of its blocks.
fn tables(cpus: u32, capacity: u32) -> (Schema, Vec<TableFacts>) {
    let mut groups = Vec::new();
    let mut facts = Vec::new();
    for first_cpu in (0..cpus).step_by(DEVICE_CPUS as usize) {
        let count = (cpus - first_cpu).min(DEVICE_CPUS);
        // Of one CPU's counters 17 rows would fit a block, and it has 16 at most.
        let width = count.max(2);
        let kept = (0..).zip(METRICS).filter(|(_, (name, ..))| cpus <= MAX_CPUS_WITH_DROPS || !name.contains("_drop_"));
        let fields = kept.map(|(metric, (name, unit, help))| {
            let mut field = Field::new(name, Metric::Counter, Type::U64, metric * width);
            (field.unit, field.sum) = (unit.into(), Some(Sum::default()));
            if first_cpu == 0 {
                // Once is enough, and MAX_SCHEMA_BYTES is not far.
                field.help = help.into();
            }
            let values = (first_cpu..first_cpu + count).map(|cpu| cpu.to_string()).collect();
            field.array = Some(Array { label: "cpu".into(), count, stride: 1, values: Some(values) });
            field
        });
        let mut group = Group::new(Kind::Table, 1, fields.collect());
        group.acquisition = Acquisition::Computed;
        group.key = vec![KeyPart { name: "device".into(), kind: KeyType::Text, bytes: NAME_BYTES }];
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
            cpus: count,
        }));
        groups.push(group);
    }
    (Schema { name: super::Group::NETWORK.region().into(), groups }, facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema_of_small_blocks() {
        for cpus in (1..20).chain([64, 200, MAX_CPUS_WITH_DROPS, 512]) {
            let (schema, facts) = tables(cpus, 100);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks() as usize, facts.len());
            for group in &schema.groups {
                assert!(group.layout().unwrap().rows_per_block() <= 16, "{cpus} CPUs");
            }
            for table in &facts {
                assert!(table.rows >= 1 && table.rows * table.row_words <= 124, "{cpus} CPUs");
                assert!(3 + 5 * table.width + table.cpus == table.row_words, "{cpus} CPUs");
            }
            assert_eq!(facts.iter().filter(|table| table.first_row == 0).count(), cpus.div_ceil(8) as usize);
        }
    }
}
