// SPDX-License-Identifier: Apache-2.0
//! Group `cpu`: /proc/stat.

use std::io;

use onlooker_region::Schema;
use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{Array, Field, Group, Kind, Metric, Type};

use crate::procfs::{self, CPU_MODES, LINE_BYTES, Source, Stat};
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
            source.each_line(context.buffer, |line| match procfs::stat(line) {
                Some(Stat::Cpu { cpu, ticks: new }) => {
                    // A CPU beyond those present at start has no place; one that is offline keeps its last values.
                    if let Some(own) = ticks.as_chunks_mut::<{ CPU_MODES.len() }>().0.get_mut(cpu) {
                        *own = procfs::steady_ticks(own, &new, *reset_ticks);
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
        if let Some(Stat::Cpu { cpu, .. }) = procfs::stat(line) {
            listed = listed.max(cpu + 1);
        }
    })?;
    let present = procfs::read_small("/sys/devices/system/cpu/present").ok().and_then(|list| procfs::cpu_count(&list));
    Ok(present.unwrap_or(0).max(listed))
}

fn groups(cpus: usize) -> [Group; 2] {
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    let stride = u32::try_from(CPU_MODES.len()).unwrap_or(u32::MAX);
    let blocks = u32::try_from((cpus * CPU_MODES.len()).div_ceil(GUARDED_SLOTS)).unwrap_or(u32::MAX);
    let fields = (0..).zip(CPU_MODES).map(|(slot, (name, mode))| {
        let mut field = Field::new(name, Metric::Counter, Type::U64, slot);
        field.unit = "seconds".into();
        #[allow(clippy::cast_precision_loss)] // 100 on every Linux
        let per_tick = 1.0 / ticks_per_s as f64;
        field.scale = per_tick;
        field.help = match name {
            "node_cpu_seconds_total" => "Seconds the CPUs spent in each mode.".into(),
            _ => "Seconds the CPUs spent in guests (VMs) for each mode.".into(),
        };
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
}
