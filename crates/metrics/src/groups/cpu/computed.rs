// SPDX-License-Identifier: Apache-2.0
//! Group cpu: `cpu.bpf.c`.

use std::collections::HashSet;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Sum, Type};

use super::facts::Cpu;
use super::{GUEST_SECONDS, SECONDS};
use crate::collect::counterpart::{Counterpart, Reading, round};
use crate::collect::intf::CPUS_PER_BLOCK;
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{MAX_CPUS, push_for_all};
use crate::discover::Discovery;

/// Times in the order of enum cpu_usage_stat (linux/kernel_stat.h): metric and its help, mode.
const TIMES: [((&str, &str), &str); 10] = [
    (SECONDS, "user"),
    (SECONDS, "nice"),
    (SECONDS, "system"),
    (SECONDS, "softirq"),
    (SECONDS, "irq"),
    (SECONDS, "idle"),
    (SECONDS, "iowait"),
    (SECONDS, "steal"),
    (GUEST_SECONDS, "user"),
    (GUEST_SECONDS, "nice"),
];
const RUNNING: u32 = 10;
const SWITCHES: u32 = 11;

/// Finds each CPU's variables.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let present = discovery.cpu_count()?;
    let cpus = present.min(MAX_CPUS);
    discovery.note_limit("CPUs", present, MAX_CPUS);
    let places = discovery.cpus(cpus)?;
    let cpustat = discovery.percpu("kernel_cpustat")?;
    // Without it idle time moves in ticks.
    let tick = discovery.percpu("tick_cpu_sched").ok();
    let tick = tick.filter(|offset| discovery.idle_is_counted_by_tick(&places, *offset));
    let elements = places.iter().map(|place| {
        let variable = |offset: u64| place.base.wrapping_add(offset);
        Cpu { runqueue: place.runqueue, cpustat: variable(cpustat), tick: tick.map_or(0, variable) }.to_bytes()
    });
    let contents = vec![Content::array("cpus", elements)];
    let schema = schema(cpus, discovery.tick_ns()?, tick.is_some());
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema, counterpart: Counterpart::Samples(adjust) })
}

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/cpu.bpf.o"));

fn schema(cpus: u32, tick_ns: u64, exact_idle: bool) -> Schema {
    let mut fields = Vec::new();
    for (slot, ((name, help), mode)) in (0..).zip(TIMES) {
        let mut field = Field::new(name, Metric::Counter, Type::U64, slot);
        (field.unit, field.scale, field.help) = ("seconds".into(), 1e-9, help.into());
        field.labels.insert("mode".into(), mode.into());
        field.resolution_ns = if exact_idle && matches!(mode, "idle" | "iowait") { 1 } else { tick_ns };
        push_for_all(&mut fields, field, cpus);
    }
    let mut field = Field::new("onlooker_run_queue_length", Metric::Gauge, Type::U64, RUNNING);
    field.help = "Tasks that run or wait to run on the CPU.".into();
    // nr_running() of the kernel, which /proc/stat shows as procs_running.
    field.sum = Some(Sum::beside("node_procs_running", "Number of processes in runnable state."));
    push_for_all(&mut fields, field, cpus);
    let mut field = Field::new("onlooker_context_switches_total", Metric::Counter, Type::U64, SWITCHES);
    field.help = "Context switches of the CPU.".into();
    field.sum = Some(Sum::beside("node_context_switches_total", "Total number of context switches."));
    push_for_all(&mut fields, field, cpus);
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::CPU.region().into(), groups: vec![group] }
}

/// Samples have whole ticks. Of a CPU that is offline they have zeros, since /proc/stat has no line of it.
fn adjust(reading: &mut Reading) {
    let hertz = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100));
    [SECONDS, GUEST_SECONDS].into_iter().for_each(|(metric, _)| round(reading, metric, 1.0 / hertz));
    let cpu_of = |series: &str| Some(series.split_once("cpu=\"")?.1.split('"').next()?.to_owned());
    let counted = reading.iter().filter(|(_, procfs)| procfs.value > 0.0);
    let online: HashSet<String> = counted.filter_map(|(series, _)| cpu_of(series)).collect();
    reading.retain(|series, _| cpu_of(series).is_none_or(|cpu| online.contains(&cpu)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_has_counted_nothing_is_offline() {
        use crate::collect::counterpart::{Procfs, series};
        let of = |cpu, mode| series(SECONDS.0, [("cpu", cpu), ("mode", mode)]);
        let values = [(of("0", "user"), 5), (of("0", "steal"), 0), (of("1", "user"), 0), ("m{}".to_owned(), 0)];
        let mut reading = Reading::from(values.map(|(series, value)| (series, Procfs::exact(value))));
        adjust(&mut reading);
        let rounding = |series: &str| reading.get(series).map(|procfs| procfs.rounding > 0.0);
        assert_eq!([of("0", "steal"), of("1", "user")].map(|series| rounding(&series)), [Some(true), None]);
        assert_eq!(rounding("m{}"), Some(false));
    }

    #[test]
    fn any_number_of_cpus_has_a_good_schema() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus, 4_000_000, true);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus.div_ceil(8));
        }
    }

    #[test]
    fn a_cpu_stands_in_the_block_and_slot_that_the_program_gives_it() {
        let schema = schema(21, 4_000_000, true);
        for field in &schema.groups[0].fields {
            let array = field.array.as_ref().unwrap();
            for (element, cpu) in (0..).zip(array.values.as_ref().unwrap()) {
                let cpu: u32 = cpu.parse().unwrap();
                let slot = field.slot + element * array.stride;
                assert_eq!(slot / 124, cpu / 8);
                let place = cpu % 8;
                assert_eq!((slot % 124) - place / 2 * 31 - place % 2 * 15, field.slot % 15, "CPU {cpu}");
            }
        }
    }
}
