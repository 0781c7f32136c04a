// SPDX-License-Identifier: Apache-2.0
//! Group `cpu`: /proc/stat.

use std::io;

use onlooker_region::Schema;
use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{Array, Field, Group, Kind, Metric, Type};

use super::{GUEST_SECONDS, SECONDS};
use crate::procfs::{LINE_BYTES, Source, number, present_cpus, words};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

/// CPU time that goes back by less is an estimate corrected, by more a CPU's new beginning (jumpBackSeconds in node_exporter).
const CPU_RESET_S: u64 = 3;
const PATH: &str = "/proc/stat";

struct Cpu {
    source: Source,
    /// node_exporter's collectors that read this file, as far as they are here.
    collectors: &'static [&'static str],
    ticks: Vec<u64>,
    stat_block: Option<usize>,
    reset_ticks: u64,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let source = Source::open(PATH)?;
    let groups = groups(cpu_count(&source, context.buffer)?).map(|mut group| {
        group.fields.retain(|field| ask.is_left(field));
        group
    });
    let [ticks, stat] = &groups;
    let tick_blocks = if ticks.fields.is_empty() { 0 } else { ticks.blocks as usize };
    let sampler = Cpu {
        source,
        collectors: match (ticks.fields.is_empty(), stat.fields.is_empty()) {
            (false, false) => &["cpu", "stat"],
            (false, true) => &["cpu"],
            _ => &["stat"],
        },
        ticks: vec![0; tick_blocks * GUARDED_SLOTS],
        stat_block: (!stat.fields.is_empty()).then_some(tick_blocks),
        reset_ticks: CPU_RESET_S * rustix::param::clock_ticks_per_second(),
    };
    Ok(Made { groups: groups.into(), sampler: Box::new(sampler) })
}

impl Sampler for Cpu {
    fn begin(&mut self, _: &Place, _: &Schema, _: u64) {
        self.ticks.fill(0);
    }

    fn sample(&mut self, place: &Place, context: &mut Context) -> io::Result<()> {
        let Self { source, collectors, ticks, stat_block, reset_ticks } = self;
        timed(context, collectors, |context| {
            let mut other = [0; 6];
            source.each_line(context.buffer, |line| match stat(line) {
                Some(Stat::Cpu { cpu, ticks: new }) => {
                    // A CPU beyond those present at start has no place; one that is offline keeps its last values.
                    if let Some(own) = ticks.as_chunks_mut::<{ CPU_MODES.len() }>().0.get_mut(cpu) {
                        *own = steady_ticks(own, &new, *reset_ticks);
                    }
                }
                Some(Stat::BootTime(value)) => other[0] = value,
                Some(Stat::ContextSwitches(value)) => other[1] = value,
                Some(Stat::Forks(value)) => other[2] = value,
                Some(Stat::Interrupts(value)) => other[3] = value,
                Some(Stat::Running(value)) => other[4] = value,
                Some(Stat::Blocked(value)) => other[5] = value,
                None => {}
            })?;
            for (block, values) in ticks.chunks_exact(GUARDED_SLOTS).enumerate() {
                place.put(block, context.now_ns, values);
            }
            if let Some(block) = *stat_block {
                place.put(block, context.now_ns, &other);
            }
            Ok(())
        })
    }
}

/// CPUs that are present, or at least as many as the file lists.
fn cpu_count(source: &Source, buffer: &mut [u8; LINE_BYTES]) -> io::Result<usize> {
    let mut listed = 1;
    source.each_line(buffer, |line| {
        if let Some(Stat::Cpu { cpu, .. }) = stat(line) {
            listed = listed.max(cpu + 1);
        }
    })?;
    Ok(present_cpus().map_or(0, |present| present as usize).max(listed))
}

