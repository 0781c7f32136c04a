// SPDX-License-Identifier: Apache-2.0
//! Group stat: `stat.bpf.c`. Interrupts, softirqs, forks and tasks that wait for I/O, which /proc/stat has as sums; and which softirqs wait on
//! each CPU at the instant of the READ, which procfs does not tell: the sign of a CPU that has more to do than its run queue shows.
//!
//! The CPU that answers has taken its own bits before it runs the responder (handle_softirqs of kernel/softirq.c): what is seen there has come since.

use std::collections::BTreeMap;
use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Sum, Type};

use super::facts::{STAT_CPUS_PER_BLOCK, StatCpu, facts_bytes};
use super::procfs::{files, shown_processes, threads};
use super::totals::Totals;
use crate::collect::counterpart::{Counterpart, Procfs, Reading, series};
use crate::collect::intf::PAIR_SLOTS;
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, four_a_block};
use crate::discover::{Discovery, Read};
use crate::procfs::numbers;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stat.bpf.o"));
/// In the order of linux/interrupt.h, named as in /proc/softirqs.
const SOFTIRQS: [&str; 10] =
    ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"];
const INTERRUPTS: &str = "onlooker_interrupts_total";
const INTERRUPTS_SUM: &str = "node_intr_total";
const SOFTIRQS_TOTAL: &str = "node_softirqs_functions_total";
pub(super) const PENDING: &str = "onlooker_softirq_pending";
const IOWAIT: &str = "onlooker_iowait_tasks";
const IOWAIT_SUM: &str = "node_procs_blocked";
const FORKS: &str = "node_forks_total";
const FORKS_SLOT: u32 = PAIR_SLOTS - 1;
const THREADS: &str = "node_processes_threads";
const PROCESSES: &str = "node_processes_pids";
const FILES: &str = "node_filefd_allocated";
const MOST_FILES: &str = "node_filefd_maximum";

/// Finds each CPU's variables.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let places = cpus(discovery)?;
    let kstat = discovery.percpu("kstat")?;
    let irq_stat = discovery.percpu_if_any("irq_stat");
    let (pending, hot) = (discovery.percpu_if_any("__softirq_pending"), discovery.percpu_if_any("pcpu_hot"));
    let checks = ["mce_exception_count", "mce_poll_count"].map(|name| discovery.percpu_if_any(name));
    let total_forks = forks(discovery);
    let cpus = u32::try_from(places.len()).unwrap_or(u32::MAX);
    let totals = Totals::find(discovery, cpus);
    let process_counts = discovery.percpu("process_counts").ok();
    let offsets = if totals.file_parts > 0 { discovery.percpu_offsets(cpus)? } else { vec![0; places.len()] };
    let elements = places.iter().zip(offsets).map(|(place, offset)| {
        let variable = |offset: Option<u64>| offset.map_or(0, |offset| place.base.wrapping_add(offset));
        StatCpu {
            kstat: variable(Some(kstat)),
            irq_stat: variable(irq_stat),
            pending: variable(pending),
            hot: variable(hot),
            runqueue: place.runqueue,
            mce_exceptions: variable(checks[0]),
            mce_polls: variable(checks[1]),
            files: if totals.file_parts > 0 { totals.file_parts.wrapping_add(offset) } else { 0 },
            processes: variable(process_counts),
        }
        .to_bytes()
    });
    let facts = facts_bytes(total_forks.unwrap_or(0), totals);
    let contents = vec![Content::array("stat_cpus", elements), Content::array("stat_facts", [facts])];
    let is_known = |metric: &str| match metric {
        FORKS => total_forks.is_some(),
        THREADS => totals.threads > 0,
        PROCESSES => process_counts.is_some(),
        FILES => totals.files > 0,
        MOST_FILES => totals.most_files > 0,
        _ => true,
    };
    Ok(Prepared {
        image: Image { object: OBJECT, contents, maps: &[] },
        schema: schema(cpus, is_known),
        counterpart: Counterpart::Own(Box::new(reading)),
    })
}

/// `total_forks`, which show_stat of fs/proc/stat.c prints; processes may begin between any two looks at it.
fn forks(discovery: &mut Discovery) -> Option<u64> {
    let is_it = |address: u64, read: &Read<'_>| {
        let now = || Some(u64::from_le_bytes(read(address, 8)?.try_into().ok()?));
        // Roughly first, which rules out all but the right one.
        let printed = processes()?;
        if now()?.abs_diff(printed) > 1 + printed / 100 {
            return None;
        }
        let (before, value, after) = (processes()?, now()?, processes()?);
        (before <= value && value <= after).then_some(address)
    };
    discovery.global("total_forks", &["show_stat"], is_it).ok()
}

fn processes() -> Option<u64> {
    numbers("/proc/stat").ok()?.get("processes").copied()
}

