// SPDX-License-Identifier: Apache-2.0
//! Group netstat: `netstat.bpf.c`. Counters of /proc/net/snmp, /proc/net/netstat and /proc/net/snmp6 of the loader's namespace, those that
//! node_exporter shows by default, on each CPU.

use std::collections::BTreeMap;

use onlooker_region::Schema;
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Sum, Type};

use super::facts::{MIB_ROOM, MIB_WORDS, MIBS, Mib, NETSTAT_SLOTS, NetstatFacts};
use crate::collect::counterpart::Counterpart;
use crate::collect::intf::Space;
use crate::collect::object::{Content, Image, Prepared};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/netstat.bpf.o"));
const FRONT: &str = "node_netstat_";

/// A list: member of struct netns_mib, structure that it is of.
type List = (&'static str, &'static str);
const TCP: List = ("tcp_statistics", "tcp_mib");
const UDP: List = ("udp_statistics", "udp_mib");
const UDP6: List = ("udp_stats_in6", "udp_mib");
const UDPLITE: List = ("udplite_statistics", "udp_mib");
const UDPLITE6: List = ("udplite_stats_in6", "udp_mib");
const IP: List = ("ip_statistics", "ipstats_mib");
const IP6: List = ("ipv6_statistics", "ipstats_mib");
const ICMP: List = ("icmp_statistics", "icmp_mib");
const ICMP6: List = ("icmpv6_statistics", "icmpv6_mib");
const EXT: List = ("net_statistics", "linux_mib");

/// What node_exporter's default `--collector.netstat.fields` lets through: name, list, enumerator of linux/snmp.h. Names as in net/ipv4/proc.c and
/// net/ipv6/proc.c. Ip_Forwarding is no counter.
const ITEMS: [(&str, List, &str); 41] = [
    ("Icmp6_InErrors", ICMP6, "ICMP6_MIB_INERRORS"),
    ("Icmp6_InMsgs", ICMP6, "ICMP6_MIB_INMSGS"),
    ("Icmp6_OutMsgs", ICMP6, "ICMP6_MIB_OUTMSGS"),
    ("Icmp_InErrors", ICMP, "ICMP_MIB_INERRORS"),
    ("Icmp_InMsgs", ICMP, "ICMP_MIB_INMSGS"),
    ("Icmp_OutMsgs", ICMP, "ICMP_MIB_OUTMSGS"),
    ("Ip6_InOctets", IP6, "IPSTATS_MIB_INOCTETS"),
    ("Ip6_OutOctets", IP6, "IPSTATS_MIB_OUTOCTETS"),
    ("IpExt_InOctets", IP, "IPSTATS_MIB_INOCTETS"),
    ("IpExt_OutOctets", IP, "IPSTATS_MIB_OUTOCTETS"),
    ("TcpExt_ListenDrops", EXT, "LINUX_MIB_LISTENDROPS"),
    ("TcpExt_ListenOverflows", EXT, "LINUX_MIB_LISTENOVERFLOWS"),
    ("TcpExt_SyncookiesFailed", EXT, "LINUX_MIB_SYNCOOKIESFAILED"),
    ("TcpExt_SyncookiesRecv", EXT, "LINUX_MIB_SYNCOOKIESRECV"),
    ("TcpExt_SyncookiesSent", EXT, "LINUX_MIB_SYNCOOKIESSENT"),
    ("TcpExt_TCPOFOQueue", EXT, "LINUX_MIB_TCPOFOQUEUE"),
    ("TcpExt_TCPRcvQDrop", EXT, "LINUX_MIB_TCPRCVQDROP"),
    ("TcpExt_TCPSynRetrans", EXT, "LINUX_MIB_TCPSYNRETRANS"),
    ("TcpExt_TCPTimeouts", EXT, "LINUX_MIB_TCPTIMEOUTS"),
    ("Tcp_ActiveOpens", TCP, "TCP_MIB_ACTIVEOPENS"),
    (ESTABLISHED, TCP, "TCP_MIB_CURRESTAB"),
    ("Tcp_InErrs", TCP, "TCP_MIB_INERRS"),
    ("Tcp_InSegs", TCP, "TCP_MIB_INSEGS"),
    ("Tcp_OutRsts", TCP, "TCP_MIB_OUTRSTS"),
    ("Tcp_OutSegs", TCP, "TCP_MIB_OUTSEGS"),
    ("Tcp_PassiveOpens", TCP, "TCP_MIB_PASSIVEOPENS"),
    ("Tcp_RetransSegs", TCP, "TCP_MIB_RETRANSSEGS"),
    ("Udp6_InDatagrams", UDP6, "UDP_MIB_INDATAGRAMS"),
    ("Udp6_InErrors", UDP6, "UDP_MIB_INERRORS"),
    ("Udp6_NoPorts", UDP6, "UDP_MIB_NOPORTS"),
    ("Udp6_OutDatagrams", UDP6, "UDP_MIB_OUTDATAGRAMS"),
    ("Udp6_RcvbufErrors", UDP6, "UDP_MIB_RCVBUFERRORS"),
    ("Udp6_SndbufErrors", UDP6, "UDP_MIB_SNDBUFERRORS"),
    ("UdpLite6_InErrors", UDPLITE6, "UDP_MIB_INERRORS"),
    ("UdpLite_InErrors", UDPLITE, "UDP_MIB_INERRORS"),
    ("Udp_InDatagrams", UDP, "UDP_MIB_INDATAGRAMS"),
    ("Udp_InErrors", UDP, "UDP_MIB_INERRORS"),
    ("Udp_NoPorts", UDP, "UDP_MIB_NOPORTS"),
    ("Udp_OutDatagrams", UDP, "UDP_MIB_OUTDATAGRAMS"),
    ("Udp_RcvbufErrors", UDP, "UDP_MIB_RCVBUFERRORS"),
    ("Udp_SndbufErrors", UDP, "UDP_MIB_SNDBUFERRORS"),
];
const _: () = assert!(ITEMS.len() <= NETSTAT_SLOTS);
/// A gauge: a connection may begin on one CPU and end on another, so a CPU's part can be negative.
const ESTABLISHED: &str = "Tcp_CurrEstab";

