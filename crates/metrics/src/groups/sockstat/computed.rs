// SPDX-License-Identifier: Apache-2.0
//! Group sockstat: `sockstat.bpf.c`. What /proc/net/sockstat and sockstat6 have of the loader's namespace.

use std::collections::HashMap;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Field, Group, Kind, Metric, Sum, Type};

use super::facts::{Number, SOCKSTAT_PARTS, SOCKSTAT_WHOLES, SockstatFacts};
use crate::collect::counterpart::Counterpart;
use crate::collect::intf::{CPUS_PER_BLOCK, Space};
use crate::collect::object::{Content, Image, Prepared};
use crate::collect::percpu::{MAX_CPUS, push_for_all};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sockstat.bpf.o"));
const FRONT: &str = "node_sockstat_";

/// A number that is kept once.
#[derive(Clone, Copy)]
enum Whole {
    /// Connections in TIME_WAIT.
    TimeWait,
    /// Memory of a protocol, in pages.
    Pages(&'static str),
    /// The same in bytes.
    Bytes(&'static str),
    /// Datagrams that wait for their fragments, of a version of IP.
    Fragments(&'static str),
    /// Their memory in bytes.
    FragmentBytes(&'static str),
}

const WHOLES: [(&str, Whole); 9] = [
    ("TCP_tw", Whole::TimeWait),
    ("TCP_mem", Whole::Pages("TCP")),
    ("TCP_mem_bytes", Whole::Bytes("TCP")),
    ("UDP_mem", Whole::Pages("UDP")),
    ("UDP_mem_bytes", Whole::Bytes("UDP")),
    ("FRAG_inuse", Whole::Fragments("ipv4")),
    ("FRAG_memory", Whole::FragmentBytes("ipv4")),
    ("FRAG6_inuse", Whole::Fragments("ipv6")),
    ("FRAG6_memory", Whole::FragmentBytes("ipv6")),
];
const _: () = assert!(WHOLES.len() <= SOCKSTAT_WHOLES);

/// A number of each CPU.
#[derive(Clone, Copy)]
enum Part {
    /// All sockets.
    Used,
    /// Sockets of a protocol, by its name in struct proto.
    InUse(&'static str),
    /// TCP sockets that no process has any more.
    Orphans,
    /// TCP sockets that have memory.
    Allocated,
}

const PARTS: [(&str, Part); 11] = [
    ("sockets_used", Part::Used),
    ("TCP_inuse", Part::InUse("TCP")),
    ("TCP_orphan", Part::Orphans),
    ("TCP_alloc", Part::Allocated),
    ("UDP_inuse", Part::InUse("UDP")),
    ("UDPLITE_inuse", Part::InUse("UDP-Lite")),
    ("RAW_inuse", Part::InUse("RAW")),
    ("TCP6_inuse", Part::InUse("TCPv6")),
    ("UDP6_inuse", Part::InUse("UDPv6")),
    ("UDPLITE6_inuse", Part::InUse("UDPLITEv6")),
    ("RAW6_inuse", Part::InUse("RAWv6")),
];
const _: () = assert!(PARTS.len() <= SOCKSTAT_PARTS);

/// Finds each number.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let cpus = discovery.cpu_count()?;
    let cpus = cpus.min(MAX_CPUS);
    let page_bytes = u32::try_from(rustix::param::page_size()).map_err(|_| "pages of 4 GiB or more".to_owned())?;
    let (net, cookie) = discovery.net_and_cookie()?;
    let offsets = discovery.percpu_offsets(cpus)?;
    let protocols = discovery.protocols()?;
    let mut facts = SockstatFacts {
        space: Space { net, cookie },
        wholes: [Number::default(); SOCKSTAT_WHOLES],
        parts: [Number::default(); SOCKSTAT_PARTS],
    };
    let (mut wholes, mut parts) = (Vec::new(), Vec::new());
    for (slot, (name, whole)) in (0u32..).zip(WHOLES) {
        match find_whole(discovery, net, &protocols, whole) {
            Ok(number) => {
                facts.wholes[slot as usize] = number;
                let mut field = gauge(name, slot);
                if matches!(whole, Whole::Bytes(_)) {
                    field.scale = f64::from(page_bytes);
                }
                wholes.push(field);
            }
            Err(reason) => discovery.note(&format!("{FRONT}{name}"), Err(reason)),
        }
    }
    for (slot, (name, part)) in (0u32..).zip(PARTS) {
        match find_part(discovery, net, &protocols, part) {
            Ok(number) => {
                facts.parts[slot as usize] = number;
                push_for_all(&mut parts, part_of(name, slot), cpus);
            }
            Err(reason) => discovery.note(&format!("{FRONT}{name}"), Err(reason)),
        }
    }
    let contents = vec![
        Content::array("facts", [facts.to_bytes()]),
        Content::array("offsets", offsets.iter().map(|offset| offset.to_le_bytes().to_vec())),
    ];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema: schema(cpus, wholes, parts), counterpart: Counterpart::Samples(|_| ()) })
}

fn find_whole(
    discovery: &Discovery,
    net: u64,
    protocols: &HashMap<String, u64>,
    whole: Whole,
) -> Result<Number, String> {
    let number = |address, width, add| Number { address, width, add, ..Number::default() };
    let member = |structure, path: &[&str]| discovery.offset(structure, path);
    let fragments = |version| {
        let queue = discovery.word(net + member("net", &[version, "fqdir"])?)?;
        if queue == 0 { Err("the namespace has none".to_owned()) } else { Ok(queue) }
    };
    match whole {
        // The namespace holds one itself (tcp_sk_init).
        Whole::TimeWait => Ok(number(net + member("net", &["ipv4", "tcp_death_row", "tw_refcount"])?, 4, -1)),
        Whole::Pages(name) | Whole::Bytes(name) => {
            let allocated = member("proto", &["memory_allocated"])?;
            Ok(number(discovery.word(protocol(protocols, name)? + allocated)?, 8, 0))
        }
        Whole::Fragments(version) => {
            Ok(number(fragments(version)? + member("fqdir", &["rhashtable", "nelems"])?, 4, 0))
        }
        Whole::FragmentBytes(version) => Ok(number(fragments(version)? + member("fqdir", &["mem"])?, 8, 0)),
    }
}

fn find_part(
    discovery: &mut Discovery,
    net: u64,
    protocols: &HashMap<String, u64>,
    part: Part,
) -> Result<Number, String> {
    let in_use = |member: &str, index: u64| -> Result<u64, String> {
        let list = discovery.word(net + discovery.offset("net", &["core", "prot_inuse"])?)?;
        Ok(list + discovery.offset("prot_inuse", &[member])? + 4 * index)
    };
    let address = match part {
        Part::Used => in_use("all", 0)?,
        Part::InUse(name) => {
            let index = discovery.word(protocol(protocols, name)? + discovery.offset("proto", &["inuse_idx"])?)?;
            in_use("val", index & u64::from(u32::MAX))?
        }
        Part::Orphans => discovery.percpu_pointer("tcp_orphan_count")?,
        Part::Allocated => {
            // percpu_counter_sum: the counters of the CPUs and what they have handed over.
            let member = discovery.offset("proto", &["sockets_allocated"])?;
            let counter = discovery.word(protocol(protocols, "TCP")? + member)?;
            let address = discovery.word(counter + discovery.offset("percpu_counter", &["counters"])?)?;
            let beside = counter + discovery.offset("percpu_counter", &["count"])?;
            return Ok(Number { address, beside, width: 4, add: 0 });
        }
    };
    Ok(Number { address, width: 4, ..Number::default() })
}

fn protocol(protocols: &HashMap<String, u64>, name: &str) -> Result<u64, String> {
    protocols.get(name).copied().ok_or_else(|| format!("this kernel has no protocol {name} now"))
}

fn gauge(name: &str, slot: u32) -> Field {
    let mut field = Field::new(&format!("{FRONT}{name}"), Metric::Gauge, Type::I64, slot);
    let state = name.split_once('_').map_or("", |(_, state)| state);
    field.help = format!("Number of {} sockets in state {state}.", name.split('_').next().unwrap_or(""));
    if state.ends_with("bytes") || state == "memory" {
        field.unit = "bytes".into();
    }
    field
}

/// A CPU's part of a number.
fn part_of(name: &str, slot: u32) -> Field {
    Field { sum: Some(Sum::default()), ..gauge(name, slot) }
}

fn schema(cpus: u32, wholes: Vec<Field>, parts: Vec<Field>) -> Schema {
    let group = |blocks, fields| {
        let mut group = Group::new(Kind::Computed, blocks, fields);
        group.acquisition = Acquisition::Computed;
        group
    };
    let groups = vec![group(1, wholes), group(cpus.div_ceil(CPUS_PER_BLOCK), parts)];
    Schema { name: super::Group::SOCKSTAT.region().into(), groups }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema() {
        for cpus in (1..20).chain([64, MAX_CPUS]) {
            let wholes = (0..).zip(WHOLES).map(|(slot, (name, _))| gauge(name, slot)).collect();
            let mut parts = Vec::new();
            (0..).zip(PARTS).for_each(|(slot, (name, _))| push_for_all(&mut parts, part_of(name, slot), cpus));
            schema(cpus, wholes, parts).check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
        }
    }
}
