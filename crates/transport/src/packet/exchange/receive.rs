// SPDX-License-Identifier: Apache-2.0
//! What comes in: whose it is, whether it is what is missing, and what it ends. Every packet is counted exactly once.

use super::{Exchange, Reading};
use onlooker_reader::{Broken, Completion, Fault, Memory, Outcome};
use onlooker_wire::profile::BLOCK_BYTES;
use onlooker_wire::tcp_read::Refusal;
use onlooker_wire::{Acknowledge, Bth, Envelope, Error, NakCode, Packet, Part, Psn, ROCE_PORT, ReadAnswer, Syndrome};

/// Where a number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has come.
    Past,
    /// The next that is to come.
    Missing,
    /// Asked for, too, but an earlier one has not come.
    Later,
    /// Not asked for.
    Unsent,
}

impl Exchange {
    /// Takes an IP packet in.
    ///
    /// # Panics
    /// If a READ under way names blocks outside of `memory`.
    pub fn received(
        &mut self,
        packet: &[u8],
        now_ns: u64,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) {
        let Ok((envelope, datagram)) = Envelope::parse(self.outgoing.ip.ether_type(), packet) else {
            self.counters.malformed += 1;
            return;
        };
        if !self.is_from_host(&envelope) {
            self.counters.foreign += 1;
            return;
        }
        let Ok((bth, _)) = Bth::parse(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        if bth.destination != self.own {
            self.counters.foreign += 1;
            return;
        }
        match Packet::parse_datagram(&envelope, datagram) {
            Ok(packet) => {
                self.counters.congestion_marked += u64::from(envelope.ip.is_congestion_marked());
                self.take(bth.psn, &packet, now_ns, memory, completions);
            }
            Err(Error::Icrc { .. }) => self.counters.bad_icrc += 1,
            Err(_) => self.counters.malformed += 1,
        }
    }

    /// Devices send from any port, and always to RoCEv2's.
    fn is_from_host(&self, envelope: &Envelope) -> bool {
        let (theirs, ours) = (envelope.ip, self.outgoing.ip);
        envelope.ports.destination == ROCE_PORT
            && (theirs.source(), theirs.destination()) == (ours.destination(), ours.source())
    }

    fn place(&self, psn: Psn) -> Place {
        let missing = self.readings.front().map_or(self.next, Reading::missing);
        match psn.distance_from(missing) {
            ..0 => Place::Past,
            _ if !self.asked.is_after(psn) => Place::Unsent,
            0 => Place::Missing,
            _ => Place::Later,
        }
    }

    fn take(
        &mut self,
        psn: Psn,
        packet: &Packet<'_>,
        now_ns: u64,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) {
        match (self.place(psn), packet) {
            (_, Packet::ReadRequest(_) | Packet::WriteRequest(_) | Packet::FetchAdd(_) | Packet::AtomicAnswer(_)) => {
                self.counters.malformed += 1
            }
            (Place::Past, Packet::ReadAnswer(_)) => self.duplicate(now_ns),
            (Place::Past, _) => self.counters.duplicate += 1,
            (Place::Unsent, _) => self.counters.unsent += 1,
            (Place::Missing, Packet::ReadAnswer(answer)) => self.accept(answer, now_ns, memory, completions),
            (Place::Later, Packet::ReadAnswer(_)) => self.gap(),
            (Place::Missing | Place::Later, Packet::Acknowledge(answer)) => self.acknowledged(answer, completions),
        }
    }

    /// The packet that is missing.
    fn accept(
        &mut self,
        answer: &ReadAnswer<'_>,
        now_ns: u64,
        memory: &mut (impl Memory + ?Sized),
        completions: &mut Vec<Completion>,
    ) {
        let reading = self.readings.front_mut().expect("what is missing is the first one's");
        if !is_due(reading, answer.part) || answer.payload.len() != self.mtu_bytes as usize {
            self.counters.wrong_part += 1;
            return;
        }
        if reading.ended {
            self.counters.late += 1;
        } else {
            self.counters.answered += 1;
            let offset_bytes = reading.got * self.mtu_bytes;
            let block = &mut memory.blocks(reading.id, reading.at + offset_bytes / BLOCK_BYTES, 1)[0];
            let from = (offset_bytes % BLOCK_BYTES) as usize;
            block.bytes_mut()[from..][..answer.payload.len()].copy_from_slice(answer.payload);
        }
        // Of what was sent twice nobody knows which is answered (RFC 6298 3).
        if reading.got == 0 && reading.sends == 1 {
            self.rtt.record(now_ns.saturating_sub(reading.sent_ns));
            (self.least_backoff, self.tried) = (0, None);
        }
        self.backoff = self.least_backoff;
        reading.got += 1;
        if reading.got == reading.packets {
            self.end(0, Outcome::Done, completions);
            self.readings.pop_front();
            self.unsent = self.unsent.saturating_sub(1);
        }
        self.progress(answer.psn.wrapping_add(1), now_ns);
    }

    /// Something has come, and `missing` is next.
    fn progress(&mut self, missing: Psn, now_ns: u64) {
        self.repeats = 0;
        self.recovers_to = self.recovers_to.filter(|end| end.is_after(missing));
        self.missed = self.missed.filter(|psn| !missing.is_after(*psn));
        self.lost_ns = (self.unsent > 0).then(|| now_ns.saturating_add(self.rto_ns()));
    }

    /// What has come comes again. After a time-out that tells, once, that it was too early: nothing had been lost.
    fn duplicate(&mut self, now_ns: u64) {
        self.counters.duplicate += 1;
        if let Some(tried) = self.tried.take() {
            self.least_backoff = self.least_backoff.max(tried);
            self.backoff = self.backoff.max(self.least_backoff);
            self.lost_ns = self.lost_ns.map(|_| now_ns.saturating_add(self.rto_ns()));
        }
    }

    /// An answer came before another that was lost, or was overtaken.
    fn gap(&mut self) {
        self.counters.out_of_order += 1;
        if self.recovers_to.is_none() {
            self.counters.gaps += 1;
            self.recovers_to = Some(self.asked);
            // What is sent again now may bring duplicates itself.
            self.tried = None;
            self.go_back(0);
        }
    }

    /// A READ is acknowledged by its answer, so that this is a NAK.
    fn acknowledged(&mut self, acknowledge: &Acknowledge, completions: &mut Vec<Completion>) {
        let psn = acknowledge.psn;
        let index = self.readings.iter().position(|reading| reading.end().is_after(psn)).expect("it was asked for");
        let (refusal, fault) = match acknowledge.aeth.syndrome {
            Syndrome::Ack { .. } | Syndrome::RnrNak { .. } => {
                self.counters.not_ready += 1;
                return;
            }
            // A request was lost; what came before it is answered, or about to be.
            Syndrome::Nak(NakCode::PsnSequence) => {
                self.counters.missed += 1;
                if self.missed != Some(psn) {
                    self.missed = Some(psn);
                    self.go_back(index);
                }
                return;
            }
            Syndrome::Nak(NakCode::InvalidRequest) => (Some(Refusal::InvalidRequest), Fault::Invalid),
            Syndrome::Nak(NakCode::RemoteAccess) => (Some(Refusal::Access), Fault::Access),
            Syndrome::Nak(NakCode::RemoteOperational) => (None, Fault::Remote),
        };
        self.counters.refused += 1;
        if let Some(refusal) = refusal {
            self.end(index, Outcome::Refused(refusal), completions);
        }
        self.give_up(Broken::QueuePair(fault), completions);
    }
}

/// Whether a part can be the next of a READ. The first packet of a repeat has the opcode of a first one, as the standard has it, or goes on as a middle or last one, as
/// rdma_rxe has it.
fn is_due(reading: &Reading, part: Part) -> bool {
    let (is_first, is_last) = (reading.got == 0, reading.got + 1 == reading.packets);
    match part {
        Part::First(_) => !is_last,
        Part::Middle => !is_first && !is_last,
        Part::Last(_) => !is_first && is_last,
        Part::Only(_) => is_last,
    }
}
