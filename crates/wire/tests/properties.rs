// SPDX-License-Identifier: Apache-2.0
//! Properties of the packet parsers. Each runs on random inputs under `cargo test`, and as a fuzz target under `cargo bolero`.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use bolero::{TypeGenerator, check};
use common::{
    reference::{parse, reseal, reseal_header, seen},
    shape::Shape,
};
use onlooker_wire::crc32::{SHIFT_BLOCK, SHIFT_GUARDED};
use onlooker_wire::{
    Aeth, Bth, Crc32, Envelope, Error, EtherType, Ethernet, Frame, IpHeader, Ipv4Header, Packet, Ports, Psn, Qpn,
    ReadAnswer, Reth, UdpFrame, icrc, profile_check,
};

#[test]
fn arbitrary_bytes_never_panic() {
    let known = Envelope::socket("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap()).unwrap();
    check!().with_max_len(256).for_each(|bytes| {
        let _ = Frame::parse(bytes);
        let _ = Ethernet::parse(bytes);
        let _ = IpHeader::parse(EtherType::Ipv4, bytes);
        let _ = IpHeader::parse(EtherType::Ipv6, bytes);
        let _ = Envelope::parse(EtherType::Ipv4, bytes);
        let _ = Envelope::parse(EtherType::Ipv6, bytes);
        let _ = Ports::parse(bytes);
        let _ = Bth::parse(bytes);
        let _ = Reth::parse(bytes);
        let _ = Aeth::parse(bytes);
        let _ = Packet::parse_datagram(&known, bytes);
        let _ = icrc::Icrc::compute(&known, bytes);
    });
}

#[test]
fn built_packets_parse_to_themselves() {
    check!().with_type::<Shape>().for_each(|shape| {
        let (ethernet, envelope, packet) = (shape.ethernet(), shape.envelope(), shape.packet());
        let frame = shape.frame();
        assert_eq!(Frame::parse(&frame), Ok(Frame { ethernet, envelope, packet }));
        let mut datagram = vec![0; packet.datagram_bytes()];
        assert_eq!(packet.write_datagram(&envelope, &mut datagram), Ok(datagram.len()));
        assert_eq!(Packet::parse_datagram(&envelope, &datagram), Ok(packet));
        assert_eq!(UdpFrame::parse(&frame).unwrap().payload, datagram);
        let ip_packet = &frame[ethernet.len_bytes()..];
        assert_eq!(Envelope::parse(envelope.ip.ether_type(), ip_packet), Ok((envelope, &datagram[..])));
    });
}

/// Bits that the ICRC leaves out, as offsets from the IP header: (first bit, bits).
fn masked(ipv4: bool) -> Vec<(usize, usize)> {
    let byte = |at: usize, count: usize| (8 * at, 8 * count);
    if ipv4 {
        vec![byte(1, 1), byte(8, 1), byte(10, 2), byte(26, 2), byte(32, 1)]
    } else {
        // Traffic class and flow label: the lower half of byte 0 to byte 3.
        vec![(4, 28), byte(7, 1), byte(46, 2), byte(52, 1)]
    }
}

#[test]
fn any_flipped_bit_is_noticed() {
    check!().with_type::<Shape>().with_iterations(60).for_each(|shape| {
        let frame = shape.frame();
        let (envelope, packet) = (shape.envelope(), shape.packet());
        let ip = shape.ethernet().len_bytes();
        let ipv4 = matches!(envelope.ip, IpHeader::V4(_));
        let udp = ip + envelope.ip.len_bytes();
        // From here on no length or code is looked at before the ICRC: queue pair number onwards.
        let free_form = udp + 8 + 5;
        for bit in 8 * ip..8 * frame.len() {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 0x80 >> (bit % 8);
            if ipv4 && bit < 8 * udp {
                // With a wrong header checksum the ICRC would not be asked.
                reseal_header(&mut flipped);
            }
            let parsed = Frame::parse(&flipped);
            let at = bit - 8 * ip;
            if masked(ipv4).iter().any(|&(first, count)| (first..first + count).contains(&at)) {
                assert_eq!(parsed.expect("not covered").packet, packet, "bit {at}");
            } else if bit >= 8 * free_form {
                assert!(matches!(parsed, Err(Error::Icrc { .. })), "bit {at}: {parsed:?}");
            } else {
                assert!(parsed.is_err(), "bit {at}: {parsed:?}");
            }
        }
    });
}

/// What a device that numbers its packets sends, as rdma_rxe does: only who sees the number can check the ICRC.
#[test]
fn the_identification_is_covered_whatever_it_is() {
    check!().with_type::<(Shape, u16)>().with_iterations(200).for_each(|(shape, other)| {
        let (envelope, packet) = (shape.envelope(), shape.packet());
        let IpHeader::V4(header) = envelope.ip else { return };
        let mut datagram = vec![0; packet.datagram_bytes()];
        packet.write_datagram(&envelope, &mut datagram).unwrap();
        let renumbered = Envelope { ip: IpHeader::V4(Ipv4Header { identification: *other, ..header }), ..envelope };
        let parsed = Packet::parse_datagram(&renumbered, &datagram);
        if *other == header.identification {
            assert_eq!(parsed, Ok(packet));
        } else {
            assert!(matches!(parsed, Err(Error::Icrc { .. })), "{parsed:?}");
        }
    });
}

/// A valid frame, then damaged, then perhaps with right checksums again.
#[derive(Debug, Clone, TypeGenerator)]
struct Damaged {
    shape: Shape,
    changes: [(u8, u8); 2],
    change_count: u8,
    cut: i8,
    reseal: bool,
}

impl Damaged {
    fn frame(&self) -> Vec<u8> {
        let mut frame = self.shape.frame();
        for (at, value) in self.changes.iter().take(usize::from(self.change_count % 3)) {
            let at = usize::from(*at) % frame.len();
            frame[at] = *value;
        }
        if self.cut < -100 {
            let longer = frame.len() + usize::from(self.cut.unsigned_abs());
            frame.resize(longer, 0x77);
        } else if self.cut > 100 {
            frame.truncate(frame.len().saturating_sub(usize::from(self.cut.unsigned_abs() - 100)));
        }
        if self.reseal {
            reseal(&mut frame);
        }
        frame
    }
}

#[test]
fn agrees_with_the_plain_parser() {
    let (accepted, refused) = (AtomicU32::new(0), AtomicU32::new(0));
    check!().with_type::<Damaged>().with_iterations(4000).for_each(|damaged| {
        let frame = damaged.frame();
        let parsed = Frame::parse(&frame);
        assert_eq!(parsed.as_ref().ok().map(seen), parse(&frame), "{parsed:?}");
        let count = if parsed.is_ok() { &accepted } else { &refused };
        count.fetch_add(1, Ordering::Relaxed);
    });
    // An agreement on nothing but refusals would say little.
    let (accepted, refused) = (accepted.into_inner(), refused.into_inner());
    assert!(accepted > 20 && refused > 20, "{accepted} accepted, {refused} refused");
}

#[test]
fn crc_agrees_with_crc32fast() {
    check!().with_type::<(Vec<u8>, u8, u8)>().for_each(|(bytes, times, split)| {
        let long = bytes.repeat(usize::from(*times % 8));
        let (head, tail) = long.split_at(usize::from(*split).min(long.len()));
        let mut crc = Crc32::new();
        crc.update(head);
        crc.update(tail);
        assert_eq!(crc.finish(), crc32fast::hash(&long));
    });
}

#[test]
fn known_crcs_join_as_crc32fast_joins_them() {
    check!().with_type::<(u32, u32)>().cloned().for_each(|(head, tail)| {
        for (shift, length) in [(&SHIFT_BLOCK, 1024), (&SHIFT_GUARDED, 1016)] {
            let mut oracle = crc32fast::Hasher::new_with_initial_len(head, 0);
            oracle.combine(&crc32fast::Hasher::new_with_initial_len(tail, length));
            let mut crc = Crc32::resume(head);
            crc.append(shift, tail);
            assert_eq!(crc.finish(), oracle.finalize());
        }
    });
}

/// What a responder may do that keeps a block's CRC: the ICRC without a second look at the block.
#[test]
fn answer_icrc_from_the_block_crc() {
    check!().with_type::<(Shape, [u8; 32])>().with_iterations(100).for_each(|(shape, seed)| {
        let block = seed.repeat(32);
        let envelope = shape.envelope();
        let request = onlooker_wire::ReadRequest {
            destination: Qpn::default(),
            psn: Psn::wrapping(3),
            va: 0,
            rkey: 0,
            length_bytes: 1024,
        };
        let mut datagram = [0; 1100];
        let packet = Packet::from(ReadAnswer::only(&request, Qpn::wrapping(9), &block));
        let length = packet.write_datagram(&envelope, &mut datagram).unwrap();
        let mut crc = icrc::begin(&envelope, length).unwrap();
        icrc::cover(&mut crc, &datagram[..Bth::BYTES + Aeth::BYTES]);
        crc.append(&SHIFT_BLOCK, crc32fast::hash(&block));
        assert_eq!(crc.finish().to_le_bytes(), datagram[length - 4..length]);
    });
}

#[test]
fn sequence_numbers_are_ordered_within_half_the_circle() {
    check!().with_type::<(u32, u32)>().cloned().for_each(|(start, steps)| {
        let steps = steps % (1 << 23);
        let start = Psn::wrapping(start);
        let later = start.wrapping_add(steps);
        assert_eq!(later.distance_from(start), steps.cast_signed());
        assert_eq!(start.distance_from(later), -steps.cast_signed());
        assert_eq!(later.is_after(start), steps != 0);
        assert!(!start.is_after(later));
    });
}

#[test]
fn profile_lets_only_whole_blocks_and_words_of_one_block_pass() {
    check!().with_type::<(u64, u32, u32, u8)>().cloned().for_each(|(offset, length, max, kind)| {
        // Random numbers are hardly ever multiples of 1024.
        let (offset, length) = match kind % 3 {
            0 => (offset << 10, (length % 20) << 10),
            1 => (offset << 3, (length % 140) << 3),
            _ => (offset, length),
        };
        let max = max % 16384;
        let blocks = length % 1024 == 0 && offset % 1024 == 0;
        let words = length % 8 == 0 && offset % 8 == 0 && offset % 1024 + u64::from(length) < 1024;
        let ends_a_block = length % 8 == 0 && length < 1024 && (offset % 1024) + u64::from(length) == 1024;
        let good = length > 0
            && length <= max
            && (blocks || words || ends_a_block)
            && u128::from(offset) + u128::from(length) < 1 << 64;
        assert_eq!(profile_check(offset, length, max).is_ok(), good);
    });
}