fn groups(cpus: usize) -> [Group; 2] {
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    let stride = u32::try_from(CPU_MODES.len()).unwrap_or(u32::MAX);
    let blocks = u32::try_from((cpus * CPU_MODES.len()).div_ceil(GUARDED_SLOTS)).unwrap_or(u32::MAX);
    let fields = (0..).zip(CPU_MODES).map(|(slot, (name, mode))| {
        let (_, help) = if name == SECONDS.0 { SECONDS } else { GUEST_SECONDS };
        let mut field = Field::new(name, Metric::Counter, Type::U64, slot);
        field.unit = "seconds".into();
        #[allow(clippy::cast_precision_loss)] // 100 on every Linux
        let per_tick = 1.0 / ticks_per_s as f64;
        field.scale = per_tick;
        field.help = help.into();
        field.labels.insert("mode".into(), mode.into());
        field.resolution_ns = 1_000_000_000 / ticks_per_s.max(1);
        let count = u32::try_from(cpus).unwrap_or(u32::MAX);
        field.array = Some(Array { label: "cpu".into(), count, stride, values: None });
        field
    });
    let cpu = Group::new(Kind::Guarded, blocks, fields.collect());
    let others = [
        ("node_boot_time_seconds", Metric::Gauge, "seconds", "Node boot time, in unixtime."),
        ("node_context_switches_total", Metric::Counter, "", "Total number of context switches."),
        ("node_forks_total", Metric::Counter, "", "Total number of forks."),
        ("node_intr_total", Metric::Counter, "", "Total number of interrupts serviced."),
        ("node_procs_running", Metric::Gauge, "", "Number of processes in runnable state."),
        ("node_procs_blocked", Metric::Gauge, "", "Number of processes blocked waiting for I/O to complete."),
    ];
    let fields = (0..).zip(others).map(|(slot, (name, metric, unit, help))| {
        let mut field = Field::new(name, metric, Type::U64, slot);
        (field.unit, field.help) = (unit.into(), help.into());
        field
    });
    [cpu, Group::new(Kind::Guarded, 1, fields.collect())]
}

/// Modes of /proc/stat's cpu lines in their order, with node_exporter's metric and label; the last two are parts of `user` and `nice`.
pub(crate) const CPU_MODES: [(&str, &str); 10] = [
    (SECONDS.0, "user"),
    (SECONDS.0, "nice"),
    (SECONDS.0, "system"),
    (SECONDS.0, "idle"),
    (SECONDS.0, "iowait"),
    (SECONDS.0, "irq"),
    (SECONDS.0, "softirq"),
    (SECONDS.0, "steal"),
    (GUEST_SECONDS.0, "user"),
    (GUEST_SECONDS.0, "nice"),
];

/// Place of `iowait` in [`CPU_MODES`].
const IOWAIT: usize = 4;

/// What a line of /proc/stat says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stat {
    /// Clock ticks of one CPU, in the order of [`CPU_MODES`].
    Cpu {
        /// Number of the CPU.
        cpu: usize,
        /// Ticks.
        ticks: [u64; CPU_MODES.len()],
    },
    /// Boot time, seconds since 1970.
    BootTime(u64),
    /// Context switches.
    ContextSwitches(u64),
    /// Forks.
    Forks(u64),
    /// Interrupts.
    Interrupts(u64),
    /// Runnable processes.
    Running(u64),
    /// Processes that wait for I/O.
    Blocked(u64),
}

/// A line of /proc/stat; `None` for those of no interest.
pub(crate) fn stat(line: &[u8]) -> Option<Stat> {
    let mut words = words(line);
    let name = words.next()?;
    if let Some(cpu) = name.strip_prefix(b"cpu") {
        // The sum over all CPUs has no number: readers add up themselves.
        let cpu = usize::try_from(number(cpu)?).ok()?;
        let mut ticks = [0; CPU_MODES.len()];
        let mut seen = 0;
        for (tick, word) in ticks.iter_mut().zip(words) {
            *tick = number(word)?;
            seen += 1;
        }
        return (seen >= 4).then_some(Stat::Cpu { cpu, ticks });
    }
    let value = number(words.next()?)?;
    match name {
        b"btime" => Some(Stat::BootTime(value)),
        b"ctxt" => Some(Stat::ContextSwitches(value)),
        b"processes" => Some(Stat::Forks(value)),
        b"intr" => Some(Stat::Interrupts(value)),
        b"procs_running" => Some(Stat::Running(value)),
        b"procs_blocked" => Some(Stat::Blocked(value)),
        _ => None,
    }
}

