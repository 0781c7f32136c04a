// SPDX-License-Identifier: Apache-2.0
//! Whole packets: parsed from a link-layer frame or from the UDP payload that a socket gives, built into the caller's buffer.
//!
//! A parser checks from the outside in, cheapest first: headers, lengths, BTH, lengths against the opcode, ICRC, then the
//! syndrome. So the error names the outermost thing wrong, and nothing inside a packet counts before its ICRC is right.

use crate::aeth::{Aeth, NakCode, Syndrome};
use crate::bth::Bth;
use crate::envelope::Envelope;
use crate::error::{Error, Layer};
use crate::eth::Ethernet;
use crate::icrc::{ICRC_BYTES, Icrc};
use crate::opcode::Opcode;
use crate::reth::Reth;
use crate::u24::{Msn, Psn, Qpn};

/// Path MTUs that there are, bytes of payload (IBA 9.2.1).
pub const PATH_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];

/// RDMA READ request: BTH and RETH (IBA 9.4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// The responder's queue pair.
    pub destination: Qpn,
    /// Sequence number; the answer has the same.
    pub psn: Psn,
    /// Virtual address at the responder, bytes.
    pub va: u64,
    /// Remote key of the memory region.
    pub rkey: u32,
    /// Length, bytes.
    pub length_bytes: u32,
}

/// Which part of a READ response a packet is (IBA 9.7.5.1.3), with the acknowledgement that this part carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// First of several.
    First(Aeth),
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last(Aeth),
    /// The whole response. Our responders send no other.
    Only(Aeth),
}

/// RDMA READ response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadAnswer<'a> {
    /// Which part; its syndrome is always an ACK.
    pub part: Part,
    /// The requester's queue pair.
    pub destination: Qpn,
    /// The request's sequence number, counted up over the parts.
    pub psn: Psn,
    /// The bytes read, without pad.
    pub payload: &'a [u8],
}

/// ACK or NAK (IBA 9.7.5.2): in answer to a READ it is always a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Acknowledge {
    /// The requester's queue pair.
    pub destination: Qpn,
    /// The request's sequence number; with [`NakCode::PsnSequence`] the one that is missing.
    pub psn: Psn,
    /// How it went.
    pub aeth: Aeth,
}

impl Acknowledge {
    /// The refusal of `request`, to the requester's queue pair `destination`.
    #[must_use]
    pub fn nak(request: &ReadRequest, destination: Qpn, code: NakCode) -> Self {
        Self { destination, psn: request.psn, aeth: Aeth { syndrome: Syndrome::Nak(code), msn: Msn::default() } }
    }
}

impl<'a> ReadAnswer<'a> {
    /// The one-packet answer to `request`, to the requester's queue pair `destination`.
    #[must_use]
    pub fn only(request: &ReadRequest, destination: Qpn, payload: &'a [u8]) -> Self {
        let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn::default() };
        Self { part: Part::Only(aeth), destination, psn: request.psn, payload }
    }
}

/// A packet of the RC READ family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packet<'a> {
    /// Opcode 0x0c.
    ReadRequest(ReadRequest),
    /// Opcodes 0x0d to 0x10.
    ReadAnswer(ReadAnswer<'a>),
    /// Opcode 0x11.
    Acknowledge(Acknowledge),
}

impl From<ReadRequest> for Packet<'_> {
    fn from(request: ReadRequest) -> Self {
        Self::ReadRequest(request)
    }
}

impl<'a> From<ReadAnswer<'a>> for Packet<'a> {
    fn from(answer: ReadAnswer<'a>) -> Self {
        Self::ReadAnswer(answer)
    }
}

impl From<Acknowledge> for Packet<'_> {
    fn from(acknowledge: Acknowledge) -> Self {
        Self::Acknowledge(acknowledge)
    }
}

/// A frame down to its UDP payload, so that the caller can look at addresses and ports before paying for an ICRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpFrame<'a> {
    /// Link header.
    pub ethernet: Ethernet,
    /// IP header and ports.
    pub envelope: Envelope,
    /// From BTH to ICRC, if it is RoCEv2.
    pub payload: &'a [u8],
}

impl<'a> UdpFrame<'a> {
    /// Parses Ethernet, IP and UDP headers. Bytes after the IP packet (padding to 60, a trailer) are ignored.
    ///
    /// # Errors
    /// Those of [`Ethernet::parse`] and [`Envelope::parse`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, Error> {
        let (ethernet, ether_type, rest) = Ethernet::parse(frame)?;
        let (envelope, payload) = Envelope::parse(ether_type, rest)?;
        Ok(Self { ethernet, envelope, payload })
    }

    /// Goes on to the RoCEv2 packet inside.
    ///
    /// # Errors
    /// Those of [`Packet::parse_datagram`].
    pub fn packet(&self) -> Result<Packet<'a>, Error> {
        Packet::parse_datagram(&self.envelope, self.payload)
    }
}

