// SPDX-License-Identifier: Apache-2.0
//! Bytes of each flow in a capture: added up here for some thousands of flows at a time, as switches do, and told when others need their places.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;

/// Flows that are added up at once.
const MOST: usize = 4096;

/// What was in a capture.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets that are of no flow: other protocols, later fragments, damaged ones.
    pub(super) others: u64,
}

/// Tells the bytes of each flow, which may come several times.
pub(super) fn count(path: &Path, tell: impl FnMut(&[u8], u64) -> Result<(), String>) -> Result<Counted, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    if path == Path::new("-") {
        return read(io::stdin().lock(), tell).map_err(|error| said(&error));
    }
    let file = File::open(path).map_err(|error| said(&error))?;
    read(file, tell).map_err(|error| said(&error))
}

fn read(from: impl Read, mut tell: impl FnMut(&[u8], u64) -> Result<(), String>) -> Result<Counted, String> {
    let mut capture = PcapReader::new(from).map_err(|error| format!("{error}; is it a capture in pcap format?"))?;
    let link = capture.header().datalink;
    if ![DataLink::ETHERNET, DataLink::RAW].contains(&link) {
        return Err(format!("its packets have link type {link:?}; Ethernet and raw IP can be read"));
    }
    let (mut counted, mut flows) = (Counted::default(), HashMap::<Vec<u8>, u64>::new());
    while let Some(packet) = capture.next_packet() {
        let packet = packet.map_err(|error| error.to_string())?;
        let sliced = match link {
            DataLink::ETHERNET => SlicedPacket::from_ethernet(&packet.data),
            _ => SlicedPacket::from_ip(&packet.data),
        };
        let Some(flow) = sliced.ok().as_ref().and_then(flow_of) else {
            counted.others += 1;
            continue;
        };
        counted.packets += 1;
        // As it was on the wire, though less of it may have been kept.
        counted.bytes += u64::from(packet.orig_len);
        if flows.len() >= MOST && !flows.contains_key(&flow) {
            flows.drain().try_for_each(|(flow, bytes)| tell(&flow, bytes))?;
        }
        *flows.entry(flow).or_default() += u64::from(packet.orig_len);
    }
    flows.drain().try_for_each(|(flow, bytes)| tell(&flow, bytes))?;
    Ok(counted)
}

/// Addresses, ports, protocol: as `onlooker_telemetry::text` has flows.
fn flow_of(packet: &SlicedPacket<'_>) -> Option<Vec<u8>> {
    let addresses = match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) => [&ip.header().source()[..], &ip.header().destination()].concat(),
        NetSlice::Ipv6(ip) => [&ip.header().source()[..], &ip.header().destination()].concat(),
        NetSlice::Arp(_) => return None,
    };
    let (source, destination, protocol) = match packet.transport.as_ref()? {
        TransportSlice::Tcp(tcp) => (tcp.source_port(), tcp.destination_port(), 6),
        TransportSlice::Udp(udp) => (udp.source_port(), udp.destination_port(), 17),
        TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_) => return None,
    };
    Some([addresses, source.to_be_bytes().to_vec(), destination.to_be_bytes().to_vec(), vec![protocol]].concat())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use etherparse::PacketBuilder;
    use onlooker_telemetry::text::Format;
    use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

    use super::*;

    fn capture(packets: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = PcapWriter::with_header(&mut file, PcapHeader::default()).unwrap();
        for data in packets {
            let length = u32::try_from(data.len()).unwrap();
            writer.write_packet(&PcapPacket::new(std::time::Duration::ZERO, length, &data)).unwrap();
        }
        file
    }

    fn packet(number: u16, payload: usize) -> Vec<u8> {
        let (source, destination) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(source, destination, 64);
        let mut bytes = Vec::new();
        ip.udp(number, 443).write(&mut bytes, &vec![0; payload]).unwrap();
        bytes
    }

    #[test]
    fn each_flow_s_bytes_are_told_however_many_flows_there_are() {
        let all = (0..10_000u16).chain(0..100).map(|number| packet(number, 100));
        let file = capture(all.chain([vec![0; 60]]));
        let mut sums: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let counted = read(&file[..], |flow, bytes| {
            *sums.entry(flow.to_vec()).or_default() += bytes;
            Ok(())
        });
        assert_eq!(counted, Ok(Counted { packets: 10_100, bytes: 10_100 * 142, others: 1 }));
        assert_eq!((sums.len(), sums.values().sum::<u64>()), (10_000, 10_100 * 142));
        let shown = |flow: &[u8]| Format::flow().show(flow);
        let twice: Vec<_> = sums.iter().filter(|(_, bytes)| **bytes == 284).map(|(flow, _)| shown(flow)).collect();
        assert_eq!((twice.len(), twice[0].as_str()), (100, "10.0.0.1:0>10.0.0.2:443/udp"));
    }

    #[test]
    fn what_is_no_capture_is_said() {
        let error = read(&b"no capture at all, but long enough"[..], |_, _| Ok(())).unwrap_err();
        assert!(error.contains("is it a capture in pcap format?"), "{error}");
        bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
            let _ = read(&[&capture(std::iter::once(packet(1, 1)))[..30], bytes].concat()[..], |_, _| Ok(()));
        });
    }
}
