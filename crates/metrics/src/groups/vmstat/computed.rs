// SPDX-License-Identifier: Apache-2.0
//! Group vmstat: `vmstat.bpf.c`. Of /proc/vmstat what node_exporter takes unless told otherwise (`^(oom_kill|pgpg|pswp|pg.*fault).*`), by CPU;
//! what is shown are the sums.

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Sum};

use super::facts::{VMSTAT_EVENTS, facts};
use super::{EVENTS, Event};
use crate::collect::counterpart::{Counterpart, Reading, round};
use crate::collect::intf::{CPUS_PER_BLOCK, address_bytes};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, push_for_all};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vmstat.bpf.o"));

const _: () = assert!(EVENTS.len() <= VMSTAT_EVENTS);

/// Finds each CPU's events.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let places = cpus(discovery)?;
    let events = discovery.percpu("vm_event_states")?;
    let mut numbers = Vec::new();
    let mut known = Vec::new();
    for event in &EVENTS {
        match discovery.enumerator("vm_event_item", event.enumerator) {
            Ok(number) => {
                numbers.push(number);
                known.push(event);
            }
            Err(reason) => discovery.note(event.enumerator, Err(reason)),
        }
    }
    let elements = places.iter().map(|place| address_bytes(place.base.wrapping_add(events)));
    let contents = vec![Content::array("vmstat_cpus", elements), Content::array("vmstat_facts", [facts(&numbers)])];
    let schema = schema(u32::try_from(places.len()).unwrap_or(u32::MAX), known);
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema, counterpart: Counterpart::Samples(adjust) })
}

/// Of what /proc/vmstat halves the rest is lost.
fn adjust(reading: &mut Reading) {
    EVENTS.iter().for_each(|event| round(reading, event.metric.name, 1.0 - event.per_count));
}

fn schema<'a>(cpus: u32, events: impl IntoIterator<Item = &'a Event>) -> Schema {
    let mut fields = Vec::new();
    for (slot, event) in (0..).zip(events) {
        let mut field = Field { slot, scale: event.per_count, ..event.metric.field() };
        // A CPU that goes offline hands its events to another one (vm_events_fold_cpu of mm/vmstat.c).
        field.sum = Some(Sum { handed_over: true, ..Sum::default() });
        push_for_all(&mut fields, field, cpus);
    }
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::VMSTAT.region().into(), groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_eight, stands_where_the_program_puts_it};

    #[test]
    fn any_number_of_cpus_has_a_good_schema_with_each_value_in_its_place() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus, &EVENTS);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus.div_ceil(8));
            stands_where_the_program_puts_it(&schema, 0, 8, of_eight);
        }
    }
}
