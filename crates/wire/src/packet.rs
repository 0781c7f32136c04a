// SPDX-License-Identifier: Apache-2.0
//! Whole packets: parsed from a link-layer frame or from the UDP payload that a socket gives, built into the caller's buffer.
//!
//! A parser checks from the outside in, cheapest first: headers, lengths, BTH, lengths against the opcode, ICRC, then the
//! syndrome. So the error names the outermost thing wrong, and nothing inside a packet counts before its ICRC is right.

use crate::aeth::{Aeth, NakCode, Syndrome};
use crate::atomic::{AtomicAnswer, AtomicEth, FetchAdd};
use crate::bth::Bth;
use crate::envelope::Envelope;
use crate::error::{Error, Layer};
use crate::eth::Ethernet;
use crate::icrc::{ICRC_BYTES, Icrc};
use crate::opcode::Opcode;
use crate::reth::Reth;
use crate::slice::{reserve, take};
use crate::u24::{Msn, Psn, Qpn};
use crate::write::{WritePart, WriteRequest};

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

/// A packet of a reliable connection that we have a use for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Packet<'a> {
    /// Opcodes 0x06 to 0x0b.
    WriteRequest(WriteRequest<'a>),
    /// Opcode 0x0c.
    ReadRequest(ReadRequest),
    /// Opcodes 0x0d to 0x10.
    ReadAnswer(ReadAnswer<'a>),
    /// Opcode 0x11.
    Acknowledge(Acknowledge),
    /// Opcode 0x12.
    AtomicAnswer(AtomicAnswer),
    /// Opcode 0x14.
    FetchAdd(FetchAdd),
}

/// Bytes of immediate data (IBA 9.3.6).
const IMMEDIATE_BYTES: usize = 4;
/// Bytes of the word that an atomic answer has.
const WORD_BYTES: usize = 8;

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

impl<'a> From<WriteRequest<'a>> for Packet<'a> {
    fn from(request: WriteRequest<'a>) -> Self {
        Self::WriteRequest(request)
    }
}

impl From<FetchAdd> for Packet<'_> {
    fn from(request: FetchAdd) -> Self {
        Self::FetchAdd(request)
    }
}

impl From<AtomicAnswer> for Packet<'_> {
    fn from(answer: AtomicAnswer) -> Self {
        Self::AtomicAnswer(answer)
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
            Self::ReadAnswer(ReadAnswer { part: Part::Middle, .. })
            | Self::WriteRequest(WriteRequest { part: WritePart::Middle, .. }) => 0,
            Self::WriteRequest(WriteRequest { part: WritePart::First(reth), .. }) => reth.write(&mut covered[at..])?,
            Self::WriteRequest(WriteRequest { part: WritePart::Last(immediate), .. }) => {
                write_immediate(*immediate, &mut covered[at..])?
            }
            Self::WriteRequest(WriteRequest { part: WritePart::Only(reth, immediate), .. }) => {
                whole(reth, data)?;
                let reth_bytes = reth.write(&mut covered[at..])?;
                reth_bytes + write_immediate(*immediate, &mut covered[at + reth_bytes..])?
            }
            Self::FetchAdd(FetchAdd { va, rkey, addend, .. }) => {
                AtomicEth { va: *va, rkey: *rkey, addend: *addend }.write(&mut covered[at..])?
            }
            Self::AtomicAnswer(AtomicAnswer { aeth, original, .. }) => {
                let aeth_bytes = only_ack(*aeth)?.write(&mut covered[at..])?;
                let (word, _) = reserve(&mut covered[at + aeth_bytes..])?;
                *word = original.to_be_bytes();
                aeth_bytes + WORD_BYTES
            }
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
            ack_request: matches!(opcode, Opcode::ReadRequest | Opcode::FetchAdd),
            psn,
        };
        let padded = |bth: Bth, data: &'a [u8]| {
            (Bth { pad_bytes: (data.len().wrapping_neg() & 3).to_le_bytes()[0], ..bth }, data)
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
                padded(bth(opcode, answer.destination, answer.psn), answer.payload)
            }
            Self::WriteRequest(request) => {
                let opcode = match request.part {
                    WritePart::First(_) => Opcode::WriteFirst,
                    WritePart::Middle => Opcode::WriteMiddle,
                    WritePart::Last(None) => Opcode::WriteLast,
                    WritePart::Last(Some(_)) => Opcode::WriteLastImmediate,
                    WritePart::Only(_, None) => Opcode::WriteOnly,
                    WritePart::Only(_, Some(_)) => Opcode::WriteOnlyImmediate,
                };
                let bth = bth(opcode, request.destination, request.psn);
                padded(Bth { ack_request: request.ack_request, ..bth }, request.payload)
            }
            Self::FetchAdd(request) => (bth(Opcode::FetchAdd, request.destination, request.psn), &[]),
            Self::AtomicAnswer(answer) => (bth(Opcode::AtomicAnswer, answer.destination, answer.psn), &[]),
        }
    }
}

