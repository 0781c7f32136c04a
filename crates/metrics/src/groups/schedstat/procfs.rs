// SPDX-License-Identifier: Apache-2.0
//! Group `schedstat`: /proc/schedstat, the times of each CPU. Absent where the kernel is built without CONFIG_SCHEDSTATS.

use std::io;

use super::FIELDS;
use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

/// Place of the running time behind the CPU's name (show_schedstat in kernel/sched/stats.c); waiting time and slices follow.
const RUNNING_COLUMN: usize = 6;

struct Schedstat(Source);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Schedstat(Source::open("/proc/schedstat")?), ask, context)
}

/// A CPU's number, time running, time that tasks waited, slices.
fn parse(line: &[u8]) -> Option<(u64, [u64; 3])> {
    let mut words = words(line);
    let cpu = number(words.next()?.strip_prefix(b"cpu")?)?;
    let mut columns = words.skip(RUNNING_COLUMN).map(number);
    let mut next = || columns.next().flatten();
    Some((cpu, [next()?, next()?, next()?]))
}

impl Read for Schedstat {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["schedstat"], |context| {
            self.0.each_line(context.buffer, |line| {
                let Some((cpu, columns)) = parse(line) else { return };
                for (definition, value) in FIELDS.iter().zip(columns) {
                    values.put_at(definition, &[], cpu, value);
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(parse(b"cpu3 0 0 1 2 3 4 498494191 22378 101"), Some((3, [498_494_191, 22_378, 101])));
        for line in [
            "version 17",
            "timestamp 4295",
            "domain0 MC 03 1 2 3",
            "cpu 1 2 3 4 5 6 7 8 9",
            "cpu0 1 2 3 4 5 6 7 8",
            "cpu0 1 2 3 4 5 6 7 8 x",
            "",
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
