// SPDX-License-Identifier: Apache-2.0
//! Group `memory`: /proc/meminfo, every line as the kernel has it.

use std::io;

use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{Field, Group, Kind, Metric, Type};

use crate::procfs::{Source, number, words};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

struct Memory {
    source: Source,
    /// Names in the file, by slot.
    names: Vec<Vec<u8>>,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let source = Source::open("/proc/meminfo")?;
    let mut lines = Vec::new();
    source.each_line(context.buffer, |line| lines.extend(field(line)))?;
    lines.retain(|(_, field)| ask.is_left(field));
    lines.truncate(GUARDED_SLOTS);
    let (names, fields): (Vec<Vec<u8>>, Vec<Field>) = lines.into_iter().unzip();
    let fields = (0..).zip(fields).map(|(slot, field)| Field { slot, ..field }).collect();
    let groups = vec![Group::new(Kind::Guarded, 1, fields)];
    Ok(Made { groups, sampler: Box::new(Memory { source, names }) })
}

/// Name in the file and field of a line.
fn field(line: &[u8]) -> Option<(Vec<u8>, Field)> {
    let (name, _, kib) = meminfo(line)?;
    let mut field = Field::new(&meminfo_metric(name, kib)?, Metric::Gauge, Type::U64, 0);
    field.help = format!("Memory information field {}.", String::from_utf8_lossy(name));
    if kib {
        (field.unit, field.scale) = ("bytes".into(), 1024.0);
    }
    Some((name.to_vec(), field))
}

impl Sampler for Memory {
    fn sample(&mut self, place: &Place, context: &mut Context) -> io::Result<()> {
        let Self { source, names } = self;
        timed(context, &["meminfo"], |context| {
            let mut values = [0; GUARDED_SLOTS];
            let mut next = 0;
            source.each_line(context.buffer, |line| {
                let Some((name, value, _)) = meminfo(line) else { return };
                // The kernel's order does not change while it runs, so the first look finds it.
                let found = names.get(next).filter(|expected| *expected == name).map(|_| next);
                if let Some(slot) = found.or_else(|| names.iter().position(|known| known == name)) {
                    values[slot] = value;
                    next = slot + 1;
                }
            })?;
            place.put(0, context.now_ns, &values[..names.len()]);
            Ok(())
        })
    }
}

/// A line of /proc/meminfo: name, value, whether the value is in kB.
pub(crate) fn meminfo(line: &[u8]) -> Option<(&[u8], u64, bool)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let mut words = words(&line[colon + 1..]);
    let value = number(words.next()?)?;
    Some((&line[..colon], value, words.next() == Some(b"kB")))
}

/// The name that node_exporter gives a line of /proc/meminfo: `Active(anon)` becomes `node_memory_Active_anon_bytes`.
pub(crate) fn meminfo_metric(name: &[u8], kib: bool) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?.replace('(', "_").replace(')', "");
    let fine = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fine.then(|| format!("node_memory_{name}{}", if kib { "_bytes" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::LINE_BYTES;

    #[test]
    fn meminfo_lines_have_node_exporters_names() {
        for (line, value, name) in [
            ("MemTotal:       24684264 kB", 24_684_264, "node_memory_MemTotal_bytes"),
            ("Active(anon):      12 kB", 12, "node_memory_Active_anon_bytes"),
            ("HugePages_Total:       3", 3, "node_memory_HugePages_Total"),
        ] {
            let (text, number, kib) = meminfo(line.as_bytes()).unwrap();
            assert_eq!((number, meminfo_metric(text, kib).as_deref()), (value, Some(name)));
        }
        assert_eq!(meminfo(b"MemTotal: lots"), None);
        assert_eq!(meminfo_metric(b"a b", false), None);
    }

    #[test]
    fn no_line_breaks_a_parser() {
        bolero::check!().for_each(|line: &[u8]| {
            let _ = meminfo(line);
        });
    }

    #[test]
    fn this_machine_s_file_parses() {
        let mut lines = 0;
        let count = |line: &[u8]| lines += usize::from(meminfo(line).is_some());
        Source::open("/proc/meminfo").unwrap().each_line(&mut [0; LINE_BYTES], count).unwrap();
        assert!(lines >= 20, "{lines}");
    }
}
