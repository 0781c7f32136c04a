// SPDX-License-Identifier: Apache-2.0
//! A TCP socket as the kernel's side tells it: `struct onlooker_tcp_record` of `intf.h`, which asserts the same offsets.

use std::net::Ipv6Addr;

/// Bytes of a record.
pub const RECORD_BYTES: usize = 104;

/// One socket at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Local address; IPv4 mapped into IPv6.
    pub local: Ipv6Addr,
    /// The other end's; unspecified for a listening socket.
    pub remote: Ipv6Addr,
    /// Local port.
    pub local_port: u16,
    /// The other end's; 0 for a listening socket.
    pub remote_port: u16,
    /// As in net/tcp_states.h, 1 (established) to 12 (SYN received, no socket yet); of one that has ended: its last state before.
    pub state: u32,
    /// Names one socket for ever: the same tuple that is used again has another.
    pub cookie: u64,
    /// Bytes that the other end has acknowledged.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments sent again.
    pub retransmits: u32,
    /// Smoothed round trip time, us; 0: not measured yet.
    pub srtt_us: u32,
    /// Its mean deviation, us.
    pub rttvar_us: u32,
    /// Congestion window, segments.
    pub congestion_window: u32,
    /// Bytes that the program has not read; of a listening socket: connections that it has not accepted.
    pub receive_queue: u32,
    /// Bytes that the other end has not acknowledged; of a listening socket: the most that can wait.
    pub send_queue: u32,
    /// Segments sent.
    pub segments_sent: u32,
    /// Segments received.
    pub segments_received: u32,
    /// Segments under way.
    pub unacknowledged: u32,
    /// Of these taken for lost.
    pub lost: u32,
}

/// `TCP_ESTABLISHED` of net/tcp_states.h.
pub const ESTABLISHED: u32 = 1;
/// `TCP_TIME_WAIT`.
pub const TIME_WAIT: u32 = 6;
/// `TCP_LISTEN`.
pub const LISTEN: u32 = 10;
/// `TCP_NEW_SYN_RECV`.
pub const NEW_SYN_RECEIVED: u32 = 12;

impl Record {
    /// From the bytes of one.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        // Each field as a whole: built to be small, a loop over its bytes would stay one.
        let (halves, _) = bytes.as_chunks::<2>();
        let (words, _) = bytes.as_chunks::<4>();
        let (doubles, _) = bytes.as_chunks::<8>();
        let (addresses, _) = bytes.as_chunks::<16>();
        let half = |at: usize| u16::from_le_bytes(halves[at / 2]);
        let word = |at: usize| u32::from_le_bytes(words[at / 4]);
        let double = |at: usize| u64::from_le_bytes(doubles[at / 8]);
        let address = |at: usize| Ipv6Addr::from(addresses[at / 16]);
        Self {
            local: address(0),
            remote: address(16),
            local_port: half(32),
            remote_port: half(34),
            state: word(36),
            cookie: double(40),
            bytes_acked: double(48),
            bytes_received: double(56),
            retransmits: word(64),
            srtt_us: word(68),
            rttvar_us: word(72),
            congestion_window: word(76),
            receive_queue: word(80),
            send_queue: word(84),
            segments_sent: word(88),
            segments_received: word(92),
            unacknowledged: word(96),
            lost: word(100),
        }
    }

    /// Whether both ends are known and there is a socket for it: not listening, not merely waiting for late segments, not half open.
    #[must_use]
    pub fn is_connection(&self) -> bool {
        !matches!(self.state, LISTEN | TIME_WAIT | NEW_SYN_RECEIVED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernels_side_has_them() {
        let bytes: [u8; RECORD_BYTES] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let number = |at: usize, length: usize| {
            bytes[at..at + length].iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let record = Record::decode(&bytes);
        let header = include_str!("intf.h");
        let asserted = |field: &str, at: usize| {
            let line = format!("CONNECTIONS_OFFSET(onlooker_tcp_record, {field}, {at});");
            assert!(header.contains(&line), "{line}");
        };
        assert!(header.contains(&format!("CONNECTIONS_SIZE(onlooker_tcp_record, {RECORD_BYTES});")));
        let fields = [("local", 0), ("remote", 16), ("local_port", 32), ("remote_port", 34)];
        fields.into_iter().for_each(|(field, at)| asserted(field, at));
        let fields = [("cookie", 40), ("bytes_acked", 48), ("bytes_received", 56)];
        fields.into_iter().for_each(|(field, at)| asserted(field, at));
        assert_eq!(record.local.octets()[..], bytes[..16]);
        assert_eq!(record.remote.octets()[..], bytes[16..32]);
        assert_eq!((u64::from(record.local_port), u64::from(record.remote_port)), (number(32, 2), number(34, 2)));
        assert_eq!([record.cookie, record.bytes_acked, record.bytes_received], [40, 48, 56].map(|at| number(at, 8)));
        let words = [
            record.state,
            record.retransmits,
            record.srtt_us,
            record.rttvar_us,
            record.congestion_window,
            record.receive_queue,
            record.send_queue,
            record.segments_sent,
            record.segments_received,
            record.unacknowledged,
            record.lost,
        ];
        let places = [36, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100];
        let names = [
            "state",
            "retransmits",
            "srtt_us",
            "rttvar_us",
            "congestion_window",
            "receive_queue",
            "send_queue",
            "segments_sent",
            "segments_received",
            "unacknowledged",
            "lost",
        ];
        names.into_iter().zip(places).for_each(|(field, at)| asserted(field, at));
        assert_eq!(words.map(u64::from), places.map(|at| number(at, 4)));
    }
}
