// SPDX-License-Identifier: Apache-2.0
//! Group vmstat: `vmstat.bpf.c`. Of /proc/vmstat what node_exporter takes unless told otherwise (`^(oom_kill|pgpg|pswp|pg.*fault).*`), by CPU;
//! what is shown are the sums.

use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Sum, Type};

use crate::collect::intf::{CPUS_PER_BLOCK, VMSTAT_EVENTS, address_bytes};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, push_for_all};
use crate::collect::procfs::{self, Procfs, Reading, series};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/vmstat.bpf.o"));

/// Enumerator of enum vm_event_item, name in /proc/vmstat, what a unit of the kernel is there: it counts sectors and shows KiB (vmstat_start of mm/vmstat.c).
const EVENTS: [(&str, &str, f64); 7] = [
    ("PGPGIN", "pgpgin", 0.5),
    ("PGPGOUT", "pgpgout", 0.5),
    ("PSWPIN", "pswpin", 1.0),
    ("PSWPOUT", "pswpout", 1.0),
    ("PGFAULT", "pgfault", 1.0),
    ("PGMAJFAULT", "pgmajfault", 1.0),
    ("OOM_KILL", "oom_kill", 1.0),
];
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
    for event in EVENTS {
        match discovery.enumerator("vm_event_item", event.0) {
            Ok(number) => {
                numbers.push(number);
                known.push(event);
            }
            Err(reason) => discovery.note(event.0, Err(reason)),
        }
    }
    let elements = places.iter().map(|place| address_bytes(place.base.wrapping_add(events)));
    let contents = vec![Content::array("vmstat_cpus", elements), Content::array("vmstat_facts", [facts(&numbers)])];
    let schema = schema(u32::try_from(places.len()).unwrap_or(u32::MAX), &known);
    Ok(Prepared { image: Image { object: OBJECT, contents, maps: &[] }, schema, procfs: Box::new(reading) })
}

/// `struct onlooker_vmstat_facts`.
fn facts(numbers: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().copied().flat_map(u32::to_le_bytes).collect();
    bytes.resize(4 * VMSTAT_EVENTS, 0);
    bytes.extend(u32::try_from(numbers.len()).unwrap_or(0).to_le_bytes());
    bytes.resize(4 * VMSTAT_EVENTS + 8, 0);
    bytes
}

fn name_of(event: &str) -> String {
    format!("node_vmstat_{event}")
}

/// /proc/vmstat, which has sums; of what it halves the rest is lost.
fn reading() -> io::Result<Reading> {
    let numbers = procfs::numbers("/proc/vmstat")?;
    let values = EVENTS.into_iter().filter_map(|(_, name, scale)| {
        let value = Procfs { rounding: 1.0 - scale, ..Procfs::exact(*numbers.get(name)?) };
        Some((series(&name_of(name), []), value))
    });
    Ok(values.collect())
}

fn schema(cpus: u32, events: &[(&str, &str, f64)]) -> Schema {
    let mut fields = Vec::new();
    for (slot, (_, name, scale)) in (0..).zip(events) {
        let mut field = Field::new(&name_of(name), Metric::Counter, Type::U64, slot);
        (field.scale, field.help) = (*scale, format!("/proc/vmstat information field {name}."));
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
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_eight, stands_where_the_program_puts_it};
    use super::*;

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
