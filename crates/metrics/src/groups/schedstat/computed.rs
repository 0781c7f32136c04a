// SPDX-License-Identifier: Apache-2.0
//! Group schedstat: `schedstat.bpf.c`. Only kernels with CONFIG_SCHEDSTATS keep these.

use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind};

use super::FIELDS;
use crate::collect::intf::{CPUS_PER_BLOCK, address_bytes};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{cpus, push_for_all};
use crate::collect::procfs::{Procfs, Reading, series};
use crate::discover::Discovery;
use crate::sampled::metric::Definition;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/schedstat.bpf.o"));
const FILE: &str = "/proc/schedstat";

pub(super) fn absence() -> Option<String> {
    let error = fs::metadata(FILE).err()?;
    Some(format!("{FILE}: {error}: the kernel is built without CONFIG_SCHEDSTATS"))
}

/// Finds each CPU's run queue.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    discovery.offset("rq", &["rq_sched_info"])?;
    let places = cpus(discovery)?;
    let elements = places.iter().map(|place| address_bytes(place.runqueue));
    let contents = vec![Content::array("schedstat_cpus", elements)];
    let schema = schema(u32::try_from(places.len()).unwrap_or(u32::MAX));
    Ok(Prepared { image: Image { object: OBJECT, contents, maps: &[] }, schema, procfs: Box::new(reading) })
}

fn reading() -> io::Result<Reading> {
    Ok(reading_of(&fs::read_to_string(FILE)?))
}

/// A CPU's line: nine numbers, of which the last three are ours (show_schedstat of kernel/sched/stats.c).
fn reading_of(text: &str) -> Reading {
    let mut reading = Reading::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(cpu) = words.next().and_then(|word| word.strip_prefix("cpu")) else { continue };
        for (Definition { name, scale, .. }, number) in FIELDS.iter().zip(words.skip(6)) {
            let Ok(number) = number.parse() else { continue };
            // Nanoseconds as a float of seconds.
            let value = Procfs { value: Procfs::exact(number).value * scale, rounding: *scale };
            reading.insert(series(name, [("cpu", cpu)]), value);
        }
    }
    reading
}

fn schema(cpus: u32) -> Schema {
    let mut fields = Vec::new();
    for (slot, definition) in (0..).zip(&FIELDS) {
        push_for_all(&mut fields, Field { slot, ..definition.field() }, cpus);
    }
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(CPUS_PER_BLOCK), fields);
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::SCHEDSTAT.region().into(), groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::percpu::MAX_CPUS;
    use crate::collect::percpu::tests::{of_eight, stands_where_the_program_puts_it};

    #[test]
    fn any_number_of_cpus_has_a_good_schema_with_each_value_in_its_place() {
        for cpus in (1..20).chain([64, 127, MAX_CPUS]) {
            let schema = schema(cpus);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus.div_ceil(8));
            stands_where_the_program_puts_it(&schema, 0, 8, of_eight);
        }
    }

    #[test]
    fn lines_of_cpus_are_read_and_those_of_domains_are_not() {
        let text = "version 15\ntimestamp 4295\ncpu0 0 0 0 0 0 0 2000000000 500000000 7\ndomain0 3 1 2 3 4 5 6 7 8 9\n";
        let reading = reading_of(text);
        let value = |name| reading[&series(name, [("cpu", "0")])].value;
        assert_eq!(FIELDS.each_ref().map(|field| value(field.name)), [2.0, 0.5, 7.0]);
        assert_eq!(reading.len(), 3);
    }
}
