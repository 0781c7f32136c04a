// SPDX-License-Identifier: Apache-2.0
//! A reporter's side of reports that must arrive: their numbers, and a small store out of which they are sent again.
//!
//! The translator takes them in sequence only. It says so when one is missing, and when it is asked ([`Sender::probe`]),
//! which a reporter does as long as it has not heard of its last one: a gap shows only what others come behind.

use std::collections::VecDeque;

use crate::translator::NEAR;
use onlooker_wire::dta::{Answer, Body, Importance, Refused, Report, Verdict};

/// Reports that may be on their way (paper D, section on report loss).
pub const MOST_UNDER_WAY: usize = 256;

/// Why a report was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// Too many are on their way: the next one goes when the translator has answered.
    Full,
    /// Nobody would take it.
    Refused(Refused),
}

/// Numbers and keeps the retransmittable reports of a reporter.
#[derive(Debug)]
pub struct Sender {
    reporter: u32,
    /// The last one that has come, as far as is known.
    received: u32,
    /// Datagrams of those behind it.
    under_way: VecDeque<Vec<u8>>,
    /// Table and access key of the last one.
    last: (u16, u32),
    /// All that is under way has been sent again, and nothing has come since.
    is_again: bool,
    is_congested: bool,
}

impl Sender {
    /// Of a reporter that begins behind this sequence number: another one than the time before, best a random one.
    #[must_use]
    pub fn new(reporter: u32, before: u32) -> Self {
        Self {
            reporter,
            received: before,
            under_way: VecDeque::new(),
            last: (0, 0),
            is_again: false,
            is_congested: false,
        }
    }

    /// Whether the translator has said that it has too many reports: only those of high importance are to be sent.
    #[must_use]
    pub fn is_congested(&self) -> bool {
        self.is_congested
    }

    /// Reports of which the translator has not said that they have come.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// The number of the last one.
    fn sent(&self) -> u32 {
        // There are 256 at most.
        self.received.wrapping_add(u32::try_from(self.under_way.len()).unwrap_or(0))
    }

    /// Numbers a report and keeps it; returns the datagram.
    ///
    /// # Errors
    /// [`NotSent`].
    pub fn send(&mut self, report: &Report<'_>) -> Result<Vec<u8>, NotSent> {
        if self.under_way.len() >= MOST_UNDER_WAY {
            return Err(NotSent::Full);
        }
        let sequence = Some(self.sent().wrapping_add(1));
        let datagram = written(&Report { reporter: self.reporter, sequence, ..*report })?;
        self.under_way.push_back(datagram.clone());
        self.last = (report.table, report.access);
        Ok(datagram)
    }

    /// Asks what has come; `None`: all has. To be called when an answer has not come for longer than it takes: what is missing then is sent once more.
    #[must_use]
    pub fn probe(&mut self) -> Option<Vec<u8>> {
        if self.under_way.is_empty() {
            return None;
        }
        self.is_again = false;
        let (table, access) = self.last;
        let probe = Report {
            importance: Importance::High,
            immediate: false,
            sequence: Some(self.sent()),
            reporter: self.reporter,
            table,
            access,
            generation: 0,
            body: Body::Probe { received: self.received },
        };
        written(&probe).ok()
    }

    /// Takes an answer in; returns what is to be sent, in order. Each report behind one that is missing has an answer, and the first of them counts: else a window
    /// of reports would be sent again for each that is in it.
    #[must_use]
    pub fn answered(&mut self, answer: &Answer) -> Vec<Vec<u8>> {
        if answer.reporter != self.reporter || answer.access != self.last.1 {
            return Vec::new();
        }
        self.is_congested = answer.is_congested;
        if answer.verdict == Verdict::Unknown {
            return self.probe().into_iter().collect();
        }
        match answer.sequence.wrapping_sub(self.received).cast_signed() {
            // An answer that another one has overtaken.
            ..0 => return Vec::new(),
            come if come.unsigned_abs() as usize <= self.under_way.len() => {
                self.under_way.drain(..come.unsigned_abs() as usize);
                self.received = answer.sequence;
                self.is_again &= come == 0;
            }
            // The translator knows of more than was sent: another one had these numbers.
            _ => {
                self.renumber(answer.sequence.wrapping_add(2 * NEAR));
                return self.probe().into_iter().collect();
            }
        }
        match answer.verdict {
            Verdict::Missing if !self.is_again => {
                self.is_again = true;
                self.under_way.iter().cloned().collect()
            }
            Verdict::Missing | Verdict::Received | Verdict::Unknown => Vec::new(),
        }
    }

    /// Begins again behind another number.
    fn renumber(&mut self, received: u32) {
        self.received = received;
        for (datagram, sequence) in self.under_way.iter_mut().zip(1u32..) {
            if let Ok(report) = Report::parse(datagram) {
                let sequence = Some(received.wrapping_add(sequence));
                if let Ok(renumbered) = written(&Report { sequence, ..report }) {
                    *datagram = renumbered;
                }
            }
        }
    }
}

fn written(report: &Report<'_>) -> Result<Vec<u8>, NotSent> {
    let mut datagram = vec![0; report.len_bytes()];
    report.write(&mut datagram).map_err(NotSent::Refused)?;
    Ok(datagram)
}
