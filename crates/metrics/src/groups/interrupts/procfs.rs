// SPDX-License-Identifier: Apache-2.0
//! Group `interrupts`: /proc/interrupts, each line by CPU. The kernel takes a while to print it where there are many, hence a shortest interval.

use std::io;

use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

static INTERRUPTS: Definition =
    Definition::counter("node_interrupts_total", "Interrupt details.").labels(&["devices", "info", "type"]).by("cpu");

struct Interrupts {
    source: Source,
    cpus: Vec<u64>,
    counts: Vec<u64>,
    text: String,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let source = Source::open("/proc/interrupts")?;
    listed(Interrupts { source, cpus: Vec::new(), counts: Vec::new(), text: String::new() }, ask, context)
}

/// The header: numbers of the CPUs that are online.
fn header(line: &[u8], cpus: &mut Vec<u64>) {
    cpus.clear();
    cpus.extend(words(line).map_while(|word| number(word.strip_prefix(b"CPU")?)));
}

/// A line's type, information and devices, as node_exporter takes it apart; its counts go to `counts`. `text` holds the devices. Lines that have not a count for each CPU
/// (ERR, MIS) are left out.
fn parse<'a>(
    line: &'a [u8],
    cpus: usize,
    counts: &mut Vec<u64>,
    text: &'a mut String,
) -> Option<(&'a str, &'a str, &'a str)> {
    counts.clear();
    text.clear();
    let mut words = words(line);
    let kind = std::str::from_utf8(words.next()?.strip_suffix(b":")?).ok()?;
    counts.extend(words.by_ref().take(cpus).map_while(number));
    if counts.len() < cpus || cpus == 0 {
        return None;
    }
    let is_numbered = number(kind.as_bytes()).is_some();
    let info =
        if is_numbered { words.next().and_then(|word| std::str::from_utf8(word).ok()).unwrap_or_default() } else { "" };
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(std::str::from_utf8(word).ok()?);
    }
    Some(if is_numbered { (kind, info, text) } else { (kind, text, "") })
}

impl Read for Interrupts {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        let Self { source, cpus, counts, text } = self;
        timed(context, &["interrupts"], |context| {
            cpus.clear();
            source.each_line(context.buffer, |line| {
                if cpus.is_empty() {
                    return header(line, cpus);
                }
                if let Some((kind, info, devices)) = parse(line, cpus.len(), counts, text) {
                    let labels = [devices, info, kind];
                    cpus.iter()
                        .zip(counts.iter())
                        .for_each(|(cpu, count)| values.put_at(&INTERRUPTS, &labels, *cpu, *count));
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
        let mut cpus = Vec::new();
        header(b"           CPU0       CPU2       ", &mut cpus);
        assert_eq!(cpus, [0, 2]);
        let mut counts = Vec::new();
        let mut parsed = |line: &[u8]| {
            let mut text = String::new();
            let found = parse(line, 2, &mut counts, &mut text);
            found.map(|(kind, info, devices)| (kind.to_owned(), info.to_owned(), devices.to_owned()))
        };
        let owned =
            |kind: &str, info: &str, devices: &str| Some((kind.to_owned(), info.to_owned(), devices.to_owned()));
        assert_eq!(
            parsed(b" 36:     7  2624626 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0"),
            owned("36", "PCI-MSIX-0000:00:02.0", "1-edge virtio1-req.0")
        );
        assert_eq!(parsed(b"LOC:   1   2   Local timer interrupts"), owned("LOC", "Local timer interrupts", ""));
        assert_eq!(parsed(b"9: 1 2"), owned("9", "", ""));
        for line in ["ERR:  0", "", ":", "LOC 1 2", "LOC: 1 x Local", "LOC: 1"] {
            assert_eq!(parsed(line.as_bytes()), None, "{line}");
        }
        parsed(b"LOC: 5 6 x");
        assert_eq!(counts, [5, 6]);
    }
}
