// SPDX-License-Identifier: Apache-2.0
//! Group schedstat: `schedstat.bpf.c`. Only kernels with CONFIG_SCHEDSTATS keep these.

use std::fs;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind};

use super::FIELDS;
use crate::collect::counterpart::{Counterpart, Reading, round};
use crate::collect::intf::{CPUS_PER_BLOCK, address_bytes};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, push_for_all};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schedstat.bpf.o"));
const FILE: &str = "/proc/schedstat";

pub(super) fn absence() -> Option<String> {
    let error = fs::metadata(FILE).err()?;
    Some(format!("{FILE}: {error}: the kernel is built without CONFIG_SCHEDSTATS"))
}

/// Finds each CPU's run queue.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    discovery.offset("rq", &["rq_sched_info"])?;
    let places = cpus(discovery)?;
    let elements = places.iter().map(|place| address_bytes(place.runqueue));
    let contents = vec![Content::array("schedstat_cpus", elements)];
    let schema = schema(u32::try_from(places.len()).unwrap_or(u32::MAX));
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema, counterpart: Counterpart::Samples(adjust) })
}

/// Nanoseconds as a float of seconds.
fn adjust(reading: &mut Reading) {
    FIELDS.iter().for_each(|field| round(reading, field.name, field.scale));
}

fn schema(cpus: u32) -> Schema {
    let mut fields = Vec::new();
    for (slot, definition) in (0..).zip(&FIELDS) {
        push_for_all(&mut fields, Field { slot, ..definition.field() }, cpus);
    }
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::SCHEDSTAT.region().into(), groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_eight, stands_where_the_program_puts_it};

    #[test]
    fn any_number_of_cpus_has_a_good_schema_with_each_value_in_its_place() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus.div_ceil(8));
            stands_where_the_program_puts_it(&schema, 0, 8, of_eight);
        }
    }
}