/// /proc/stat and /proc/softirqs: the group is not sampled.
fn reading() -> io::Result<Reading> {
    let mut reading = Reading::new();
    let stat = numbers("/proc/stat")?;
    for (word, metric) in [("intr", INTERRUPTS_SUM), ("procs_blocked", IOWAIT_SUM), ("processes", FORKS)] {
        if let Some(value) = stat.get(word) {
            reading.insert(series(metric, []), Procfs::exact(*value));
        }
    }
    // What a machine does not show (hidepid, another pid namespace) is left out, or unlike.
    let files = files().ok();
    for (metric, value) in [
        (THREADS, threads().ok()),
        (PROCESSES, shown_processes().ok()),
        (FILES, files.map(|(open, _)| open)),
        (MOST_FILES, files.map(|(_, most)| most)),
    ] {
        if let Some(value) = value {
            reading.insert(series(metric, []), Procfs::exact(value));
        }
    }
    softirqs(&fs::read_to_string("/proc/softirqs")?, &mut reading);
    Ok(reading)
}

/// A line of CPUs, then a line a type.
fn softirqs(text: &str, reading: &mut Reading) {
    let mut lines = text.lines();
    let cpus: Vec<&str> =
        lines.next().unwrap_or("").split_ascii_whitespace().filter_map(|cpu| cpu.strip_prefix("CPU")).collect();
    for line in lines {
        let Some((kind, counts)) = line.split_once(':') else { continue };
        for (cpu, count) in cpus.iter().zip(counts.split_ascii_whitespace().map_while(|count| count.parse().ok())) {
            reading.insert(series(SOFTIRQS_TOTAL, [("cpu", *cpu), ("type", kind.trim())]), Procfs::exact(count));
        }
    }
}

/// procfs's name of a softirq as node_exporter writes it.
fn vector(kind: &str) -> String {
    if kind == "IRQ_POLL" { "block_iopoll".to_owned() } else { kind.to_ascii_lowercase() }
}

fn schema(cpus: u32, is_known: impl Fn(&str) -> bool) -> Schema {
    let make = |name: &str, metric, slot, help: &str| {
        let mut field = Field::new(name, metric, Type::U64, slot);
        field.help = help.into();
        field
    };
    let beside = |name, help| Some(Sum::beside(name, help));
    let mut interrupts = make(INTERRUPTS, Metric::Counter, 0, "Interrupts serviced by the CPU.");
    interrupts.sum = beside(INTERRUPTS_SUM, "Total number of interrupts serviced.");
    let mut fields = vec![four_a_block(interrupts, cpus)];
    for (slot, kind) in (1..).zip(SOFTIRQS) {
        let mut field = make(SOFTIRQS_TOTAL, Metric::Counter, slot, "Softirq counts per CPU.");
        field.labels.insert("type".into(), kind.into());
        let labels = BTreeMap::from([("vector".to_owned(), vector(kind))]);
        field.sum =
            beside("node_softirqs_total", "Number of softirq calls.").map(|sum| Sum { labels: Some(labels), ..sum });
        fields.push(four_a_block(field, cpus));
    }
    for (slot, kind) in (11..).zip(SOFTIRQS) {
        let help = "Whether softirqs of the type wait on the CPU at this instant.";
        let mut field = make(PENDING, Metric::Gauge, slot, help);
        field.labels.insert("type".into(), kind.into());
        fields.push(four_a_block(field, cpus));
    }
    let mut iowait = make(IOWAIT, Metric::Gauge, 21, "Tasks of the CPU that wait for I/O.");
    // nr_iowait() of the kernel, which /proc/stat shows as procs_blocked.
    iowait.sum = beside(IOWAIT_SUM, "Number of processes blocked waiting for I/O to complete.");
    fields.push(four_a_block(iowait, cpus));
    let parts = [(FILES, 22, "File descriptor statistics: allocated."), (PROCESSES, 23, "Number of PIDs")];
    for (name, slot, help) in parts {
        // A part can be negative: what one CPU began, another may have ended.
        let sum = Some(Sum::default());
        let field = Field { kind: Type::I64, sum, ..make(name, Metric::Gauge, slot, help) };
        fields.push(four_a_block(field, cpus));
    }
    fields.push(make(FORKS, Metric::Counter, FORKS_SLOT, "Total number of forks."));
    fields.push(make(THREADS, Metric::Gauge, FORKS_SLOT - 1, "Allocated threads in system"));
    fields.push(make(MOST_FILES, Metric::Gauge, FORKS_SLOT - 2, "File descriptor statistics: maximum."));
    fields.retain(|field| is_known(&field.name));
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(STAT_CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::STAT.region().into(), groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_four, stands_where_the_program_puts_it};

    #[test]
    fn any_number_of_cpus_has_a_good_schema_with_each_value_in_its_place() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus, |_| true);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus.div_ceil(4));
            stands_where_the_program_puts_it(&schema, 0, 4, of_four);
        }
        assert!(!schema(2, |name| name != FORKS).groups[0].fields.iter().any(|field| field.name == FORKS));
    }

    #[test]
    fn softirqs_are_read_by_cpu_and_type() {
        let mut reading = Reading::new();
        softirqs(
            "                    CPU0       CPU2\n      HI:          1          2\n  NET_RX:         30         40\n",
            &mut reading,
        );
        let value = |cpu, kind| reading[&series(SOFTIRQS_TOTAL, [("cpu", cpu), ("type", kind)])].value;
        assert_eq!((value("0", "HI"), value("2", "HI"), value("2", "NET_RX")), (1.0, 2.0, 40.0));
        assert_eq!(reading.len(), 4);
    }
}
