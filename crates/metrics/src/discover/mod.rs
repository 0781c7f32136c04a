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

use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use libbpf_rs::btf::Btf;
use onlooker_responder::error::Result;

pub(crate) use operands::Read;
pub(crate) use percpu::CpuPlace;
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

/// Steps along the kernel's list of protocols: there are some fifty.
const MAX_PROTOCOLS: usize = 256;
/// Steps along the kernel's list of mounted file systems.
const MAX_FILE_SYSTEMS: u32 = 16_384;
/// Ancestors of a task: as many as nested namespaces of processes have, many times over.
const MAX_ANCESTORS: u32 = 4096;
/// Of `name` in struct proto.
const PROTOCOL_NAME_BYTES: usize = 32;

/// What is known about the running kernel.
pub(crate) struct Discovery {
    reader: Reader,
    symbols: Symbols,
    types: std::result::Result<Types, String>,
    findings: Vec<Finding>,
    begin: (u64, u64),
    as_if_cpus: Option<u32>,
}

impl Discovery {
    /// Loads what reads the kernel's memory, and reads symbols and types. Without `data_symbols` it looks for variables as on a kernel without
    /// KALLSYMS_ALL.
    ///
    /// # Errors
    /// [`crate::Error::Load`], [`crate::Error::Bpf`]: without these programs nothing can be found. All else ends as a finding.
    pub(crate) fn new(data_symbols: bool) -> Result<Self> {
        Self::begin(&symbols::WANTED, data_symbols)
    }

    /// The same with the addresses of further symbols, as far as kallsyms lists them.
    ///
    /// # Errors
    /// As [`Discovery::new`].
    pub(crate) fn with_symbols(more: &[&str]) -> Result<Self> {
        Self::begin(&[&symbols::WANTED[..], more].concat(), true)
    }

    fn begin(wanted: &[&str], data_symbols: bool) -> Result<Self> {
        let reader = Reader::load()?;
        let begin = reader.clocks()?;
        let types = Types::of_kernel();
        let symbols = Symbols::read("/proc/kallsyms", wanted, data_symbols);
        let mut discovery = Self { reader, symbols, types, findings: Vec::new(), begin, as_if_cpus: None };
        let btf = match &discovery.types {
            Ok(_) => Ok("/sys/kernel/btf/vmlinux".to_owned()),
            Err(reason) => Err(reason.clone()),
        };
        discovery.note("BTF", btf);
        let symbols = discovery.symbols.summary();
        discovery.note("kallsyms", symbols);
        Ok(discovery)
    }

    /// The same, as on a machine with `cpus` CPUs: those that are not there are those that are, over and over.
    ///
    /// # Errors
    /// As [`Discovery::new`].
    #[cfg(feature = "hooks")]
    pub(crate) fn as_if(cpus: u32) -> Result<Self> {
        Ok(Self { as_if_cpus: Some(cpus), ..Self::new(true)? })
    }

    /// Whether what is found is this machine.
    pub(crate) fn is_real(&self) -> bool {
        self.as_if_cpus.is_none()
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

    /// Numbers of enumerators of enumerations without a name; those that BTF has not are left out.
    ///
    /// # Errors
    /// Why none is known.
    pub(crate) fn unnamed_enumerators(
        &mut self,
        names: &[&'static str],
    ) -> std::result::Result<HashMap<&'static str, u32>, String> {
        self.types.as_ref().map(|types| types.unnamed_enumerators(names)).map_err(Clone::clone)
    }

    /// Where a member of a structure stands, in bytes. `path` leads through structures within it.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn offset(&self, of: &str, path: &[&str]) -> std::result::Result<u64, String> {
        let types = self.types.as_ref().map_err(Clone::clone)?;
        types.offset(of, path).ok_or_else(|| format!("BTF has no {} in struct {of}", path.join(".")))
    }

