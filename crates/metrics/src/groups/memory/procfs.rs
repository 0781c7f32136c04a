// SPDX-License-Identifier: Apache-2.0
//! Group `memory`: /proc/meminfo, every line as the kernel has it.

use std::io;

use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{Field, Group, Kind, Metric, Type};

use crate::procfs::{self, Source};
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
    let (name, _, kib) = procfs::meminfo(line)?;
    let mut field = Field::new(&procfs::meminfo_metric(name, kib)?, Metric::Gauge, Type::U64, 0);
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
                let Some((name, value, _)) = procfs::meminfo(line) else { return };
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
