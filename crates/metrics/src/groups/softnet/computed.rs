// SPDX-License-Identifier: Apache-2.0
//! Group softnet: `softnet.bpf.c`. What /proc/net/softnet_stat has, and how long each CPU's backlog is now.

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind};

use super::procfs::{BACKLOG, COLLISIONS_COLUMN, COLUMNS};
use crate::collect::counterpart::{Counterpart, Reading};
use crate::collect::intf::CPUS_PER_BLOCK;
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{MAX_CPUS, push_for_all};
use crate::discover::Discovery;
use crate::sampled::metric::Definition;

/// How long the backlog is now.
static LENGTH: Definition =
    Definition::gauge("onlooker_softnet_backlog_length", "Packets that wait in the CPU's backlog.");

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/softnet.bpf.o"));

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
    Ok(Prepared { image, schema: schema(cpus), counterpart: Counterpart::Samples(adjust) })
}

/// In the order of the program's slots.
fn metrics() -> impl Iterator<Item = &'static Definition> {
    let columns = COLUMNS.iter().filter(|(column, _)| *column != COLLISIONS_COLUMN);
    columns.map(|(_, definition)| definition).chain([&LENGTH])
}

fn schema(cpus: u32) -> Schema {
    let mut fields = Vec::new();
    for (slot, definition) in (0..).zip(metrics()) {
        push_for_all(&mut fields, Field { slot, ..definition.field() }, cpus);
    }
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::SOFTNET.region().into(), groups: vec![group] }
}

/// Samples have the backlog's length under node_exporter's name.
fn adjust(reading: &mut Reading) {
    let ours = |series: &str| Some(format!("{}{}", LENGTH.name, series.strip_prefix(BACKLOG.name)?));
    let lengths: Vec<_> = reading.iter().filter_map(|(series, procfs)| Some((ours(series)?, *procfs))).collect();
    reading.extend(lengths);
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
