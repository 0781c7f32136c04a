// SPDX-License-Identifier: Apache-2.0
//! Group `vmstat`: /proc/vmstat, the lines of node_exporter's default choice (`^(oom_kill|pgpg|pswp|pg.*fault).*`).

use std::io;

use super::EVENTS;
use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

struct Vmstat(Source);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Vmstat(Source::open("/proc/vmstat")?), ask, context)
}

fn parse(line: &[u8]) -> Option<(&'static Definition, u64)> {
    let mut words = words(line);
    let name = words.next()?;
    let event = EVENTS.iter().find(|event| event.line.as_bytes() == name)?;
    Some((&event.metric, number(words.next()?)?))
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
