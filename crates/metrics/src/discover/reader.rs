// SPDX-License-Identifier: Apache-2.0
//! Kernel memory through `discover.bpf.c`: one run of a program a question, a map for question and answer.

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, absent, bpf};
use onlooker_responder::log::with_log;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/discover.bpf.o"));
/// Most bytes of one read: COLLECT_READ_BYTES.
const READ_BYTES: usize = 4096;
/// Where the fields of `struct onlooker_exchange` stand.
const ADDRESS: usize = 0;
const BYTES: usize = 8;
const CPU: usize = 12;
const RUNQUEUE: usize = 16;
const PERCPU_OFFSET: usize = 24;
const NET: usize = 32;
const JIFFIES: usize = 40;
const NOW: usize = 48;
const DATA: usize = 56;
/// Bytes of `struct onlooker_exchange`.
const EXCHANGE_BYTES: usize = DATA + READ_BYTES;

/// The loaded programs.
pub(super) struct Reader {
    object: Object,
    exchange: MapHandle,
}

impl Reader {
    pub(super) fn load() -> Result<Self> {
        let (result, log) = with_log(|| {
            let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
            let map = object.maps().find(|map| map.name() == "exchange");
            let map = map.ok_or_else(|| absent("map `exchange`"))?;
            let exchange = MapHandle::try_from(&map)?;
            Ok((object, exchange))
        });
        let (object, exchange) = result.map_err(|source| Error::Load { source, log })?;
        Ok(Self { object, exchange })
    }

    /// Runs a program on a question; gives its verdict and the answer.
    fn ask(&self, name: &str, address: u64, bytes: u32, cpu: u32) -> Result<(u32, Vec<u8>)> {
        let mut exchange = vec![0; EXCHANGE_BYTES];
        exchange[ADDRESS..ADDRESS + 8].copy_from_slice(&address.to_le_bytes());
        exchange[BYTES..BYTES + 4].copy_from_slice(&bytes.to_le_bytes());
        exchange[CPU..CPU + 4].copy_from_slice(&cpu.to_le_bytes());
        self.exchange.update(&[0; 4], &exchange, MapFlags::ANY).map_err(bpf(
            "writing",
            "exchange",
            CHECK_KERNEL_LOG,
        ))?;
        let missing = || absent(name);
        let output = self
            .object
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(missing)
            .and_then(|program| program.test_run(ProgramInput::default()))
            .map_err(bpf("BPF_PROG_TEST_RUN", name, CHECK_KERNEL_LOG))?;
        let answer =
            self.exchange.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", "exchange", CHECK_KERNEL_LOG))?;
        Ok((output.return_value, answer.filter(|answer| answer.len() == EXCHANGE_BYTES).unwrap_or(exchange)))
    }

    /// As [`Reader::ask`], where a verdict other than 0 is a reason.
    fn find(&self, name: &str, cpu: u32, at: usize) -> std::result::Result<u64, String> {
        match self.ask(name, 0, 0, cpu) {
            Ok((0, answer)) => Ok(word(&answer, at)),
            Ok((1, _)) => Err("this kernel has not the structures that lead there".to_owned()),
            Ok((verdict, _)) => Err(format!("{name} gave up at step {verdict} on CPU {cpu}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// `struct rq` of a CPU.
    pub(super) fn runqueue(&self, cpu: u32) -> std::result::Result<u64, String> {
        self.find("find_runqueue", cpu, RUNQUEUE)
    }

    /// `__per_cpu_offset[cpu]`.
    pub(super) fn percpu_offset(&self, cpu: u32) -> std::result::Result<u64, String> {
        self.find("find_percpu_offset", cpu, PERCPU_OFFSET)
    }

    /// `struct net` of the caller.
    pub(super) fn net(&self) -> std::result::Result<u64, String> {
        self.find("find_net", 0, NET)
    }

    /// `idle_sleeptime` of a `struct tick_sched`.
    pub(super) fn idle_sleep_ns(&self, tick: u64) -> Option<u64> {
        match self.ask("read_idle_sleep", tick, 0, 0) {
            Ok((0, answer)) => Some(word(&answer, DATA)),
            _ => None,
        }
    }

    /// Jiffies and CLOCK_MONOTONIC in ns, at one instant.
    pub(super) fn clocks(&self) -> Result<(u64, u64)> {
        let (_, answer) = self.ask("clocks", 0, 0, 0)?;
        Ok((word(&answer, JIFFIES), word(&answer, NOW)))
    }

    /// `struct proto` of a socket of this process.
    pub(super) fn proto(&self, socket: u64) -> Option<u64> {
        match self.ask("find_proto", socket, 0, 0) {
            Ok((0, answer)) => Some(word(&answer, DATA)).filter(|address| *address > 0),
            _ => None,
        }
    }

    /// `struct task_struct` of this thread.
    pub(super) fn task(&self) -> Option<u64> {
        match self.ask("find_task", 0, 0, 0) {
            Ok((0, answer)) => Some(word(&answer, DATA)).filter(|address| *address > 0),
            _ => None,
        }
    }

    /// `struct super_block` of this process's root.
    pub(super) fn super_block(&self) -> Option<u64> {
        match self.ask("find_super_block", 0, 0, 0) {
            Ok((0, answer)) => Some(word(&answer, DATA)).filter(|address| *address > 0),
            _ => None,
        }
    }

    /// Up to 4 KiB of kernel memory; `None` where the address is bad.
    pub(super) fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let bytes = bytes.min(READ_BYTES);
        match self.ask("read_memory", address, u32::try_from(bytes).ok()?, 0) {
            Ok((0, answer)) => Some(answer[DATA..DATA + bytes].to_vec()),
            _ => None,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exchange_is_as_in_the_header() {
        let header = include_str!("../../bpf/intf.h");
        for (field, at) in [
            ("address", ADDRESS),
            ("bytes", BYTES),
            ("cpu", CPU),
            ("runqueue", RUNQUEUE),
            ("percpu_offset", PERCPU_OFFSET),
            ("net", NET),
            ("jiffies", JIFFIES),
            ("now_ns", NOW),
            ("data", DATA),
        ] {
            assert!(header.contains(&format!("COLLECT_OFFSET(onlooker_exchange, {field}, {at});")), "{field}");
        }
        assert!(header.contains(&format!("#define COLLECT_READ_BYTES {READ_BYTES}\n")));
        assert!(header.contains(&format!("COLLECT_SIZE(onlooker_exchange, {DATA} + COLLECT_READ_BYTES);")));
    }
}
