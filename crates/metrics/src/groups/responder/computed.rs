// SPDX-License-Identifier: Apache-2.0
//! Group responder: `responder.bpf.c`. Its counterpart is no file but the same counters, read by system calls.

use std::io;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Type};
use onlooker_responder::{Exit, Responder};

use super::facts::RESPONDER_CPUS_PER_BLOCK;
use crate::collect::counterpart::{Counterpart, Procfs, Reading, series};
use crate::collect::intf::PAIR_SLOTS;
use crate::collect::object::{Image, Prepared};
use crate::procfs::present_cpus;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/responder.bpf.o"));
const NAME: &str = "onlooker_responder_packets_total";

/// Takes the counters of `responder`; without one (a survey), counters that nobody counts.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(responder: Option<&Responder>) -> Result<Prepared, String> {
    let cpus = present_cpus().map_err(|error| format!("/sys/devices/system/cpu/present: {error}"))?;
    let cpus = cpus.min(crate::collect::percpu::MAX_CPUS);
    let counters = responder.and_then(|responder| responder.map("counters")).map(MapHandle::try_from).transpose();
    let counters = counters.map_err(|error| format!("counters: {error}"))?;
    let read = move || reading(counters.as_ref(), cpus);
    Ok(Prepared {
        image: Image { object: OBJECT, contents: Vec::new(), maps: &["counters"] },
        schema: schema(cpus),
        counterpart: Counterpart::Own(Box::new(read)),
    })
}

fn reading(counters: Option<&MapHandle>, cpus: u32) -> io::Result<Reading> {
    let mut reading = Reading::new();
    for exit in Exit::ALL {
        let values = match counters {
            Some(counters) => {
                counters.lookup_percpu(&(exit as u32).to_le_bytes(), MapFlags::ANY).map_err(io::Error::other)?
            }
            None => None,
        };
        for cpu in 0..cpus {
            let value = values.as_ref().and_then(|values| values.get(cpu as usize));
            let value = value.and_then(|value| value.as_slice().try_into().ok()).map_or(0, u64::from_le_bytes);
            let key = series(NAME, [("exit", exit.name()), ("cpu", cpu.to_string().as_str())]);
            reading.insert(key, Procfs::exact(value));
        }
    }
    Ok(reading)
}

fn schema(cpus: u32) -> Schema {
    let fields = Exit::ALL.iter().map(|exit| {
        let mut field = Field::new(NAME, Metric::Counter, Type::U64, *exit as u32 - 1);
        field.help = "Packets for the responder, by how they left it.".into();
        field.labels.insert("exit".into(), exit.name().into());
        field.array = Some(Array { label: "cpu".into(), count: cpus, stride: PAIR_SLOTS, values: None });
        field
    });
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(RESPONDER_CPUS_PER_BLOCK), fields.collect());
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::RESPONDER.region().into(), groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema() {
        for cpus in (1..10).chain([crate::collect::percpu::MAX_CPUS]) {
            schema(cpus).check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
        }
    }
}