/// Bytes of the extended header of an opcode (IBA 9.2.1).
const fn extension_bytes(opcode: Opcode) -> usize {
    match opcode {
        Opcode::ReadRequest | Opcode::WriteFirst | Opcode::WriteOnly => Reth::BYTES,
        Opcode::WriteOnlyImmediate => Reth::BYTES + IMMEDIATE_BYTES,
        Opcode::WriteLastImmediate => IMMEDIATE_BYTES,
        Opcode::ReadAnswerMiddle | Opcode::WriteMiddle | Opcode::WriteLast => 0,
        Opcode::FetchAdd => AtomicEth::BYTES,
        Opcode::AtomicAnswer => Aeth::BYTES + WORD_BYTES,
        Opcode::ReadAnswerFirst | Opcode::ReadAnswerLast | Opcode::ReadAnswerOnly | Opcode::Acknowledge => Aeth::BYTES,
    }
}

/// Whether a payload may end between words: first and middle parts fill the path MTU, which is a multiple of 4.
const fn may_pad(opcode: Opcode) -> bool {
    use Opcode::{ReadAnswerLast, ReadAnswerOnly, WriteLast, WriteLastImmediate, WriteOnly, WriteOnlyImmediate};
    matches!(opcode, ReadAnswerLast | ReadAnswerOnly | WriteLast | WriteLastImmediate | WriteOnly | WriteOnlyImmediate)
}

/// A part of several is never empty; a whole response or WRITE may be (IBA 9.7.5.1.3, 9.4.3).
const fn shortest_data_bytes(opcode: Opcode) -> usize {
    match opcode {
        Opcode::ReadAnswerFirst
        | Opcode::ReadAnswerMiddle
        | Opcode::ReadAnswerLast
        | Opcode::WriteFirst
        | Opcode::WriteMiddle
        | Opcode::WriteLast
        | Opcode::WriteLastImmediate => 1,
        Opcode::ReadRequest
        | Opcode::ReadAnswerOnly
        | Opcode::Acknowledge
        | Opcode::WriteOnly
        | Opcode::WriteOnlyImmediate
        | Opcode::FetchAdd
        | Opcode::AtomicAnswer => 0,
    }
}

const fn has_data(opcode: Opcode) -> bool {
    !matches!(opcode, Opcode::ReadRequest | Opcode::Acknowledge | Opcode::FetchAdd | Opcode::AtomicAnswer)
}

