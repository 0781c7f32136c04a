// SPDX-License-Identifier: Apache-2.0
//! Group load: `load.bpf.c`.

use std::fs;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Type};

use super::procfs::loadavg;
use super::{AVERAGES, RESOLUTION_NS};
use crate::collect::counterpart::{Counterpart, Reading, round};
use crate::collect::intf::address_bytes;
use crate::collect::object::{Content, Image, Prepared};
use crate::discover::{Discovery, Read};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/load.bpf.o"));
/// FIXED_1 of linux/sched/loadavg.h.
const ONE: f64 = 2048.0;
/// procfs rounds to hundredths.
const ROUNDING: f64 = 0.01;

/// Finds `avenrun`.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let loads = loads().map_err(|error| format!("/proc/loadavg: {error}"))?;
    let is_it = |address: u64, read: &Read<'_>| is_avenrun(&read(address, 24)?, loads).then_some(address);
    let avenrun = discovery.global("avenrun", &["get_avenrun", "loadavg_proc_show"], is_it)?;
    let contents = vec![Content::array("facts", [address_bytes(avenrun)])];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema: schema(), counterpart: Counterpart::Samples(adjust) })
}

/// On a machine that has been idle since boot the averages are 0, and so are many other places: nothing is decided then.
fn is_avenrun(bytes: &[u8], loads: [f64; 3]) -> bool {
    let mut any = false;
    let equal = bytes.as_chunks::<8>().0.iter().zip(loads).all(|(bytes, load)| {
        let value = u64::from_le_bytes(*bytes);
        any |= value > 0;
        #[allow(clippy::cast_precision_loss, reason = "rounded anyway")]
        let kernel = value as f64 / ONE;
        (kernel - load).abs() <= ROUNDING
    });
    equal && any
}

fn schema() -> Schema {
    let fields = (0..).zip(AVERAGES).map(|(slot, (name, help))| {
        let mut field = Field::new(name, Metric::Gauge, Type::U64, slot);
        (field.scale, field.help, field.resolution_ns) = (1.0 / ONE, help.into(), RESOLUTION_NS);
        field
    });
    let mut group = Group::new(Kind::Computed, 1, fields.collect());
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::LOAD.region().into(), groups: vec![group] }
}

/// The three averages of /proc/loadavg.
fn loads() -> io::Result<[f64; 3]> {
    loadavg(&fs::read("/proc/loadavg")?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn adjust(reading: &mut Reading) {
    AVERAGES.into_iter().for_each(|(metric, _)| round(reading, metric, ROUNDING));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_recognised_by_their_values() {
        let bytes = |loads: [u64; 3]| loads.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<_>>();
        assert!(is_avenrun(&bytes([2048, 1024, 512]), [1.0, 0.5, 0.25]));
        assert!(!is_avenrun(&bytes([2048, 1024, 512]), [1.0, 0.5, 0.28]));
        assert!(!is_avenrun(&bytes([0, 0, 0]), [0.0, 0.0, 0.0]));
        schema().check().unwrap();
    }
}
