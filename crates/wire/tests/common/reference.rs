// SPDX-License-Identifier: Apache-2.0
//! The straightforward parser: offsets into the frame, one condition after the other, CRC by `crc32fast`.

use onlooker_wire::{
    Acknowledge, Aeth, AtomicAnswer, FetchAdd, Frame, Packet, Part, ReadAnswer, ReadRequest, Reth, Tags, WritePart,
    WriteRequest,
};

/// A frame's content without any of the crate's types.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) macs: Vec<u8>,
    pub(crate) tags: Vec<u8>,
    pub(crate) addresses: Vec<u8>,
    pub(crate) ports: (u16, u16),
    pub(crate) opcode: u8,
    pub(crate) destination: u32,
    pub(crate) psn: u32,
    pub(crate) extension: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    /// Whether a WRITE asks for an acknowledgement.
    pub(crate) acknowledges: bool,
}

fn word(frame: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?])))
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

fn number24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Where the IP header starts.
fn ip_offset(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    while at <= 20 && matches!(word(frame, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    (at <= 20).then_some(at + 2)
}

/// Sum of an IPv4 header's words, carries folded in.
fn header_sum(header: &[u8]) -> usize {
    let sum: usize = (0..10).map(|at| word(header, 2 * at).unwrap()).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// ICRC of an IP packet without its last 4 bytes, whose IP header has `header` bytes.
fn icrc(packet: &[u8], header: usize) -> u32 {
    let mut masked = [vec![0xff; 8], packet.to_vec()].concat();
    let ip = &mut masked[8..];
    if header == 40 {
        ip[0] |= 0x0f;
    }
    let variant: &[usize] = if header == 20 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
    for at in variant.iter().copied().chain([header + 6, header + 7, header + 12]) {
        ip[at] = 0xff;
    }
    crc32fast::hash(&masked)
}

/// Makes the checksum of an IPv4 header right again.
pub(crate) fn reseal_header(frame: &mut [u8]) -> Option<()> {
    let ip = ip_offset(frame)?;
    if word(frame, ip - 2)? == 0x0800 {
        let header = frame.get_mut(ip..ip + 20)?;
        header[10..12].fill(0);
        let sum = u16::try_from(header_sum(header)).unwrap();
        header[10..12].copy_from_slice(&(!sum).to_be_bytes());
    }
    Some(())
}

/// Makes the IPv4 checksum and the ICRC of a changed frame right again, as far as it still has any.
pub(crate) fn reseal(frame: &mut [u8]) -> Option<()> {
    reseal_header(frame)?;
    let ip = ip_offset(frame)?;
    let (length, header) =
        if word(frame, ip - 2)? == 0x0800 { (word(frame, ip + 2)?, 20) } else { (word(frame, ip + 4)? + 40, 40) };
    let packet = frame.get_mut(ip..ip + length).filter(|packet| packet.len() >= header + 8 + 12 + 4)?;
    let crc = icrc(&packet[..length - 4], header);
    packet[length - 4..].copy_from_slice(&crc.to_le_bytes());
    Some(())
}

/// Parses a frame; `None` if anything is wrong with it.
pub(crate) fn parse(frame: &[u8]) -> Option<Seen> {
    let ip = ip_offset(frame)?;
    let (length, header, addresses) = match word(frame, ip - 2)? {
        0x0800 => {
            let header = frame.get(ip..ip + 20)?;
            let good =
                header[0] == 0x45 && header[6..8] == [0x40, 0] && header[9] == 17 && header_sum(header) == 0xffff;
            (word(header, 2).filter(|_| good)?, 20, 12..20)
        }
        0x86dd => {
            let header = frame.get(ip..ip + 40)?;
            (word(header, 4).filter(|_| header[0] >> 4 == 6 && header[6] == 17)? + 40, 40, 8..40)
        }
        _ => return None,
    };
    let packet = frame.get(ip..ip + length)?;
    if length < header + 8 + 12 + 4 || word(packet, header + 4)? != length - header {
        return None;
    }
    let bth = &packet[header + 8..header + 20];
    let body = &packet[header + 20..length - 4];
    let pad = usize::from(bth[1] >> 4 & 3);
    // Extension bytes, whether there are data, whether there must be some, whether they may be padded.
    let (extension, has_data, must, may_pad) = match bth[0] {
        0x06 => (16, true, true, false),
        0x07 => (0, true, true, false),
        0x08 => (0, true, true, true),
        0x09 => (4, true, true, true),
        0x0a => (16, true, false, true),
        0x0b => (20, true, false, true),
        0x0c => (16, false, false, false),
        0x0d => (4, true, true, false),
        0x0e => (0, true, true, false),
        0x0f => (4, true, true, true),
        0x10 => (4, true, false, true),
        0x11 => (4, false, false, false),
        0x12 => (12, false, false, false),
        0x14 => (28, false, false, false),
        _ => return None,
    };
    let data = body.len().checked_sub(extension + pad)?;
    let fits = body.len() % 4 == 0 && (has_data || data == 0) && (!must || data > 0) && (may_pad || pad == 0);
    let version_and_partition = bth[1] & 0x0f == 0 && (bth[2] & 0x7f, bth[3]) == (0x7f, 0xff);
    let crc = icrc(&packet[..length - 4], header) == u32::from_le_bytes(packet[length - 4..].try_into().unwrap());
    let syndrome = match bth[0] {
        0x0a | 0x0b => number(&body[12..16]) == data,
        0x06..=0x0c | 0x0e | 0x14 => true,
        0x11 => matches!(body[0], 0..=0x3f | 0x60..=0x63),
        _ => body[0] < 0x20,
    };
    (fits && version_and_partition && crc && syndrome).then(|| Seen {
        macs: frame[..12].to_vec(),
        tags: frame[12..ip - 2].to_vec(),
        addresses: packet[addresses].to_vec(),
        ports: (u16::from_be_bytes([packet[header], packet[header + 1]]), {
            u16::from_be_bytes([packet[header + 2], packet[header + 3]])
        }),
        opcode: bth[0],
        destination: number24(&bth[5..8]),
        psn: number24(&bth[9..12]),
        // The last word of a FETCH ADD is ignored.
        extension: body[..if bth[0] == 0x14 { 20 } else { extension }].to_vec(),
        payload: body[extension..extension + data].to_vec(),
        acknowledges: bth[8] & 0x80 != 0 && (0x06..0x0c).contains(&bth[0]),
    })
}

/// The same content out of what the crate parsed.
pub(crate) fn seen(frame: &Frame) -> Seen {
    let aeth_bytes = |aeth: Aeth| {
        let mut bytes = vec![aeth.syndrome.to_byte()];
        bytes.extend(aeth.msn.to_be_bytes());
        bytes
    };
    let (opcode, destination, psn, extension, payload) = match frame.packet {
        Packet::ReadRequest(ReadRequest { destination, psn, va, rkey, length_bytes }) => {
            let extension = [&va.to_be_bytes()[..], &rkey.to_be_bytes(), &length_bytes.to_be_bytes()].concat();
            (0x0c, destination, psn, extension, &[][..])
        }
        Packet::Acknowledge(Acknowledge { destination, psn, aeth }) => {
            (0x11, destination, psn, aeth_bytes(aeth), &[][..])
        }
        Packet::ReadAnswer(ReadAnswer { part, destination, psn, payload }) => {
            let (opcode, extension) = match part {
                Part::First(aeth) => (0x0d, aeth_bytes(aeth)),
                Part::Middle => (0x0e, Vec::new()),
                Part::Last(aeth) => (0x0f, aeth_bytes(aeth)),
                Part::Only(aeth) => (0x10, aeth_bytes(aeth)),
            };
            (opcode, destination, psn, extension, payload)
        }
        Packet::WriteRequest(WriteRequest { part, destination, psn, payload, .. }) => {
            let reth = |Reth { va, rkey, length_bytes }: Reth| {
                [&va.to_be_bytes()[..], &rkey.to_be_bytes(), &length_bytes.to_be_bytes()].concat()
            };
            let (opcode, extension) = match part {
                WritePart::First(first) => (0x06, reth(first)),
                WritePart::Middle => (0x07, Vec::new()),
                WritePart::Last(None) => (0x08, Vec::new()),
                WritePart::Last(Some(immediate)) => (0x09, immediate.to_be_bytes().to_vec()),
                WritePart::Only(all, None) => (0x0a, reth(all)),
                WritePart::Only(all, Some(immediate)) => (0x0b, [reth(all), immediate.to_be_bytes().to_vec()].concat()),
            };
            (opcode, destination, psn, extension, payload)
        }
        Packet::FetchAdd(FetchAdd { destination, psn, va, rkey, addend }) => {
            let extension = [&va.to_be_bytes()[..], &rkey.to_be_bytes(), &addend.to_be_bytes()].concat();
            (0x14, destination, psn, extension, &[][..])
        }
        Packet::AtomicAnswer(AtomicAnswer { destination, psn, aeth, original }) => {
            (0x12, destination, psn, [aeth_bytes(aeth), original.to_be_bytes().to_vec()].concat(), &[][..])
        }
    };
    let tags = match frame.ethernet.tags {
        Tags::None => vec![],
        Tags::One(tag) => vec![tag],
        Tags::Two { outer, inner } => vec![outer, inner],
    };
    let octets = |address| match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    Seen {
        macs: [frame.ethernet.destination.0, frame.ethernet.source.0].concat(),
        tags: tags.iter().flat_map(|tag| [tag.tpid.value().to_be_bytes(), tag.tci.to_be_bytes()].concat()).collect(),
        addresses: [octets(frame.envelope.ip.source()), octets(frame.envelope.ip.destination())].concat(),
        ports: (frame.envelope.ports.source, frame.envelope.ports.destination),
        opcode,
        destination: destination.get(),
        psn: psn.get(),
        extension,
        payload: payload.to_vec(),
        acknowledges: matches!(frame.packet, Packet::WriteRequest(WriteRequest { ack_request: true, .. })),
    }
}
