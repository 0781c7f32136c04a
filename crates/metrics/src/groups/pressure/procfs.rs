// SPDX-License-Identifier: Apache-2.0
//! Group `pressure`: /proc/pressure (PSI), the totals. Absent where the kernel has no PSI or `psi=0`.

use std::io;

use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

const fn total(name: &'static str, help: &'static str) -> Definition {
    Definition::counter(name, help).unit("seconds", 1e-6)
}

static CPU: Definition =
    total("node_pressure_cpu_waiting_seconds_total", "Total time in seconds that processes have waited for CPU time");
static IO: Definition = total(
    "node_pressure_io_waiting_seconds_total",
    "Total time in seconds that processes have waited due to IO congestion",
);
static IO_FULL: Definition = total(
    "node_pressure_io_stalled_seconds_total",
    "Total time in seconds no process could make progress due to IO congestion",
);
static MEMORY: Definition =
    total("node_pressure_memory_waiting_seconds_total", "Total time in seconds that processes have waited for memory");
static MEMORY_FULL: Definition = total(
    "node_pressure_memory_stalled_seconds_total",
    "Total time in seconds no process could make progress due to memory congestion",
);
static IRQ_FULL: Definition = total(
    "node_pressure_irq_stalled_seconds_total",
    "Total time in seconds no process could make progress due to IRQ congestion",
);

struct File {
    source: Source,
    some: Option<&'static Definition>,
    full: Option<&'static Definition>,
}

struct Pressure(Vec<File>);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let file = |path, some, full| Source::open(path).map(|source| File { source, some, full });
    // The "full" of cpu is always 0 for the system (psi_show in kernel/sched/psi.c), and node_exporter has it not.
    let mut files = vec![
        file("/proc/pressure/cpu", Some(&CPU), None)?,
        file("/proc/pressure/io", Some(&IO), Some(&IO_FULL))?,
        file("/proc/pressure/memory", Some(&MEMORY), Some(&MEMORY_FULL))?,
    ];
    // Linux 6.1, with IRQ_TIME_ACCOUNTING.
    files.extend(file("/proc/pressure/irq", None, Some(&IRQ_FULL)));
    listed(Pressure(files), ask, context)
}

/// A line: whether it is "full", and its total.
fn parse(line: &[u8]) -> Option<(bool, u64)> {
    let mut words = words(line);
    let is_full = match words.next()? {
        b"some" => false,
        b"full" => true,
        _ => return None,
    };
    Some((is_full, number(words.find_map(|word| word.strip_prefix(b"total="))?)?))
}

impl Read for Pressure {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["pressure"], |context| {
            self.0.iter().try_for_each(|File { source, some, full }| {
                source.each_line(context.buffer, |line| {
                    let Some((is_full, total)) = parse(line) else { return };
                    if let Some(definition) = if is_full { full } else { some } {
                        values.put(definition, &[], total);
                    }
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(
            parse(b"some avg10=31.21 avg60=20.44 avg300=10.24 total=15741243693"),
            Some((false, 15_741_243_693))
        );
        assert_eq!(parse(b"full avg10=0.00 avg60=0.00 avg300=0.00 total=0"), Some((true, 0)));
        for line in ["", "some", "some total", "some total=", "some total=-1", "other total=1", "total=1"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
