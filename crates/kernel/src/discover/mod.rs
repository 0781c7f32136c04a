// SPDX-License-Identifier: Apache-2.0
//! Where the running kernel keeps its variables, for collectors that read them.
//!
//! Symbols come from /proc/kallsyms where the kernel lists data there (KALLSYMS_ALL). Where it does not: a CPU's variables stand at BTF's offsets from its
//! run queue, which the caller's task group points at; and a global variable is an operand in the code of a function that uses it, accepted only if what
//! is there equals procfs. Nothing is attached: programs of type `syscall` run in the loader's own context and answer through a map.
//!
//! A `Discovery` is used by one thread, for the time of one installation; what it found and how is in its [`Finding`]s. Cost: 60-150 ms, most of it
//! BTF and kallsyms. Needs CAP_BPF, CAP_PERFMON and, to see addresses in kallsyms, CAP_SYSLOG; the kernel's BTF (CONFIG_DEBUG_INFO_BTF).

mod operands;
mod percpu;
mod reader;
mod symbols;
mod types;

use std::time::Duration;

use crate::error::Result;

pub(crate) use operands::Read;
use reader::Reader;
use symbols::Symbols;
use types::Types;

/// How something of the kernel was found, or why it was not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kernel's name of it.
    pub name: String,
    /// How it was found, or why not.
    pub result: std::result::Result<String, String>,
}

/// Two readings of the clock are this far apart at least, so that HZ comes out: 24 to 26 ticks at 250 Hz, 29 to 31 at 300.
const HZ_INTERVAL: Duration = Duration::from_millis(100);
/// Values of CONFIG_HZ.
const HZ: [u64; 5] = [100, 250, 300, 1000, 1024];

/// What is known about the running kernel.
pub(crate) struct Discovery {
    reader: Reader,
    symbols: Symbols,
    types: std::result::Result<Types, String>,
    findings: Vec<Finding>,
    begin: (u64, u64),
}

impl Discovery {
    /// Loads what reads the kernel's memory, and reads symbols and types. Without `data_symbols` it looks for variables as on a kernel without
    /// KALLSYMS_ALL.
    ///
    /// # Errors
    /// [`crate::Error::Load`], [`crate::Error::Bpf`]: without these programs nothing can be found. All else ends as a finding.
    pub(crate) fn new(data_symbols: bool) -> Result<Self> {
        let reader = Reader::load()?;
        let begin = reader.clocks()?;
        let types = Types::of_kernel();
        let symbols = Symbols::read("/proc/kallsyms", &symbols::WANTED, data_symbols);
        let mut discovery = Self { reader, symbols, types, findings: Vec::new(), begin };
        let btf = match &discovery.types {
            Ok(_) => Ok("/sys/kernel/btf/vmlinux".to_owned()),
            Err(reason) => Err(reason.clone()),
        };
        discovery.note("BTF", btf);
        let symbols = discovery.symbols.summary();
        discovery.note("kallsyms", symbols);
        Ok(discovery)
    }

    /// All that was found or missed up to now.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.findings
    }

    /// Notes what was found or not; the first word on a name counts.
    pub(crate) fn note(&mut self, name: &str, result: std::result::Result<String, String>) {
        if !self.findings.iter().any(|finding| finding.name == name) {
            self.findings.push(Finding { name: name.to_owned(), result });
        }
    }

    /// Length of a tick, ns.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn tick_ns(&mut self) -> std::result::Result<u64, String> {
        let mut now = self.reader.clocks().map_err(|error| error.to_string())?;
        let wait = u64::try_from(HZ_INTERVAL.as_nanos()).unwrap_or(u64::MAX);
        if let Some(left) = wait.checked_sub(now.1 - self.begin.1) {
            std::thread::sleep(Duration::from_nanos(left));
            now = self.reader.clocks().map_err(|error| error.to_string())?;
        }
        let (jiffies, time_ns) = (now.0 - self.begin.0, now.1 - self.begin.1);
        let hz = nearest_hz(jiffies, time_ns);
        self.note("HZ", Ok(format!("{hz}: {jiffies} jiffies in {} ms", time_ns / 1_000_000)));
        Ok(1_000_000_000 / hz)
    }

    /// Number of an enumerator.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn enumerator(&mut self, of: &str, name: &str) -> std::result::Result<u32, String> {
        let types = self.types.as_ref().map_err(Clone::clone)?;
        types.enumerator(of, name).ok_or_else(|| format!("BTF has no {name} in enum {of}"))
    }

    /// Address of the caller's network namespace.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn net(&mut self) -> std::result::Result<u64, String> {
        let result = self.reader.net();
        self.note("network namespace", result.clone().map(|_| "current->nsproxy->net_ns of the loader".to_owned()));
        result
    }

    /// Address of a global variable: from kallsyms, else among the operands of `functions`. `is_it` is given a candidate and a way to read memory, and
    /// compares what is there with procfs.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn global(
        &mut self,
        name: &'static str,
        functions: &[&str],
        is_it: impl Fn(u64, &Read<'_>) -> Option<u64>,
    ) -> std::result::Result<u64, String> {
        let read = |address: u64, bytes: usize| self.reader.read(address, bytes);
        let found = operands::find(&self.symbols, &read, name, functions, is_it);
        let (result, how) = match found {
            Ok((address, how)) => (Ok(address), Ok(how)),
            Err(reason) => (Err(reason.clone()), Err(reason)),
        };
        self.note(name, how);
        result
    }

    /// Whether the kernel has a function that is not always inlined.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.symbols.address(name).is_some()
    }

    /// Address of a function.
    pub(crate) fn function(&self, name: &str) -> Option<u64> {
        self.symbols.address(name)
    }
}

/// The value of CONFIG_HZ that explains so many ticks best.
fn nearest_hz(jiffies: u64, time_ns: u64) -> u64 {
    let expected = |hz: u64| u128::from(hz) * u128::from(time_ns) / 1_000_000_000;
    HZ.into_iter().min_by_key(|hz| expected(*hz).abs_diff(u128::from(jiffies))).unwrap_or(HZ[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hz_comes_out_of_a_tenth_of_a_second_despite_a_tick_more_or_less() {
        for hz in [100, 250, 300, 1000] {
            let ticks = hz / 10;
            for jiffies in ticks - 1..=ticks + 1 {
                assert_eq!(nearest_hz(jiffies, 100_000_000), hz, "{jiffies}");
            }
        }
    }
}
