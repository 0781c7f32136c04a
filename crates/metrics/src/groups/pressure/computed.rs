// SPDX-License-Identifier: Apache-2.0
//! Group pressure: `pressure.bpf.c`. The totals of /proc/pressure as the kernel keeps them, and, which procfs does not tell, where tasks stall at
//! the instant of the READ.

use std::fs;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Type};

use super::STALLS;
use super::facts::PRESSURE_STATES;
use crate::collect::counterpart::{Counterpart, Reading, round};
use crate::collect::intf::{CPUS_PER_BLOCK, NONE, address_bytes};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, push_for_all};
use crate::discover::{Discovery, Read};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pressure.bpf.o"));
/// PSI_FREQ of kernel/sched/psi.c: the kernel adds up its CPUs this often, and whenever somebody reads /proc/pressure.
const RESOLUTION_NS: u64 = 2_000_000_000;
/// procfs has whole microseconds.
const ROUNDING: f64 = 2e-6;

/// No CPU has a bit for the last, interrupts.
const WITH_BITS: usize = 5;
pub(super) const IN_PROGRESS: &str = "onlooker_pressure_in_progress";
const _: () = assert!(STALLS.len() <= PRESSURE_STATES);

pub(super) fn absence() -> Option<String> {
    let error = fs::read_to_string("/proc/pressure/cpu").err()?;
    Some(format!("/proc/pressure/cpu: {error}: the kernel keeps no pressure (CONFIG_PSI, psi=1 at its start)"))
}

/// Finds the system's group and each CPU's.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let places = cpus(discovery)?;
    let per_cpu = discovery.percpu("system_group_pcpu")?;
    let group = group(discovery, places.first().map_or(0, |place| place.base.wrapping_add(per_cpu)))?;
    let mut numbers = [NONE; PRESSURE_STATES];
    let mut known = Vec::new();
    for (number, stall) in numbers.iter_mut().zip(&STALLS) {
        // Only kernels that account the time of interrupts have theirs.
        if let Ok(found) = discovery.enumerator("psi_states", stall.enumerator) {
            *number = u8::try_from(found).unwrap_or(NONE);
        }
        known.push(*number != NONE);
    }
    let facts = group.to_le_bytes().into_iter().chain(numbers).collect();
    let elements = places.iter().map(|place| address_bytes(place.base.wrapping_add(per_cpu)));
    let contents = vec![Content::array("pressure_cpus", elements), Content::array("pressure_facts", [facts])];
    let cpus = u32::try_from(places.len()).unwrap_or(u32::MAX);
    Ok(Prepared {
        image: Image { object: OBJECT, contents, maps: &[] },
        schema: schema(cpus, &known),
        counterpart: Counterpart::Samples(adjust),
    })
}

/// `psi_system`, which is the group whose parts are those of `system_group_pcpu`.
fn group(discovery: &mut Discovery, first_cpu: u64) -> Result<u64, String> {
    let parts = discovery.offset("psi_group", &["pcpu"])?;
    let percpu_offset = discovery.percpu_offsets(1)?.first().copied().ok_or("no CPU")?;
    let functions = ["psi_cpu_show", "psi_io_show", "psi_memory_show"];
    discovery.global("psi_system", &functions, |address, read: &Read<'_>| {
        let parts = u64::from_le_bytes(read(address.wrapping_add(parts), 8)?.try_into().ok()?);
        (parts.wrapping_add(percpu_offset) == first_cpu).then_some(address)
    })
}

/// To read /proc/pressure has the kernel add up, so what is computed next is as fresh.
fn adjust(reading: &mut Reading) {
    STALLS.iter().for_each(|stall| round(reading, stall.total.name, ROUNDING));
}

fn schema(cpus: u32, known: &[bool]) -> Schema {
    let mut totals = Vec::new();
    let mut bits = Vec::new();
    let stalls = (0..).zip(&STALLS).zip(known).filter(|(_, known)| **known);
    for (slot, stall) in stalls.map(|(stall, _)| stall) {
        // Nanoseconds here.
        totals.push(Field { slot, scale: 1e-9, resolution_ns: RESOLUTION_NS, ..stall.total.field() });
        if (slot as usize) < WITH_BITS {
            let mut bit = Field::new(IN_PROGRESS, Metric::Gauge, Type::U64, slot);
            bit.help = "Whether tasks of the CPU stall at this instant: some of them (waiting), or all that have work to do (stalled).".into();
            bit.labels.insert("resource".into(), stall.resource.into());
            bit.labels.insert("kind".into(), stall.kind().into());
            push_for_all(&mut bits, bit, cpus);
        }
    }
    let groups =
        [Group::new(Kind::Computed, 1, totals), Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), bits)];
    let groups = groups.map(|mut group| {
        group.acquisition = Acquisition::Computed;
        group
    });
    Schema { name: super::Group::PRESSURE.region().into(), groups: groups.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_eight, stands_where_the_program_puts_it};

    #[test]
    fn any_number_of_cpus_has_a_good_schema_with_each_value_in_its_place() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus, &[true; STALLS.len()]);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), 1 + cpus.div_ceil(8));
            stands_where_the_program_puts_it(&schema, 1, 8, of_eight);
        }
        let without_interrupts = schema(2, &[true, true, true, true, true, false]);
        assert_eq!(without_interrupts.groups[0].fields.len(), WITH_BITS);
    }
}
