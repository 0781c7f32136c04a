// SPDX-License-Identifier: Apache-2.0
//! What two queue pairs tell each other before the first READ, by way of the bootstrap endpoint.

use onlooker_wire::{PATH_MTUS, Psn, Qpn};

/// One end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The queue pair's number.
    pub queue_pair: u32,
    /// Number of the first packet that it sends. Fresh each time that it connects.
    pub packet: u32,
    /// The device's address.
    pub gid: [u8; 16],
    /// Longest payload of a packet that its port takes, bytes.
    pub mtu_bytes: u16,
    /// READs that it answers at once.
    pub reads_answered: u8,
}

/// What cannot be an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// Not of 24 bits, or the subnet's.
    #[error("{0} is no number of a queue pair")]
    QueuePair(u32),
    /// Not of 24 bits.
    #[error("{0} is no number of a packet")]
    Packet(u32),
    /// No path MTU.
    #[error("{0} bytes is no path MTU")]
    Mtu(u16),
    /// It would answer none: on soft-RoCE such a READ hangs without an error.
    #[error("the other end answers no READs")]
    NoReads,
    /// 0 waits for ever, and with more than 6 repeats soft-RoCE was seen not to give up.
    #[error("a time-out of 2^{0} and {1} repeats is no patience: 1 to 31, and at most 6")]
    Patience(u8, u8),
}

impl Endpoint {
    /// Whether it can be one.
    ///
    /// # Errors
    /// [`BadEndpoint`].
    pub fn check(&self) -> Result<(), BadEndpoint> {
        if Qpn::new(self.queue_pair).is_none_or(|number| number.get() < Qpn::FIRST.get()) {
            return Err(BadEndpoint::QueuePair(self.queue_pair));
        }
        if Psn::new(self.packet).is_none() {
            return Err(BadEndpoint::Packet(self.packet));
        }
        if !PATH_MTUS.contains(&self.mtu_bytes) {
            return Err(BadEndpoint::Mtu(self.mtu_bytes));
        }
        Ok(())
    }

    /// READs that a requester which sends `reads_sent` at once may have under way towards this end: more are no error that soft-RoCE would tell of, but one that
    /// ends the queue pair on a card (IBA 9.4.4: the responder's resources).
    ///
    /// # Errors
    /// [`BadEndpoint::NoReads`].
    pub fn reads_from(&self, reads_sent: u8) -> Result<u8, BadEndpoint> {
        match self.reads_answered.min(reads_sent) {
            0 => Err(BadEndpoint::NoReads),
            reads => Ok(reads),
        }
    }
}

/// How patient a requester is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Waits 4.096 us times two to the power of this for an answer before it asks again (IBA 9.7.6.1.3); a card waits up to four times as long.
    pub timeout_exponent: u8,
    /// Asks again so many times, at most 6: with 7 soft-RoCE was seen not to give up.
    pub retries: u8,
}

impl Path {
    /// Whether it is one that ends.
    ///
    /// # Errors
    /// [`BadEndpoint::Patience`].
    pub fn check(&self) -> Result<(), BadEndpoint> {
        let is_possible = (1..=31).contains(&self.timeout_exponent) && self.retries <= 6;
        if is_possible { Ok(()) } else { Err(BadEndpoint::Patience(self.timeout_exponent, self.retries)) }
    }
}

impl Default for Path {
    /// 0.54 s seven times.
    fn default() -> Self {
        Self { timeout_exponent: 17, retries: 6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Endpoint = Endpoint { queue_pair: 17, packet: 0, gid: [0; 16], mtu_bytes: 1024, reads_answered: 16 };

    #[test]
    fn only_what_can_be_an_endpoint_is_one() {
        assert_eq!(GOOD.check(), Ok(()));
        for (endpoint, wrong) in [
            (Endpoint { queue_pair: 1, ..GOOD }, BadEndpoint::QueuePair(1)),
            (Endpoint { queue_pair: 1 << 24, ..GOOD }, BadEndpoint::QueuePair(1 << 24)),
            (Endpoint { packet: 1 << 24, ..GOOD }, BadEndpoint::Packet(1 << 24)),
            (Endpoint { mtu_bytes: 1500, ..GOOD }, BadEndpoint::Mtu(1500)),
        ] {
            assert_eq!(endpoint.check(), Err(wrong));
        }
        assert_eq!(Path::default().check(), Ok(()));
        for (timeout_exponent, retries) in [(0, 6), (32, 6), (17, 7)] {
            let path = Path { timeout_exponent, retries };
            assert_eq!(path.check(), Err(BadEndpoint::Patience(timeout_exponent, retries)));
        }
    }

    #[test]
    fn no_more_reads_than_either_end_can() {
        let of = |answered, sent| Endpoint { reads_answered: answered, ..GOOD }.reads_from(sent);
        assert_eq!((of(16, 128), of(128, 16), of(1, 1)), (Ok(16), Ok(16), Ok(1)));
        assert_eq!((of(0, 16), of(16, 0)), (Err(BadEndpoint::NoReads), Err(BadEndpoint::NoReads)));
    }
}