/// A frame and the RoCEv2 packet inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame<'a> {
    /// Link header.
    pub ethernet: Ethernet,
    /// IP header and ports. No port is required: the caller knows which are its own.
    pub envelope: Envelope,
    /// The packet.
    pub packet: Packet<'a>,
}

impl<'a> Frame<'a> {
    /// Parses a frame without FCS.
    ///
    /// # Errors
    /// Those of [`UdpFrame::parse`] and [`Packet::parse_datagram`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, Error> {
        let udp = UdpFrame::parse(frame)?;
        Ok(Self { ethernet: udp.ethernet, envelope: udp.envelope, packet: udp.packet()? })
    }
}

impl<'a> Packet<'a> {
    /// Parses a UDP payload that came in `envelope`: an [`Envelope`], from a frame or of a socket
    /// ([`Envelope::socket`]), or one that has [begun](crate::icrc::Begun) its ICRC.
    ///
    /// # Errors
    /// [`Error::Truncated`], those of [`Bth::parse`], [`Error::RoceLength`], [`Error::PadCount`], [`Error::Icrc`],
    /// [`Error::Syndrome`].
    pub fn parse_datagram(envelope: &impl Icrc, payload: &'a [u8]) -> Result<Self, Error> {
        let (covered, &stored) = payload
            .split_last_chunk::<ICRC_BYTES>()
            .filter(|(covered, _)| covered.len() >= Bth::BYTES)
            .ok_or(Error::Truncated {
                layer: Layer::Transport,
                needed_bytes: Bth::BYTES + ICRC_BYTES,
                got_bytes: payload.len(),
            })?;
        let (bth, body) = Bth::parse(covered)?;
        let (extension, data) = split_body(&bth, body, payload.len())?;

        let stored = u32::from_le_bytes(stored);
        let computed = envelope.compute(covered)?;
        if stored != computed {
            return Err(Error::Icrc { stored, computed });
        }
        from_parts(&bth, extension, data)
    }

    /// Bytes of the UDP payload: BTH to ICRC.
    #[must_use]
    pub fn datagram_bytes(&self) -> usize {
        let (bth, data) = self.bth_and_data();
        Bth::BYTES + extension_bytes(bth.opcode) + data.len() + usize::from(bth.pad_bytes) + ICRC_BYTES
    }

    /// Writes the UDP payload to be sent in `envelope`; returns its length.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]; [`Error::PayloadLength`] if the packet would not fit its length fields, or for an empty
    /// part of a READ response that has several, or a first or middle part that needs a pad; [`Error::Syndrome`] for a READ
    /// response that is not an ACK.
    pub fn write_datagram(&self, envelope: &impl Icrc, out: &mut [u8]) -> Result<usize, Error> {
        let (bth, data) = self.bth_and_data();
        let length = self.datagram_bytes();
        if data.len() < shortest_data_bytes(bth.opcode) || (bth.pad_bytes != 0 && !may_pad(bth.opcode)) {
            return Err(Error::PayloadLength(data.len()));
        }
        let got_bytes = out.len();
        let out = out.get_mut(..length).ok_or(Error::BufferTooSmall { needed_bytes: length, got_bytes })?;
        let (covered, icrc) = out.split_at_mut(length - ICRC_BYTES);

        let mut at = bth.write(covered)?;
        at += match self {
            Self::ReadRequest(request) => {
                Reth { va: request.va, rkey: request.rkey, length_bytes: request.length_bytes }
                    .write(&mut covered[at..])?
            }
            Self::ReadAnswer(ReadAnswer { part: Part::First(aeth) | Part::Last(aeth) | Part::Only(aeth), .. }) => {
                only_ack(*aeth)?.write(&mut covered[at..])?
            }
            Self::Acknowledge(Acknowledge { aeth, .. }) => aeth.write(&mut covered[at..])?,
            Self::ReadAnswer(ReadAnswer { part: Part::Middle, .. }) => 0,
        };
        let (to, pad) = covered[at..].split_at_mut(data.len());
        to.copy_from_slice(data);
        pad.fill(0);
        icrc.copy_from_slice(&envelope.compute(covered)?.to_le_bytes());
        Ok(length)
    }

    /// Bytes of the whole frame, without FCS.
    #[must_use]
    pub fn frame_bytes(&self, ethernet: &Ethernet, envelope: &Envelope) -> usize {
        ethernet.len_bytes() + envelope.len_bytes() + self.datagram_bytes()
    }

    /// Writes the whole frame, without FCS; returns its length.
    ///
    /// # Errors
    /// As [`Packet::write_datagram`].
    pub fn write_frame(&self, ethernet: &Ethernet, envelope: &Envelope, out: &mut [u8]) -> Result<usize, Error> {
        let mut at = ethernet.write(envelope.ip.ether_type(), out)?;
        at += envelope.write(self.datagram_bytes(), &mut out[at..])?;
        at += self.write_datagram(envelope, &mut out[at..])?;
        Ok(at)
    }

