// SPDX-License-Identifier: Apache-2.0
//! Which packets a packet socket takes: those to RoCEv2's port and one queue pair. Everything else of the machine's traffic costs these ten instructions in softirq and wakes
//! nobody; without them it would cost a copy into this process.
//!
//! Classic BPF (Linux, Documentation/networking/filter.rst), over what a packet socket without link header sees: the IP header and what follows it.

use nix::sys::socket::SetSockOpt as _;
use nix::{libc, setsockopt_impl, sockopt_impl};
use onlooker_wire::{Qpn, ROCE_PORT};
use std::io;
use std::os::fd::OwnedFd;

const LOAD_BYTE: u16 = 0x30; // BPF_LD | BPF_B | BPF_ABS
const LOAD_HALF_AT_X: u16 = 0x48; // BPF_LD | BPF_H | BPF_IND
const LOAD_WORD_AT_X: u16 = 0x40; // BPF_LD | BPF_W | BPF_IND
const X_CONSTANT: u16 = 0x01; // BPF_LDX | BPF_W | BPF_IMM
const X_HEADER_LENGTH: u16 = 0xb1; // BPF_LDX | BPF_B | BPF_MSH: four times the lower half of a byte
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const UNLESS_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Protocol number of UDP, and where the two IP headers have it.
const UDP: u32 = 17;
const PROTOCOL_V4: u32 = 9;
const PROTOCOL_V6: u32 = 6;
/// Bytes of an IPv6 header. An IPv4 header says how long it is.
const HEADER_V6: u32 = 40;
/// From the UDP header: destination port, and the word of the BTH whose lower 24 bits are the queue pair's number.
const PORT: u32 = 2;
const QUEUE_PAIR: u32 = 12;
/// A packet of any length.
const WHOLE: u32 = u32::MAX;

sockopt_impl!(
    /// A program that says how much of a packet a socket takes.
    Filter, SetOnly, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, libc::sock_fprog
);

/// Has a packet socket take nothing else from now on.
pub(super) fn attach(socket: &OwnedFd, ipv6: bool, queue_pair: Qpn) -> io::Result<()> {
    let mut program = program(ipv6, queue_pair);
    // The kernel copies the program within the call.
    let len = u16::try_from(program.len()).map_err(io::Error::other)?;
    Filter.set(socket, &libc::sock_fprog { len, filter: program.as_mut_ptr() }).map_err(io::Error::from)
}

fn program(ipv6: bool, queue_pair: Qpn) -> [libc::sock_filter; 10] {
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let unless = |k, jf| libc::sock_filter { code: UNLESS_EQUAL, jt: 0, jf, k };
    // Without extension headers, which RoCEv2 does not allow (CA17-16).
    let (protocol, length) = match ipv6 {
        true => (PROTOCOL_V6, step(X_CONSTANT, HEADER_V6)),
        false => (PROTOCOL_V4, step(X_HEADER_LENGTH, 0)),
    };
    [
        step(LOAD_BYTE, protocol),
        unless(UDP, 7),
        length,
        step(LOAD_HALF_AT_X, PORT),
        unless(ROCE_PORT.into(), 4),
        step(LOAD_WORD_AT_X, QUEUE_PAIR),
        step(AND, 0xff_ffff),
        unless(queue_pair.get(), 1),
        step(RETURN, WHOLE),
        step(RETURN, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_wire::{Envelope, Packet, Psn, ReadRequest};

    /// What the kernel makes of it: whether the packet is taken.
    fn takes(program: &[libc::sock_filter], packet: &[u8]) -> bool {
        let load = |at: u32, bytes: usize| {
            let bytes = packet.get(at as usize..)?.get(..bytes)?;
            Some(bytes.iter().fold(0, |word: u32, byte| word << 8 | u32::from(*byte)))
        };
        let (mut a, mut x, mut at) = (0, 0, 0);
        loop {
            let libc::sock_filter { code, jf, k, .. } = program[at];
            at += 1;
            let loaded = match code {
                LOAD_BYTE => load(k, 1),
                LOAD_HALF_AT_X => load(x + k, 2),
                LOAD_WORD_AT_X => load(x + k, 4),
                AND => Some(a & k),
                _ => Some(a),
            };
            // A load beyond the end ends the program with 0.
            let Some(loaded) = loaded else { return false };
            a = loaded;
            match code {
                X_CONSTANT => x = k,
                X_HEADER_LENGTH => x = (u32::from(packet[k as usize]) & 0x0f) * 4,
                UNLESS_EQUAL if a != k => at += usize::from(jf),
                RETURN => return k > 0,
                _ => {}
            }
        }
    }

    fn packet(from: &str, to: &str, queue_pair: u32) -> Vec<u8> {
        let envelope = Envelope::socket(from.parse().unwrap(), to.parse().unwrap()).unwrap();
        let destination = Qpn::wrapping(queue_pair);
        let request = ReadRequest { destination, psn: Psn::wrapping(1), va: 0, rkey: 0, length_bytes: 1024 };
        let packet = Packet::from(request);
        let mut bytes = vec![0; envelope.len_bytes() + packet.datagram_bytes()];
        let at = envelope.write(packet.datagram_bytes(), &mut bytes).unwrap();
        packet.write_datagram(&envelope, &mut bytes[at..]).unwrap();
        bytes
    }

    #[test]
    fn only_what_is_for_the_queue_pair_is_taken() {
        let ends =
            [("10.0.0.2:49152", "10.0.0.1:4791", "10.0.0.1:4792"), ("[fd00::2]:1", "[fd00::1]:4791", "[fd00::1]:1")];
        for (from, to, elsewhere) in ends {
            let program = program(from.starts_with('['), Qpn::wrapping(0x12_3456));
            let whole = packet(from, to, 0x12_3456);
            assert!(takes(&program, &whole), "{to}");
            assert!(!takes(&program, &packet(from, to, 0x12_3457)), "{to}");
            assert!(!takes(&program, &packet(from, elsewhere, 0x12_3456)), "{elsewhere}");
            for length in 0..whole.len() {
                let takes_it = takes(&program, &whole[..length]);
                assert_eq!(takes_it, length + 24 >= whole.len(), "the first {length} bytes, {to}");
            }
            let mut tcp = whole;
            tcp[if from.starts_with('[') { 6 } else { 9 }] = 6;
            assert!(!takes(&program, &tcp), "{to}");
        }
    }
}
