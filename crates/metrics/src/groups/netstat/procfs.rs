// SPDX-License-Identifier: Apache-2.0
//! Group `netstat`: /proc/net/netstat, /proc/net/snmp and /proc/net/snmp6 of the network namespace of the thread that makes it, the counters of node_exporter's default choice
//! (those of its releases up to 1.9, and `Tcp_MaxConn`).

use std::io;

use crate::procfs::{LINE_BYTES, Source, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

macro_rules! statistics {
    ($($kind:ident $protocol:literal $($name:literal)+;)*) => {
        /// Protocol and name in the files.
        static STATISTICS: &[(&[u8], &[u8], Definition)] = &[$($((
            $protocol.as_bytes(),
            $name.as_bytes(),
            $kind(concat!("node_netstat_", $protocol, "_", $name), concat!("Statistic ", $protocol, $name, ".")),
        )),+),*];
    };
}

const fn counter(name: &'static str, help: &'static str) -> Definition {
    Definition::counter(name, help)
}

/// Tcp_MaxConn is -1 where there is no limit.
const fn gauge(name: &'static str, help: &'static str) -> Definition {
    Definition::gauge(name, help).signed()
}

// node_exporter has no types here.
statistics! {
    gauge "Ip" "Forwarding";
    counter "IpExt" "InOctets" "OutOctets";
    counter "Ip6" "InOctets" "OutOctets";
    counter "Icmp" "InMsgs" "InErrors" "OutMsgs";
    counter "Icmp6" "InMsgs" "InErrors" "OutMsgs";
    counter "Tcp" "ActiveOpens" "PassiveOpens" "InSegs" "OutSegs" "OutRsts" "RetransSegs" "InErrs";
    gauge "Tcp" "CurrEstab" "MaxConn";
    counter "TcpExt" "ListenOverflows" "ListenDrops" "SyncookiesSent" "SyncookiesRecv" "SyncookiesFailed";
    counter "TcpExt" "TCPSynRetrans" "TCPTimeouts" "TCPOFOQueue" "TCPRcvQDrop";
    counter "Udp" "InDatagrams" "NoPorts" "InErrors" "OutDatagrams" "RcvbufErrors" "SndbufErrors";
    counter "Udp6" "InDatagrams" "NoPorts" "InErrors" "OutDatagrams" "RcvbufErrors" "SndbufErrors";
    counter "UdpLite" "InErrors";
    counter "UdpLite6" "InErrors";
}

/// Files in lines of two, names and values, and the one of a line each.
struct Netstat {
    paired: Vec<Source>,
    single: Option<Source>,
    names: Vec<u8>,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let file = |name: &str| Source::open(&format!("/proc/thread-self/net/{name}"));
    let paired = vec![file("netstat")?, file("snmp")?];
    // There is none without IPv6.
    let single = file("snmp6").ok();
    listed(Netstat { paired, single, names: Vec::with_capacity(LINE_BYTES) }, ask, context)
}

fn find(protocol: &[u8], name: &[u8]) -> Option<&'static Definition> {
    STATISTICS.iter().find(|(of, called, _)| *of == protocol && *called == name).map(|(_, _, definition)| definition)
}

fn integer(text: &[u8]) -> Option<i64> {
    // Counters of 64 bits stay what they are until 2^63.
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A line of values and the one of names before it.
fn pair(names: &[u8], line: &[u8], mut put: impl FnMut(&'static Definition, i64)) {
    let (mut names, mut values) = (words(names), words(line));
    let (Some(protocol), Some(same)) = (names.next(), values.next()) else { return };
    let Some(protocol) = protocol.strip_suffix(b":").filter(|_| protocol == same) else { return };
    for (name, value) in names.zip(values) {
        if let (Some(definition), Some(value)) = (find(protocol, name), integer(value)) {
            put(definition, value);
        }
    }
}

/// A line of /proc/net/snmp6: `Udp6InErrors 3`.
fn single(line: &[u8]) -> Option<(&'static Definition, i64)> {
    let mut words = words(line);
    let name = words.next()?;
    let six = name.iter().position(|byte| *byte == b'6')?;
    let (protocol, name) = name.split_at(six + 1);
    Some((find(protocol, name)?, integer(words.next()?)?))
}

impl Read for Netstat {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["netstat"], |context| {
            let Self { paired, single: file, names } = self;
            for source in paired {
                names.clear();
                source.each_line(context.buffer, |line| {
                    if names.is_empty() {
                        names.extend_from_slice(line);
                    } else {
                        pair(names, line, |definition, value| values.put_signed(definition, &[], value));
                        names.clear();
                    }
                })?;
            }
            match file {
                Some(source) => source.each_line(context.buffer, |line| {
                    if let Some((definition, value)) = single(line) {
                        values.put_signed(definition, &[], value);
                    }
                }),
                None => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_two() {
        let mut got = Vec::new();
        let mut put = |definition: &'static Definition, value| got.push((definition.name, value));
        pair(b"Tcp: RtoMin MaxConn InSegs", b"Tcp: 200 -1 77", &mut put);
        // Of different protocols, of different lengths, of no protocol, not numbers.
        pair(b"Tcp: InSegs", b"Udp: 5", &mut put);
        pair(b"Tcp: InSegs OutSegs", b"Tcp: 5", &mut put);
        pair(b"InSegs", b"5", &mut put);
        pair(b"", b"", &mut put);
        pair(b"Tcp: InSegs OutSegs", b"Tcp: x 99999999999999999999", &mut put);
        assert_eq!(
            got,
            [("node_netstat_Tcp_MaxConn", -1), ("node_netstat_Tcp_InSegs", 77), ("node_netstat_Tcp_InSegs", 5)]
        );
    }

    #[test]
    fn lines_of_one() {
        let parsed = |line: &[u8]| single(line).map(|(definition, value)| (definition.name, value));
        assert_eq!(parsed(b"Udp6InErrors                    \t3"), Some(("node_netstat_Udp6_InErrors", 3)));
        assert_eq!(parsed(b"UdpLite6InErrors 1"), Some(("node_netstat_UdpLite6_InErrors", 1)));
        for line in ["Ip6InReceives 1", "Udp6InErrors", "Udp6InErrors x", "", "InErrors 1", "6 1"] {
            assert_eq!(parsed(line.as_bytes()), None, "{line}");
        }
    }
}
