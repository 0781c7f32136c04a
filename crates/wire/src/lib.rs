// SPDX-License-Identifier: Apache-2.0
//! The bytes between a requester and a responder.
//!
//! Two data planes for reading: RoCEv2 reliable-connection READs ([`Packet`], over Ethernet, IPv4 or IPv6, and UDP; also WRITE and
//! FETCH ADD, for telemetry) and the TCP read
//! that stands in for them ([`tcp_read`]). The requester writes requests and reads answers, the responder the reverse;
//! this crate is the one place where either is laid out. `docs/format/wire.md` gives the same bytes as tables. The other
//! way run telemetry reports ([`dta`]).
//!
//! Invariants:
//! - no I/O, no allocation, no unsafe code: every function works on slices that the caller owns;
//! - no input makes a parser panic, and every refusal is a distinct [`Error`];
//! - a [`Packet`] that was parsed has passed its ICRC.
//!
//! Cost: one pass over a packet's bytes for the ICRC; everything else is constant. The feature `simd` makes that pass faster and
//! needs std; without it the crate needs core alone.
//!
//! Sources, cited beside each field: *IBA* is the InfiniBand Architecture Specification, volume 1, release 1.5, *A17* its
//! annex on RoCEv2 (compliance statements `CA17-n`), then RFC 791, RFC 768, RFC 8200 and IEEE 802.1Q.
//!
//! ```
//! use onlooker_wire::{Envelope, Packet, Psn, Qpn, ReadRequest};
//!
//! // What a UDP socket that is unconnected and has "don't fragment" set will put around its payload.
//! let envelope = Envelope::socket("10.0.0.1:40000".parse().unwrap(), "10.0.0.2:4791".parse().unwrap())?;
//! let request = ReadRequest {
//!     destination: Qpn::wrapping(0x12),
//!     psn: Psn::wrapping(7),
//!     va: 0x1000,
//!     rkey: 0xfeed_f00d,
//!     length_bytes: 1024,
//! };
//! let mut datagram = [0; 64];
//! let length = Packet::from(request).write_datagram(&envelope, &mut datagram)?;
//! assert_eq!(Packet::parse_datagram(&envelope, &datagram[..length])?, Packet::ReadRequest(request));
//! # Ok::<(), onlooker_wire::Error>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

pub mod aeth;
pub mod atomic;
pub mod bth;
pub mod crc32;
pub mod dta;
pub mod envelope;
mod error;
pub mod eth;
pub mod icrc;
pub mod ip;
pub mod opcode;
pub mod packet;
pub mod profile;
pub mod reth;
mod slice;
pub mod tcp_read;
pub mod u24;
pub mod udp;
pub mod write;

pub use aeth::{Aeth, NakCode, Syndrome};
pub use atomic::{AtomicAnswer, FetchAdd};
pub use bth::Bth;
pub use crc32::{Crc32, Shift};
pub use envelope::Envelope;
pub use error::{Error, Layer};
pub use eth::{EtherType, Ethernet, Mac, Tag, Tags, Tpid};
pub use ip::{IpHeader, Ipv4Header, Ipv6Header};
pub use opcode::Opcode;
pub use packet::{Acknowledge, Frame, PATH_MTUS, Packet, Part, ReadAnswer, ReadRequest, UdpFrame};
pub use profile::{ProfileError, profile_check};
pub use reth::Reth;
pub use u24::{Msn, Psn, Qpn};
pub use udp::{Ports, ROCE_PORT};
pub use write::{WritePart, WriteRequest};