    /// The kernel's types.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn btf(&self) -> std::result::Result<&Btf<'static>, String> {
        self.types.as_ref().map(Types::btf).map_err(Clone::clone)
    }

    /// Up to 4 KiB of the kernel's memory; `None` where the address is bad.
    pub(crate) fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        self.reader.read(address, bytes)
    }

    /// Address of the first task of all, `init_task`: the ancestor of the loader that is its own parent.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn init_task(&mut self) -> std::result::Result<u64, String> {
        let found = self.walk_ancestors();
        let how = |found: &(u64, u32)| format!("{} parents above the loader", found.1);
        self.note("init_task", found.as_ref().map(how).map_err(Clone::clone));
        found.map(|(address, _)| address)
    }

    fn walk_ancestors(&self) -> std::result::Result<(u64, u32), String> {
        let (parent_at, pid_at) =
            (self.offset("task_struct", &["real_parent"])?, self.offset("task_struct", &["pid"])?);
        let mut task = self.reader.task().ok_or("no way to the loader's own task")?;
        for step in 0..MAX_ANCESTORS {
            let parent = self.word(task + parent_at)?;
            if parent == task {
                let pid = self.read(task + pid_at, 4).ok_or("a task's number cannot be read")?;
                return if pid == [0; 4] {
                    Ok((task, step))
                } else {
                    Err("a task without parent is not the first".into())
                };
            }
            task = parent;
        }
        Err(format!("more than {MAX_ANCESTORS} ancestors"))
    }

    /// A number of 64 bits, in the kernel's memory.
    ///
    /// # Errors
    /// That the address is bad.
    pub(crate) fn word(&self, address: u64) -> std::result::Result<u64, String> {
        let bytes = self.reader.read(address, 8).and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u64::from_le_bytes)
            .ok_or_else(|| "the kernel's memory cannot be read where a structure should be".to_owned())
    }

    /// The protocols that sockets may have (proto_list of net/core/sock.c), by name: those reached from TCP's, which a socket of ours leads to.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn protocols(&mut self) -> std::result::Result<HashMap<String, u64>, String> {
        let found = self.walk_protocols();
        let how = |found: &HashMap<String, u64>| format!("proto_list from TCP's on, {} of them", found.len());
        self.note("protocols", found.as_ref().map(how).map_err(Clone::clone));
        found
    }

    fn walk_protocols(&self) -> std::result::Result<HashMap<String, u64>, String> {
        let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
        let socket = socket.map_err(|errno| format!("a TCP socket: {errno}"))?;
        let descriptor = u64::from(socket.as_raw_fd().unsigned_abs());
        let first = self.reader.proto(descriptor).ok_or("no way from a socket to its protocol")?;
        let (name_at, node_at) = (self.offset("proto", &["name"])?, self.offset("proto", &["node"])?);
        let mut found = HashMap::new();
        let mut at = first;
        for _ in 0..MAX_PROTOCOLS {
            let name = self.reader.read(at + name_at, PROTOCOL_NAME_BYTES).ok_or("a protocol's name cannot be read")?;
            let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or(&[])).into_owned();
            found.entry(name).or_insert(at);
            // The head of the list, met once, stands in no protocol: its name is nobody's.
            at = self.word(at + node_at)?.wrapping_sub(node_at);
            if at == first {
                return Ok(found);
            }
        }
        Err(format!("more than {MAX_PROTOCOLS} protocols"))
    }

    /// Address of the list of all block devices' inodes: of the file system `bdev`, found in the kernel's list of file systems from the root's on.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn block_devices(&mut self) -> std::result::Result<u64, String> {
        let found = self.walk_file_systems();
        let how = |steps: &(u64, u32)| format!("file system bdev, {} behind the root's", steps.1);
        self.note("block devices", found.as_ref().map(how).map_err(Clone::clone));
        found.map(|(address, _)| address)
    }

    fn walk_file_systems(&self) -> std::result::Result<(u64, u32), String> {
        let member = |name| self.offset("super_block", &[name]);
        let (next_at, type_at, inodes_at) = (member("s_list")?, member("s_type")?, member("s_inodes")?);
        let name_at = self.offset("file_system_type", &["name"])?;
        let first = self.reader.super_block().ok_or("no way from a task to its file system")?;
        let is_it = |address: u64| {
            let name = self.word(self.word(address + type_at).ok()? + name_at).ok()?;
            self.reader.read(name, 5).map(|name| name == b"bdev\0")
        };
        let mut at = first;
        for step in 0..MAX_FILE_SYSTEMS {
            // The head of the list, met once, stands in none: what is read of it is nobody's.
            if is_it(at) == Some(true) {
                return Ok((at + inodes_at, step));
            }
            at = self.word(at + next_at)?.wrapping_sub(next_at);
            if at == first {
                break;
            }
        }
        Err(format!("not among the first {MAX_FILE_SYSTEMS} file systems"))
    }

    /// Address of a per-CPU variable, less a CPU's `__per_cpu_offset`: as the pointers are that alloc_percpu gives.
    ///
    /// # Errors
    /// Why it is not known.
    pub(crate) fn percpu_pointer(&mut self, name: &str) -> std::result::Result<u64, String> {
        let base = self.cpus(1)?.first().map_or(0, |place| place.base);
        let first = self.percpu_offsets(1)?.first().copied().unwrap_or(0);
        Ok(base.wrapping_add(self.percpu(name)?).wrapping_sub(first))
    }

    /// Address and cookie of the caller's network namespace: the cookie is never given to another one.
    ///
    /// # Errors
    /// Why they are not known.
    pub(crate) fn net_and_cookie(&mut self) -> std::result::Result<(u64, u64), String> {
        let net = self.net()?;
        let cookie = self.word(net + self.offset("net", &["net_cookie"])?)?;
        Ok((net, cookie))
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

    /// Address of one of the symbols asked for; `None` where kallsyms does not list it.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.address(name)
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
