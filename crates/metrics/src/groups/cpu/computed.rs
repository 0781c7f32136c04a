// SPDX-License-Identifier: Apache-2.0
//! Group cpu: `cpu.bpf.c`.

use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Sum, Type};

use super::facts::Cpu;
use super::procfs::CPU_MODES;
use super::{GUEST_SECONDS, SECONDS};
use crate::collect::intf::CPUS_PER_BLOCK;
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{MAX_CPUS, push_for_all};
use crate::collect::procfs::{Procfs, Reading, series};
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
    Ok(Prepared { image: Image { object: OBJECT, contents, maps: &[] }, schema, procfs: Box::new(reading) })
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

/// /proc/stat. Run queues and context switches are there as sums: series without a label `cpu`.
fn reading() -> io::Result<Reading> {
    let text = fs::read_to_string("/proc/stat")?;
    let hertz = f64::from(u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100));
    let mut reading = Reading::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let numbers = words.map_while(|word| word.parse::<u64>().ok());
        #[allow(clippy::cast_precision_loss, reason = "as exported")]
        let mut numbers = numbers.map(|number| number as f64);
        match name {
            "ctxt" | "procs_running" => {
                let metric =
                    if name == "ctxt" { "onlooker_context_switches_total" } else { "onlooker_run_queue_length" };
                let value = numbers.next().unwrap_or(0.0);
                reading.insert(series(metric, []), Procfs { value, rounding: 0.0 });
            }
            _ => {
                let Some(cpu) = name.strip_prefix("cpu").filter(|cpu| !cpu.is_empty()) else { continue };
                for ((metric, mode), ticks) in CPU_MODES.into_iter().zip(numbers) {
                    let key = series(metric, [("cpu", cpu), ("mode", mode)]);
                    reading.insert(key, Procfs { value: ticks / hertz, rounding: 1.0 / hertz });
                }
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
