// SPDX-License-Identifier: Apache-2.0
//! Per-CPU variables. A CPU's copy of a variable is at its base plus the variable's offset in BTF; the base is the CPU's run queue less the offset of
//! `runqueues`.

use libbpf_rs::btf::TypeId;

use super::Discovery;
use crate::procfs::present_cpus;

/// Where a CPU keeps its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuPlace {
    /// `struct rq`.
    pub(crate) runqueue: u64,
    /// Plus BTF's offset gives a variable.
    pub(crate) base: u64,
}

impl Discovery {
    /// CPUs that are present, counted to the highest.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn cpu_count(&self) -> Result<u32, String> {
        let present = present_cpus().map_err(|error| format!("/sys/devices/system/cpu/present: {error}"))?;
        Ok(self.as_if_cpus.unwrap_or(present))
    }

    /// What `of` says of CPUs 0 to `cpus` - 1.
    fn for_each_cpu(&self, cpus: u32, of: impl Fn(u32) -> Result<u64, String>) -> Result<Vec<u64>, String> {
        let there = if self.is_real() { cpus } else { present_cpus().map_err(|error| error.to_string())? };
        (0..cpus).map(|cpu| of(cpu % there.max(1))).collect()
    }

    /// Bases of CPUs 0 to `cpus` - 1.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn cpus(&mut self, cpus: u32) -> Result<Vec<CpuPlace>, String> {
        let offset = self.percpu("runqueues")?;
        let by_task_group = self.for_each_cpu(cpus, |cpu| self.reader.runqueue(cpu));
        let (runqueues, how) = match by_task_group {
            Ok(runqueues) => (runqueues, "task group of the loader, checked by rq->cpu"),
            Err(first) => match self.runqueues_by_symbol(cpus) {
                Ok(runqueues) => (runqueues, "kallsyms and __per_cpu_offset"),
                Err(second) => {
                    let reason = format!("{first}; {second}");
                    self.note("per-CPU bases", Err(reason.clone()));
                    return Err(reason);
                }
            },
        };
        self.note("per-CPU bases", Ok(format!("{how} ({cpus} CPUs)")));
        let place = |runqueue: u64| CpuPlace { runqueue, base: runqueue.wrapping_sub(offset) };
        Ok(runqueues.into_iter().map(place).collect())
    }

    fn runqueues_by_symbol(&self, cpus: u32) -> Result<Vec<u64>, String> {
        let symbol = self.symbols.address("runqueues").ok_or("kallsyms does not list runqueues")?;
        self.for_each_cpu(cpus, |cpu| Ok(symbol.wrapping_add(self.reader.percpu_offset(cpu)?)))
    }

    /// What alloc_percpu's pointers need added, by CPU.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn percpu_offsets(&mut self, cpus: u32) -> Result<Vec<u64>, String> {
        let offsets = self.for_each_cpu(cpus, |cpu| self.reader.percpu_offset(cpu));
        let how = "distance of a per-CPU map's elements from its pointer";
        self.note("__per_cpu_offset", offsets.clone().map(|_| how.to_owned()));
        offsets
    }

    /// Offset of a per-CPU variable.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn percpu(&mut self, name: &str) -> Result<u64, String> {
        let types = self.types.as_ref().map_err(Clone::clone)?;
        let found = types.percpu(name).ok_or_else(|| format!("BTF has no per-CPU variable {name}"));
        self.note(name, found.clone().map(|offset| format!("BTF, offset {offset:#x} in .data..percpu")));
        found
    }

    /// Offset and type of a per-CPU variable, if BTF has it.
    ///
    /// # Errors
    /// It has several of that name, or nothing at all.
    pub(crate) fn percpu_variable(&self, name: &str) -> Result<Option<(u64, TypeId)>, String> {
        match self.types.as_ref().map_err(Clone::clone)?.percpu_variables(name)[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(format!("BTF has several per-CPU variables {name}")),
        }
    }

    /// Offset of a per-CPU variable that not all kernels have.
    pub(crate) fn percpu_if_any(&mut self, name: &str) -> Option<u64> {
        let offset = self.types.as_ref().ok()?.percpu(name)?;
        self.note(name, Ok(format!("BTF, offset {offset:#x} in .data..percpu")));
        Some(offset)
    }

    /// Whether the tick keeps idle times (NO_HZ): `tick_cpu_sched` stands at `offset`.
    pub(crate) fn idle_is_counted_by_tick(&mut self, cpus: &[CpuPlace], offset: u64) -> bool {
        let used =
            cpus.iter().any(|cpu| self.reader.idle_sleep_ns(cpu.base.wrapping_add(offset)).is_some_and(|ns| ns > 0));
        let how =
            if used { "tick_cpu_sched, ns" } else { "kernel_cpustat, ticks: the kernel counts no sleeps (nohz=off)" };
        self.note("idle time", Ok(how.to_owned()));
        used
    }

    /// Notes a count that is beyond what collectors cover.
    pub(crate) fn note_limit(&mut self, name: &str, count: u32, limit: u32) {
        let covered = if count > limit {
            Err(format!("{count}; only the first {limit} are covered"))
        } else {
            Ok(count.to_string())
        };
        self.note(name, covered);
    }
}