    fn bth_and_data(&self) -> (Bth, &'a [u8]) {
        let bth = |opcode, destination, psn| Bth {
            opcode,
            pad_bytes: 0,
            destination,
            ack_request: opcode == Opcode::ReadRequest,
            psn,
        };
        match *self {
            Self::ReadRequest(request) => (bth(Opcode::ReadRequest, request.destination, request.psn), &[]),
            Self::Acknowledge(acknowledge) => (bth(Opcode::Acknowledge, acknowledge.destination, acknowledge.psn), &[]),
            Self::ReadAnswer(answer) => {
                let opcode = match answer.part {
                    Part::First(_) => Opcode::ReadAnswerFirst,
                    Part::Middle => Opcode::ReadAnswerMiddle,
                    Part::Last(_) => Opcode::ReadAnswerLast,
                    Part::Only(_) => Opcode::ReadAnswerOnly,
                };
                let pad_bytes = (answer.payload.len().wrapping_neg() & 3).to_le_bytes()[0];
                (Bth { pad_bytes, ..bth(opcode, answer.destination, answer.psn) }, answer.payload)
            }
        }
    }
}

/// Bytes of the extended header of an opcode (IBA 9.2.1).
const fn extension_bytes(opcode: Opcode) -> usize {
    match opcode {
        Opcode::ReadRequest => Reth::BYTES,
        Opcode::ReadAnswerMiddle => 0,
        Opcode::ReadAnswerFirst | Opcode::ReadAnswerLast | Opcode::ReadAnswerOnly | Opcode::Acknowledge => Aeth::BYTES,
    }
}

/// Whether a payload may end between words: first and middle parts fill the path MTU, which is a multiple of 4.
const fn may_pad(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::ReadAnswerLast | Opcode::ReadAnswerOnly)
}

/// A part of a response that has several is never empty; a whole response may be (IBA 9.7.5.1.3).
const fn shortest_data_bytes(opcode: Opcode) -> usize {
    match opcode {
        Opcode::ReadAnswerFirst | Opcode::ReadAnswerMiddle | Opcode::ReadAnswerLast => 1,
        Opcode::ReadRequest | Opcode::ReadAnswerOnly | Opcode::Acknowledge => 0,
    }
}

/// Splits what lies between BTH and ICRC into extended header and data, pad taken off.
fn split_body<'a>(bth: &Bth, body: &'a [u8], payload_bytes: usize) -> Result<(&'a [u8], &'a [u8]), Error> {
    let opcode = bth.opcode;
    let wrong_length = Error::RoceLength { opcode, payload_bytes };
    let (extension, padded) = body.split_at_checked(extension_bytes(opcode)).ok_or(wrong_length)?;
    let has_data = !matches!(opcode, Opcode::ReadRequest | Opcode::Acknowledge);
    if padded.len() % 4 != 0 || (!has_data && !padded.is_empty()) {
        return Err(wrong_length);
    }
    let wrong_pad = Error::PadCount { opcode, pad_bytes: bth.pad_bytes, body_bytes: padded.len() };
    if bth.pad_bytes != 0 && !may_pad(opcode) {
        return Err(wrong_pad);
    }
    let data_bytes = padded.len().checked_sub(usize::from(bth.pad_bytes)).ok_or(wrong_pad)?;
    if data_bytes < shortest_data_bytes(opcode) {
        return Err(wrong_length);
    }
    Ok((extension, &padded[..data_bytes]))
}

fn from_parts<'a>(bth: &Bth, extension: &[u8], payload: &'a [u8]) -> Result<Packet<'a>, Error> {
    let &Bth { opcode, destination, psn, .. } = bth;
    let part = match opcode {
        Opcode::ReadRequest => {
            let (Reth { va, rkey, length_bytes }, _) = Reth::parse(extension)?;
            return Ok(Packet::ReadRequest(ReadRequest { destination, psn, va, rkey, length_bytes }));
        }
        Opcode::Acknowledge => {
            let (aeth, _) = Aeth::parse(extension)?;
            return Ok(Packet::Acknowledge(Acknowledge { destination, psn, aeth }));
        }
        Opcode::ReadAnswerMiddle => Part::Middle,
        Opcode::ReadAnswerFirst => Part::First(ack(extension)?),
        Opcode::ReadAnswerLast => Part::Last(ack(extension)?),
        Opcode::ReadAnswerOnly => Part::Only(ack(extension)?),
    };
    Ok(Packet::ReadAnswer(ReadAnswer { part, destination, psn, payload }))
}

fn ack(extension: &[u8]) -> Result<Aeth, Error> {
    let (aeth, _) = Aeth::parse(extension)?;
    only_ack(aeth)
}

/// The acknowledgement of a READ response, which a NAK would contradict (IBA 9.7.5.1.3).
fn only_ack(aeth: Aeth) -> Result<Aeth, Error> {
    match aeth.syndrome {
        Syndrome::Ack { .. } => Ok(aeth),
        Syndrome::RnrNak { .. } | Syndrome::Nak(_) => Err(Error::Syndrome(aeth.syndrome.to_byte())),
    }
}