/// Splits what lies between BTH and ICRC into extended header and data, pad taken off.
fn split_body<'a>(bth: &Bth, body: &'a [u8], payload_bytes: usize) -> Result<(&'a [u8], &'a [u8]), Error> {
    let opcode = bth.opcode;
    let wrong_length = Error::RoceLength { opcode, payload_bytes };
    let (extension, padded) = body.split_at_checked(extension_bytes(opcode)).ok_or(wrong_length)?;
    if padded.len() % 4 != 0 || (!has_data(opcode) && !padded.is_empty()) {
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
    let &Bth { opcode, destination, psn, ack_request, .. } = bth;
    let read_answer = |part| Ok(ReadAnswer { part, destination, psn, payload }.into());
    let write = |part| Ok(WriteRequest { part, destination, psn, ack_request, payload }.into());
    match opcode {
        Opcode::ReadRequest => {
            let (Reth { va, rkey, length_bytes }, _) = Reth::parse(extension)?;
            Ok(ReadRequest { destination, psn, va, rkey, length_bytes }.into())
        }
        Opcode::Acknowledge => {
            let (aeth, _) = Aeth::parse(extension)?;
            Ok(Acknowledge { destination, psn, aeth }.into())
        }
        Opcode::ReadAnswerMiddle => read_answer(Part::Middle),
        Opcode::ReadAnswerFirst => read_answer(Part::First(ack(extension)?)),
        Opcode::ReadAnswerLast => read_answer(Part::Last(ack(extension)?)),
        Opcode::ReadAnswerOnly => read_answer(Part::Only(ack(extension)?)),
        Opcode::WriteFirst => write(WritePart::First(Reth::parse(extension)?.0)),
        Opcode::WriteMiddle => write(WritePart::Middle),
        Opcode::WriteLast => write(WritePart::Last(None)),
        Opcode::WriteLastImmediate => write(WritePart::Last(Some(immediate(extension)?))),
        Opcode::WriteOnly | Opcode::WriteOnlyImmediate => {
            let (reth, rest) = Reth::parse(extension)?;
            whole(&reth, payload)?;
            write(WritePart::Only(reth, if rest.is_empty() { None } else { Some(immediate(rest)?) }))
        }
        Opcode::FetchAdd => {
            let AtomicEth { va, rkey, addend } = AtomicEth::parse(extension)?;
            Ok(FetchAdd { destination, psn, va, rkey, addend }.into())
        }
        Opcode::AtomicAnswer => {
            let (aeth, rest) = Aeth::parse(extension)?;
            let (&word, _) = take(Layer::Transport, rest)?;
            Ok(AtomicAnswer { destination, psn, aeth: only_ack(aeth)?, original: u64::from_be_bytes(word) }.into())
        }
    }
}

fn immediate(bytes: &[u8]) -> Result<u32, Error> {
    let (&immediate, _) = take(Layer::Transport, bytes)?;
    Ok(u32::from_be_bytes(immediate))
}

fn write_immediate(immediate: Option<u32>, out: &mut [u8]) -> Result<usize, Error> {
    let Some(immediate) = immediate else { return Ok(0) };
    let (bytes, _) = reserve(out)?;
    *bytes = immediate.to_be_bytes();
    Ok(IMMEDIATE_BYTES)
}

/// A WRITE in one packet has all the bytes that it says it has.
fn whole(reth: &Reth, payload: &[u8]) -> Result<(), Error> {
    if usize::try_from(reth.length_bytes) == Ok(payload.len()) {
        return Ok(());
    }
    Err(Error::WriteLength { stated_bytes: reth.length_bytes, payload_bytes: payload.len() })
}

fn ack(extension: &[u8]) -> Result<Aeth, Error> {
    let (aeth, _) = Aeth::parse(extension)?;
    only_ack(aeth)
}

/// The acknowledgement of a response that has data, which a NAK would contradict (IBA 9.7.5.1.3).
fn only_ack(aeth: Aeth) -> Result<Aeth, Error> {
    match aeth.syndrome {
        Syndrome::Ack { .. } => Ok(aeth),
        Syndrome::RnrNak { .. } | Syndrome::Nak(_) => Err(Error::Syndrome(aeth.syndrome.to_byte())),
    }
}
