// SPDX-License-Identifier: Apache-2.0
//! Group softnet: `softnet.bpf.c`. What /proc/net/softnet_stat has, and how long each CPU's backlog is now.

use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Type};

use crate::collect::intf::CPUS_PER_BLOCK;
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{MAX_CPUS, push_for_all};
use crate::collect::procfs::{Procfs, Reading, series};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softnet.bpf.o"));

/// In the order of the program's slots: name, what it is, column of /proc/net/softnet_stat, help.
const METRICS: [(&str, Metric, usize, &str); 6] = [
    ("node_softnet_processed_total", Metric::Counter, 0, "Number of processed packets"),
    ("node_softnet_dropped_total", Metric::Counter, 1, "Number of dropped packets"),
    ("node_softnet_times_squeezed_total", Metric::Counter, 2, "Number of times processing packets ran out of quota"),
    ("node_softnet_received_rps_total", Metric::Counter, 9, "Number of times cpu woken up received_rps"),
    ("node_softnet_flow_limit_count_total", Metric::Counter, 10, "Number of times flow limit has been reached"),
    ("onlooker_softnet_backlog_length", Metric::Gauge, 11, "Packets that wait in the CPU's backlog."),
];

/// Finds each CPU's `softnet_data`.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let cpus = discovery.cpu_count()?;
    let cpus = cpus.min(MAX_CPUS);
    let places = discovery.cpus(cpus)?;
    let offset = discovery.percpu("softnet_data")?;
    let elements = places.iter().map(|place| place.base.wrapping_add(offset).to_le_bytes().to_vec());
    let contents = vec![Content::array("backlogs", elements)];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema: schema(cpus), procfs: Box::new(reading) })
}

fn schema(cpus: u32) -> Schema {
    let mut fields = Vec::new();
    for (slot, (name, metric, _, help)) in (0..).zip(METRICS) {
        let mut field = Field::new(name, metric, Type::U64, slot);
        field.help = help.into();
        push_for_all(&mut fields, field, cpus);
    }
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::SOFTNET.region().into(), groups: vec![group] }
}

/// /proc/net/softnet_stat: hexadecimal columns, a line a CPU that is online, whose number is the 13th column.
fn reading() -> io::Result<Reading> {
    let text = fs::read_to_string("/proc/net/softnet_stat")?;
    let mut reading = Reading::new();
    for (line, at) in text.lines().zip(0u32..) {
        let columns: Vec<u32> =
            line.split_ascii_whitespace().map_while(|word| u32::from_str_radix(word, 16).ok()).collect();
        let cpu = columns.get(12).copied().unwrap_or(at).to_string();
        for (metric, _, column, _) in METRICS {
            if let Some(value) = columns.get(column) {
                let value = Procfs { value: f64::from(*value), rounding: 0.0 };
                reading.insert(series(metric, [("cpu", cpu.as_str())]), value);
            }
        }
    }
    Ok(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema() {
        for cpus in (1..20).chain([64, MAX_CPUS]) {
            schema(cpus).check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
        }
    }
}
