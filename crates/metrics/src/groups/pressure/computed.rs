// SPDX-License-Identifier: Apache-2.0
//! Group pressure: `pressure.bpf.c`. The totals of /proc/pressure as the kernel keeps them, and, which procfs does not tell, where tasks stall at
//! the instant of the READ.

use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Type};

use crate::collect::intf::{CPUS_PER_BLOCK, NONE, address_bytes};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, push_for_all};
use crate::collect::procfs::{Procfs, Reading, series};
use crate::discover::{Discovery, Read};
use super::facts::PRESSURE_STATES;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pressure.bpf.o"));
/// PSI_FREQ of kernel/sched/psi.c: the kernel adds up its CPUs this often, and whenever somebody reads /proc/pressure.
const RESOLUTION_NS: u64 = 2_000_000_000;
/// procfs has whole microseconds.
const ROUNDING: f64 = 2e-6;

/// A kind of stall.
#[derive(Clone, Copy)]
struct State {
    /// Of enum psi_states.
    enumerator: &'static str,
    resource: &'static str,
    /// As node_exporter calls it.
    kind: &'static str,
    /// Line of /proc/pressure/RESOURCE.
    line: &'static str,
}

/// By slot. Interrupts come last: not all kernels have them, and no CPU has a bit for them.
const STATES: [State; 6] = [
    State { enumerator: "PSI_CPU_SOME", resource: "cpu", kind: "waiting", line: "some" },
    State { enumerator: "PSI_IO_SOME", resource: "io", kind: "waiting", line: "some" },
    State { enumerator: "PSI_IO_FULL", resource: "io", kind: "stalled", line: "full" },
    State { enumerator: "PSI_MEM_SOME", resource: "memory", kind: "waiting", line: "some" },
    State { enumerator: "PSI_MEM_FULL", resource: "memory", kind: "stalled", line: "full" },
    State { enumerator: "PSI_IRQ_FULL", resource: "irq", kind: "stalled", line: "full" },
];
const WITH_BITS: usize = 5;
pub(super) const IN_PROGRESS: &str = "onlooker_pressure_in_progress";
const _: () = assert!(STATES.len() <= PRESSURE_STATES);

impl State {
    fn total(self) -> String {
        format!("node_pressure_{}_{}_seconds_total", self.resource, self.kind)
    }

    /// node_exporter's, where it has one.
    fn help(self) -> String {
        match (self.resource, self.kind) {
            ("cpu", _) => "Total time in seconds that processes have waited for CPU time".to_owned(),
            ("io", "waiting") => "Total time in seconds that processes have waited due to IO congestion".to_owned(),
            ("io", _) => "Total time in seconds no process could make progress due to IO congestion".to_owned(),
            ("memory", "waiting") => "Total time in seconds that processes have waited for memory".to_owned(),
            ("memory", _) => "Total time in seconds no process could make progress due to memory congestion".to_owned(),
            _ => "Total time in seconds no process could make progress due to IRQ congestion".to_owned(),
        }
    }
}

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
    for (number, state) in numbers.iter_mut().zip(STATES) {
        // Only kernels that account the time of interrupts have theirs.
        if let Ok(found) = discovery.enumerator("psi_states", state.enumerator) {
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
        procfs: Box::new(move || reading(cpus)),
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

/// /proc/pressure. To read it has the kernel add up, so what is computed next is as fresh.
fn reading(cpus: u32) -> io::Result<Reading> {
    let mut reading = Reading::new();
    for (slot, state) in STATES.into_iter().enumerate() {
        let Ok(text) = fs::read_to_string(format!("/proc/pressure/{}", state.resource)) else { continue };
        if let Some(micros) = total_of(&text, state.line) {
            let value = Procfs { value: Procfs::exact(micros).value / 1e6, rounding: ROUNDING };
            reading.insert(series(&state.total(), []), value);
        }
        for cpu in 0..cpus {
            if slot < WITH_BITS {
                let cpu = cpu.to_string();
                let labels = [("cpu", cpu.as_str()), ("resource", state.resource), ("kind", state.kind)];
                reading.insert(series(IN_PROGRESS, labels), Procfs::none(1.0));
            }
        }
    }
    Ok(reading)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`, in microseconds.
fn total_of(text: &str, line: &str) -> Option<u64> {
    let line = text.lines().find(|found| found.split(' ').next() == Some(line))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

fn schema(cpus: u32, known: &[bool]) -> Schema {
    let mut totals = Vec::new();
    let mut bits = Vec::new();
    let states = (0..).zip(STATES).zip(known).filter(|(_, known)| **known);
    for (slot, state) in states.map(|(state, _)| state) {
        let mut total = Field::new(&state.total(), Metric::Counter, Type::U64, slot);
        (total.unit, total.scale, total.help) = ("seconds".into(), 1e-9, state.help());
        total.resolution_ns = RESOLUTION_NS;
        totals.push(total);
        if (slot as usize) < WITH_BITS {
            let mut bit = Field::new(IN_PROGRESS, Metric::Gauge, Type::U64, slot);
            bit.help = "Whether tasks of the CPU stall at this instant: some of them (waiting), or all that have work to do (stalled).".into();
            bit.labels.insert("resource".into(), state.resource.into());
            bit.labels.insert("kind".into(), state.kind.into());
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
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_eight, stands_where_the_program_puts_it};
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema_with_each_value_in_its_place() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus, &[true; STATES.len()]);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), 1 + cpus.div_ceil(8));
            stands_where_the_program_puts_it(&schema, 1, 8, of_eight);
        }
        let without_interrupts = schema(2, &[true, true, true, true, true, false]);
        assert_eq!(without_interrupts.groups[0].fields.len(), WITH_BITS);
    }

    #[test]
    fn totals_are_read_by_their_line() {
        let text = "some avg10=9.84 avg60=9.29 avg300=5.94 total=15719927673\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!((total_of(text, "some"), total_of(text, "full")), (Some(15_719_927_673), Some(7)));
        assert_eq!(total_of("full avg10=0.00 total=5\n", "some"), None);
    }
}
