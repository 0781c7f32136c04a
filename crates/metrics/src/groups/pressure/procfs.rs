// SPDX-License-Identifier: Apache-2.0
//! Group `pressure`: /proc/pressure (PSI), the totals. Absent where the kernel has no PSI or `psi=0`.

use std::io;

use super::{STALLS, Stall};
use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

/// A resource's file.
struct File {
    source: Source,
    resource: &'static str,
}

struct Pressure(Vec<File>);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let file = |resource: &'static str| {
        Source::open(&format!("/proc/pressure/{resource}")).map(|source| File { source, resource })
    };
    let mut files = vec![file("cpu")?, file("io")?, file("memory")?];
    // Linux 6.1, with IRQ_TIME_ACCOUNTING.
    files.extend(file("irq"));
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
            self.0.iter().try_for_each(|File { source, resource }| {
                source.each_line(context.buffer, |line| {
                    let Some((is_full, total)) = parse(line) else { return };
                    let is_it = |stall: &&Stall| stall.resource == *resource && stall.is_full == is_full;
                    if let Some(stall) = STALLS.iter().find(is_it) {
                        values.put(&stall.total, &[], total);
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