/// Ticks of a CPU to show, from those shown before and those read now. The kernel's idle and iowait of a tickless CPU are estimates and may be taken
/// back (get_cpu_idle_time_us in kernel/time/tick-sched), which readers would take for the counter's reset. So a mode that went back keeps its value,
/// as in node_exporter; where one fell by `reset_ticks` or more the CPU has begun anew, and all its modes are taken. Not so for iowait: a whole sleep can
/// move from it to idle when the awaited I/O ends elsewhere.
pub(crate) fn steady_ticks(
    old: &[u64; CPU_MODES.len()],
    new: &[u64; CPU_MODES.len()],
    reset_ticks: u64,
) -> [u64; CPU_MODES.len()] {
    let anew = |mode: usize| mode != IOWAIT && old[mode].saturating_sub(new[mode]) >= reset_ticks;
    if (0..CPU_MODES.len()).any(anew) {
        return *new;
    }
    std::array::from_fn(|mode| old[mode].max(new[mode]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_keeps_what_was_more() {
        use crate::sampled::tests::with_context;
        let mut cpu = Cpu {
            source: Source::open(PATH).unwrap(),
            collectors: &["cpu"],
            ticks: vec![0; GUARDED_SLOTS],
            stat_block: None,
            reset_ticks: 300,
        };
        let [ticks, _] = groups(12);
        let schema = Schema { name: "node_cpu".into(), groups: vec![ticks] };
        let memory = onlooker_region::map::sealed_memfd("test", 1024).unwrap();
        let memory = onlooker_region::map::Map::of(memory, 0, 1024, true).unwrap();
        let identity = onlooker_region::block::Identity { region: 2, generation: 9, index: 0 };
        let place = Place::new(memory, identity, &schema);
        let sample = |cpu: &mut Cpu| with_context(|_, context| cpu.sample(&place, context)).unwrap();
        sample(&mut cpu);
        cpu.ticks[3] += 200;
        let before = cpu.ticks[3];
        sample(&mut cpu);
        assert_eq!(cpu.ticks[3], before, "2 s back");
        cpu.ticks[3] += 1_000_000;
        sample(&mut cpu);
        assert!(cpu.ticks[3] < before + 1_000_000, "a new beginning");
    }

    #[test]
    fn a_machine_of_many_cpus_fits() {
        for cpus in [1, 12, 13, 4096] {
            let schema = Schema { name: "node_cpu".into(), groups: groups(cpus).into() };
            schema.check().unwrap();
        }
    }

    #[test]
    fn stat_lines() {
        let cpu = stat(b"cpu12 1 2 3 4 5 6 7 8 9 10 11");
        assert_eq!(cpu, Some(Stat::Cpu { cpu: 12, ticks: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }));
        assert_eq!(stat(b"cpu0 1 2 3 4"), Some(Stat::Cpu { cpu: 0, ticks: [1, 2, 3, 4, 0, 0, 0, 0, 0, 0] }));
        assert_eq!(stat(b"intr 1234 0 0 0"), Some(Stat::Interrupts(1234)));
        assert_eq!(stat(b"btime 1700000000"), Some(Stat::BootTime(1_700_000_000)));
        for line in ["cpu  1 2 3 4", "cpu0 1", "cpu0 a b c d", "", "softirq 1 2", "ctxt", "ctxt -1"] {
            assert_eq!(stat(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn cpu_times_do_not_step_back() {
        let old = [100, 101, 102, 1000, 104, 105, 106, 107, 108, 109];
        let with = |changes: &[(usize, u64)]| {
            let mut ticks = old;
            changes.iter().for_each(|(mode, value)| ticks[*mode] = *value);
            ticks
        };
        for (read, shown) in [
            (with(&[]), with(&[])),
            (with(&[(0, 110), (3, 1001)]), with(&[(0, 110), (3, 1001)])),
            // Idle and iowait a little back, the others on.
            (with(&[(0, 110), (3, 999), (4, 103)]), with(&[(0, 110)])),
            (with(&[(3, 701), (9, 0)]), with(&[])),
            // Another count altogether.
            (with(&[(0, 1), (3, 700), (4, 20)]), with(&[(0, 1), (3, 700), (4, 20)])),
            (with(&[(5, 5)]), with(&[])),
            ([0; 10], [0; 10]),
        ] {
            assert_eq!(steady_ticks(&old, &read, 300), shown, "{read:?}");
        }
        assert_eq!(steady_ticks(&[0; 10], &old, 300), old, "the first sample");
        let (waited, busy) = (with(&[(4, 9000)]), with(&[(0, 9000)]));
        assert_eq!(steady_ticks(&waited, &old, 300), waited, "iowait that turned out to be idle");
        assert_eq!(steady_ticks(&busy, &old, 300), old, "a CPU that was hardly idle begins anew");
    }

    #[test]
    fn no_line_breaks_a_parser() {
        bolero::check!().for_each(|line: &[u8]| {
            let _ = stat(line);
        });
    }

    #[test]
    fn this_machine_s_file_parses() {
        let mut lines = 0;
        let count = |line: &[u8]| lines += usize::from(stat(line).is_some());
        Source::open("/proc/stat").unwrap().each_line(&mut [0; LINE_BYTES], count).unwrap();
        assert!(lines >= 7, "{lines}");
    }
}
