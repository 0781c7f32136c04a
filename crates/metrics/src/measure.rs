// SPDX-License-Identifier: Apache-2.0
//! How long a collector takes: its own programs run on a packet by BPF_PROG_TEST_RUN, on maps of its own, before it may take part in anything. The tail call at its end
//! finds an empty table there and comes back, or (a user's object) a program that does nothing: what is measured is the collector alone.

use std::os::fd::AsFd as _;

use libbpf_rs::{MapCore as _, MapFlags, Object, num_possible_cpus};
use onlooker_responder::error::{CHECK_KERNEL_LOG, Result, absent, bpf};
use onlooker_responder::intf::OFFSET_AT;
use onlooker_responder::program::{self, Run};

use crate::collect::object::map_of;

/// Runs are measured together, the least is taken of so many measurements: interrupts, neighbours and the hypervisor only add.
const ROUNDS: usize = 11;
const RUNS: u32 = 200;
/// An Ethernet frame that nobody looks at.
const FRAME: [u8; 64] = [0; 64];

/// What the program `name` says of block `block`.
pub(crate) fn verdict(object: &Object, name: &str, block: u32) -> Result<u32> {
    Ok(run(object, name, block, 1)?.verdict)
}

/// ns a run of the program `name` takes for block `block` when nothing disturbs it.
pub(crate) fn run_ns(object: &Object, name: &str, block: u32) -> Result<u64> {
    least_ns(|| Ok(u64::from(run(object, name, block, RUNS)?.duration_ns)))
}

/// What a collector is judged by: the least of all measurements, of which none may fail.
fn least_ns(mut measured_ns: impl FnMut() -> Result<u64>) -> Result<u64> {
    let mut least_ns = u64::MAX;
    for _ in 0..ROUNDS {
        least_ns = least_ns.min(measured_ns()?);
    }
    Ok(least_ns)
}

fn run(object: &Object, name: &str, block: u32, runs: u32) -> Result<Run> {
    let scratch = map_of(object, "scratch")?;
    let cpus = num_possible_cpus().map_err(bpf("counting", "CPUs", CHECK_KERNEL_LOG))?;
    let mut value = vec![0; scratch.value_size() as usize];
    value[OFFSET_AT..OFFSET_AT + 8].copy_from_slice(&(u64::from(block) * 1024).to_le_bytes());
    let values = vec![value; cpus];
    scratch.update_percpu(&[0; 4], &values, MapFlags::ANY).map_err(bpf("writing", "scratch", CHECK_KERNEL_LOG))?;
    let program = object.progs().find(|program| program.name() == name).ok_or_else(|| absent(name));
    let program = program.map_err(bpf("finding", name, CHECK_KERNEL_LOG))?;
    program::run(program.as_fd(), &FRAME, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_judged_by_the_least_of_eleven_wherever_it_comes() {
        for quiet in 0..ROUNDS {
            let mut disturbed_ns = (0..).map(|round| if round == quiet { 4_300 } else { 9_000 + 700 * round as u64 });
            assert_eq!(least_ns(|| Ok(disturbed_ns.next().expect("without end"))).expect("none fails"), 4_300);
            assert_eq!(disturbed_ns.next(), Some(9_000 + 700 * ROUNDS as u64), "eleven, and no more");
        }
        assert_eq!(ROUNDS, 11);
        let mut rounds = 0;
        let failed = least_ns(|| {
            rounds += 1;
            if rounds < 3 { Ok(1) } else { Err(bpf("running", "it", CHECK_KERNEL_LOG)(absent("collect_tc"))) }
        });
        assert!(failed.is_err() && rounds == 3, "what failed once says nothing of how long it takes");
    }
}