/// Finds the namespace's lists and what is where in them.
///
/// # Errors
/// Why the group cannot be had.
pub(super) fn prepare(discovery: &mut Discovery) -> Result<Prepared, String> {
    let cpus = discovery.cpu_count()?;
    let cpus = cpus.min(crate::collect::percpu::MAX_CPUS);
    let (net, cookie) = discovery.net_and_cookie()?;
    let offsets = discovery.percpu_offsets(cpus)?;
    let numbers = discovery.unnamed_enumerators(&ITEMS.map(|(_, _, enumerator)| enumerator))?;
    // Each list's numbers that are wanted, and who wants them.
    let mut wanted: BTreeMap<List, Vec<(usize, u32)>> = BTreeMap::new();
    for (slot, (name, list, enumerator)) in ITEMS.into_iter().enumerate() {
        match numbers.get(enumerator) {
            Some(number) => wanted.entry(list).or_default().push((slot, *number)),
            None => discovery.note(&format!("{FRONT}{name}"), Err(format!("BTF has no {enumerator}"))),
        }
    }
    let mut facts = NetstatFacts { space: Space { net, cookie }, mibs: Vec::new(), items: [0; NETSTAT_SLOTS] };
    let mut slots = Vec::new();
    let mut at = 1;
    for ((member, kind), items) in wanted {
        match list_of(discovery, net, member, kind) {
            Ok(numbers) => {
                let first = items.iter().map(|(_, number)| *number).min().unwrap_or(0);
                let words = items.iter().map(|(_, number)| number - first + 1).max().unwrap_or(0);
                if words > MIB_WORDS || at > MIB_ROOM - MIB_WORDS || facts.mibs.len() == MIBS {
                    return Err(format!("{words} numbers of {member} are more than the program has room for"));
                }
                for (slot, number) in items {
                    facts.items[slot] = u16::try_from(at + number - first).unwrap_or(0);
                    slots.push(slot);
                }
                facts.mibs.push(Mib { first: numbers + 8 * u64::from(first), words, at });
                at += words;
            }
            Err(reason) => discovery.note(member, Err(reason)),
        }
    }
    let contents = vec![
        Content::array("facts", [facts.to_bytes()]),
        Content::array("offsets", offsets.iter().map(|offset| offset.to_le_bytes().to_vec())),
    ];
    let image = Image { object: OBJECT, contents, maps: &[] };
    Ok(Prepared { image, schema: schema(cpus, &slots), counterpart: Counterpart::Samples(|_| ()) })
}

/// Per-CPU address of a list's numbers.
fn list_of(discovery: &Discovery, net: u64, member: &str, kind: &str) -> Result<u64, String> {
    let pointer = discovery.word(net + discovery.offset("net", &["mib", member])?)?;
    if pointer == 0 {
        return Err("the namespace has no such counters".to_owned());
    }
    Ok(pointer + discovery.offset(kind, &["mibs"])?)
}

fn schema(cpus: u32, slots: &[usize]) -> Schema {
    let stride = u32::try_from(NETSTAT_SLOTS).unwrap_or(u32::MAX);
    let fields = (0u32..).zip(ITEMS).filter(|(slot, _)| slots.contains(&(*slot as usize))).map(|(slot, (name, ..))| {
        let (metric, kind) =
            if name == ESTABLISHED { (Metric::Gauge, Type::I64) } else { (Metric::Counter, Type::U64) };
        let mut field = Field::new(&format!("{FRONT}{name}"), metric, kind, slot);
        field.help = format!("Statistic {}.", name.replace('_', ""));
        field.sum = Some(Sum::default());
        field.array = Some(Array { label: "cpu".into(), count: cpus, stride, values: None });
        field
    });
    let mut group = Group::new(Kind::Computed, cpus.div_ceil(2), fields.collect());
    group.acquisition = Acquisition::Computed;
    Schema { name: super::Group::NETSTAT.region().into(), groups: vec![group] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_cpus_has_a_good_schema() {
        let slots: Vec<usize> = (0..ITEMS.len()).collect();
        for cpus in (1..10).chain([crate::collect::percpu::MAX_CPUS]) {
            let schema = schema(cpus, &slots);
            schema.check().unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(schema.blocks(), cpus.div_ceil(2));
        }
    }
}
