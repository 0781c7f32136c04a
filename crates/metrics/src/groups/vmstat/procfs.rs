// SPDX-License-Identifier: Apache-2.0
//! Group `vmstat`: /proc/vmstat, the lines of node_exporter's default choice (`^(oom_kill|pgpg|pswp|pg.*fault).*`).

use std::io;

use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

const fn line(name: &'static str, help: &'static str) -> Definition {
    // What grows is a counter; node_exporter has no types here.
    Definition::counter(name, help)
}

static LINES: [(&[u8], Definition); 7] = [
    (b"pgpgin", line("node_vmstat_pgpgin", "/proc/vmstat information field pgpgin.")),
    (b"pgpgout", line("node_vmstat_pgpgout", "/proc/vmstat information field pgpgout.")),
    (b"pswpin", line("node_vmstat_pswpin", "/proc/vmstat information field pswpin.")),
    (b"pswpout", line("node_vmstat_pswpout", "/proc/vmstat information field pswpout.")),
    (b"pgfault", line("node_vmstat_pgfault", "/proc/vmstat information field pgfault.")),
    (b"pgmajfault", line("node_vmstat_pgmajfault", "/proc/vmstat information field pgmajfault.")),
    (b"oom_kill", line("node_vmstat_oom_kill", "/proc/vmstat information field oom_kill.")),
];

struct Vmstat(Source);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Vmstat(Source::open("/proc/vmstat")?), ask, context)
}

fn parse(line: &[u8]) -> Option<(&'static Definition, u64)> {
    let mut words = words(line);
    let name = words.next()?;
    let (_, definition) = LINES.iter().find(|(known, _)| *known == name)?;
    Some((definition, number(words.next()?)?))
}

impl Read for Vmstat {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["vmstat"], |context| {
            self.0.each_line(context.buffer, |line| {
                if let Some((definition, value)) = parse(line) {
                    values.put(definition, &[], value);
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
        let parsed = |line: &[u8]| parse(line).map(|(definition, value)| (definition.name, value));
        assert_eq!(parsed(b"pgpgin 123"), Some(("node_vmstat_pgpgin", 123)));
        assert_eq!(parsed(b"oom_kill 0"), Some(("node_vmstat_oom_kill", 0)));
        for line in ["pgpgin", "pgpgin -1", "pgpgin x", "nr_free_pages 1", "", "pgpginx 1"] {
            assert_eq!(parsed(line.as_bytes()), None, "{line}");
        }
    }
}
