// SPDX-License-Identifier: Apache-2.0
//! What comes in: whose it is, whether it is an answer that somebody waits for, and what it ends. Every datagram is counted exactly once.

use super::flow::{Counters, Flow, Place};
use super::tables::{Packet, State};
use super::{Answered, Exchange};
use onlooker_reader::{Completion, Memory, Outcome};
use onlooker_wire::profile::BLOCK_BYTES;
use onlooker_wire::tcp_read::Refusal;
use onlooker_wire::{Bth, NakCode, Packet as WirePacket, Part, Psn, Syndrome};
use std::net::SocketAddr;

/// The bytes asked for, or why there are none.
type Answer<'a> = Result<&'a [u8], Refusal>;

impl Exchange {
    /// Takes a datagram in. `congested`: its IP header had a congestion mark. Returns whose answer
    /// to a request it was, if it was one.
    ///
    /// # Panics
    /// If a READ under way names blocks outside of `memory`.
    pub fn received(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        congested: bool,
        now_ns: u64,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) -> Option<Answered> {
        let Ok((bth, _)) = Bth::parse(datagram) else {
            self.strays.malformed += 1;
            self.totals.dropped += 1;
            return None;
        };
        let index = self.by_qpn.get(&bth.destination.get()).copied();
        let flow = index.and_then(|index| self.flows[index as usize].as_mut());
        let Some(flow) = flow.filter(|flow| flow.peer.ip() == from.ip() && flow.peer.port() == from.port()) else {
            self.strays.foreign += 1;
            self.totals.dropped += 1;
            return None;
        };
        let accepted = match WirePacket::parse_datagram(&flow.incoming, datagram) {
            Ok(packet) => {
                flow.counters.congestion_marked += u64::from(congested);
                self.totals.congestion_marked += u64::from(congested);
                accept(flow, &self.packets.places, bth.psn, &packet, now_ns)
            }
            Err(onlooker_wire::Error::Icrc { .. }) => Err(&mut flow.counters.bad_icrc),
            Err(_) => Err(&mut flow.counters.malformed),
        };
        match accepted {
            Ok((packet, answer)) => {
                let Packet { flow, is_bypassed: was_bypassed, .. } = self.packets[packet];
                self.take(packet, answer, now_ns, memory, completions);
                Some(Answered { flow, was_bypassed })
            }
            Err(counter) => {
                *counter += 1;
                self.totals.dropped += 1;
                None
            }
        }
    }

    /// Settles a packet with its answer.
    fn take(
        &mut self,
        index: u32,
        answer: Answer<'_>,
        now_ns: u64,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) {
        let packet = self.packets[index];
        let reading = self.readings[packet.reading];
        let flow = self.flows[packet.flow as usize].as_mut().expect("a flow outlives its packets");
        flow.settle(packet.psn, Place::Answered);
        flow.rtt.record(now_ns.saturating_sub(packet.sent_ns));
        let counters = &mut flow.counters;
        match answer {
            _ if reading.ended => {
                counters.late += 1;
                self.totals.dropped += 1;
            }
            Ok(payload) => {
                counters.answered += 1;
                self.readings[packet.reading].is_recovered |= packet.repeats > 0;
                let blocks = memory.blocks(reading.id, reading.at + packet.offset_blocks, packet.blocks);
                for (block, bytes) in blocks.iter_mut().zip(payload.chunks_exact(BLOCK_BYTES as usize)) {
                    block.bytes_mut().copy_from_slice(bytes);
                }
                if reading.packets == 1 {
                    self.end(packet.reading, Outcome::Done, completions);
                }
            }
            Err(refusal) => {
                counters.refused += 1;
                self.end(packet.reading, Outcome::Refused(refusal), completions);
            }
        }
        self.release(index);
    }
}

/// The packet that waits for this and what it gets, or the counter of why it is dropped.
fn accept<'a, 'f>(
    flow: &'f mut Flow,
    packets: &[Packet],
    psn: Psn,
    answer: &WirePacket<'a>,
    now_ns: u64,
) -> Result<(u32, Answer<'a>), &'f mut u64> {
    let place = flow.look_up(psn);
    if let Place::Lost(sent) = place {
        flow.learn(psn, sent, now_ns);
    }
    let Counters { late, duplicate, unsent, wrong_length, not_ready, malformed, .. } = &mut flow.counters;
    let index = match place {
        // Staged and not sent: nobody can have answered it.
        Place::Waiting(index) if packets[index as usize].state == State::Queued => return Err(unsent),
        Place::Waiting(index) => index,
        Place::Lost(_) | Place::Forgotten => return Err(late),
        Place::Answered => return Err(duplicate),
        Place::Unused => return Err(unsent),
    };
    match answer {
        WirePacket::ReadAnswer(answer) if matches!(answer.part, Part::Only(_)) => {
            let asked_bytes = packets[index as usize].blocks as usize * BLOCK_BYTES as usize;
            if answer.payload.len() == asked_bytes { Ok((index, Ok(answer.payload))) } else { Err(wrong_length) }
        }
        WirePacket::Acknowledge(acknowledge) => match acknowledge.aeth.syndrome {
            Syndrome::Ack { .. } => Err(malformed),
            Syndrome::RnrNak { .. } | Syndrome::Nak(NakCode::PsnSequence) => Err(not_ready),
            Syndrome::Nak(NakCode::InvalidRequest) => Ok((index, Err(Refusal::InvalidRequest))),
            Syndrome::Nak(NakCode::RemoteAccess) => Ok((index, Err(Refusal::Access))),
            // The nearest that there is: the responder's own trouble, which may pass.
            Syndrome::Nak(NakCode::RemoteOperational) => Ok((index, Err(Refusal::Overloaded))),
        },
        WirePacket::ReadAnswer(_)
        | WirePacket::ReadRequest(_)
        | WirePacket::WriteRequest(_)
        | WirePacket::FetchAdd(_)
        | WirePacket::AtomicAnswer(_) => Err(malformed),
    }
}
