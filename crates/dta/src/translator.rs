// SPDX-License-Identifier: Apache-2.0
//! Reports become writes of memory: what a translator decides, whoever carries it out.
//!
//! Cheapest first: the bytes, the source, the table and its access key, the source's budget, the sequence. A report is stored or
//! discarded with a reason, and both are counted: received is stored, probes and discarded, exactly.
//!
//! Of a reporter's retransmittable reports those are taken that follow one another. One that came before is a duplicate,
//! one before which others are missing is not taken, and the reporter is told the last that was. So an addend that is sent
//! again is not added again. A reporter's probe says where it begins.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use onlooker_wire::dta::{Answer, Body, Refused, Report, Verdict};

use crate::append::{List, MAX_BATCH_BYTES, Open, Position};
use crate::geometry::Geometry;
use crate::increment::Counters;
use crate::key_write::{MAX_ENTRY_BYTES, Stamp, Table};

/// A sequence number that is further away than this, either way, is of a reporter that has begun again.
pub const NEAR: u32 = 1 << 16;

/// What lies at a table's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The newest value of each key.
    KeyWrite(Table),
    /// A list, that goes on there.
    Append(List, Position),
    /// Counters, and the epoch that counts.
    KeyIncrement(Counters, u64),
}

impl Shape {
    /// Without what changes.
    #[must_use]
    pub const fn geometry(self) -> Geometry {
        match self {
            Self::KeyWrite(table) => Geometry::KeyWrite(table),
            Self::Append(list, _) => Geometry::Append(list),
            Self::KeyIncrement(counters, _) => Geometry::KeyIncrement(counters),
        }
    }
}

/// A table or list that reports may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Its number.
    pub number: u16,
    /// What a reporter must know.
    pub access: u32,
    /// What it is like.
    pub shape: Shape,
}

/// Who may send how much.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Sources that are heard. Empty: none.
    pub sources: Vec<IpNet>,
    /// Reports a second of each source's address, and that many at once.
    pub rate_per_s: u64,
    /// Sources and reporters that are remembered, of each so many; those beyond are discarded.
    pub most_known: usize,
    /// How long an entry waits for others of its batch, ns.
    pub wait_ns: u64,
}

/// What is to be done with a table's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Bytes go there.
    Write {
        /// The table's number.
        table: u16,
        /// Bytes from its beginning.
        offset: u64,
        /// What is written.
        bytes: &'a [u8],
    },
    /// A word grows, in one step.
    Add {
        /// The table's number.
        table: u16,
        /// Bytes from its beginning.
        offset: u64,
        /// By so much.
        addend: u64,
    },
    /// Whoever waits for the table is woken.
    Wake {
        /// The table's number.
        table: u16,
    },
}

/// Why a report was not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// It is none.
    Refused(Refused),
    /// Its source is not on the list.
    Source,
    /// Its source has sent more than it may.
    Budget,
    /// There is no such table.
    Table,
    /// It has another access key than the table.
    Access,
    /// The table is of another primitive.
    Primitive,
    /// Its payload is not as long as the table's.
    Payload,
    /// It has come before.
    Duplicate,
    /// Others are missing before it.
    Gap,
    /// It is numbered, and its reporter has not said where it begins.
    Unknown,
    /// There are more sources or reporters than are remembered.
    Crowded,
}

impl Discard {
    /// A short stable name, for counters.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.reason(),
            Self::Source => "source",
            Self::Budget => "budget",
            Self::Table => "table",
            Self::Access => "access",
            Self::Primitive => "other_primitive",
            Self::Payload => "other_payload",
            Self::Duplicate => "duplicate",
            Self::Gap => "gap",
            Self::Unknown => "unknown_reporter",
            Self::Crowded => "crowded",
        }
    }
}

/// How many reports came, and what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub received: u64,
    /// Those that were written, or wait for others of their batch.
    pub stored: u64,
    /// Those that only asked.
    pub probes: u64,
    /// The others, by reason.
    pub discarded: BTreeMap<&'static str, u64>,
}

/// What a source may still send.
#[derive(Debug, Clone, Copy)]
struct Budget {
    reports: u64,
    since_ns: u64,
}

/// Turns reports into operations.
#[derive(Debug)]
pub struct Translator {
    services: HashMap<u16, Service>,
    open: HashMap<u16, Open>,
    limits: Limits,
    budgets: HashMap<IpAddr, Budget>,
    /// The last sequence number of each reporter, by source, too: nobody can take another's.
    reporters: HashMap<(IpAddr, u32), u32>,
    counts: Counts,
}

impl Translator {
    /// Of these tables.
    #[must_use]
    pub fn new(services: impl IntoIterator<Item = Service>, limits: Limits) -> Self {
        let services: HashMap<u16, Service> = services.into_iter().map(|service| (service.number, service)).collect();
        let lists = services.values().filter_map(|service| match service.shape {
            Shape::Append(list, position) => Some((service.number, Open::new(list, position))),
            Shape::KeyWrite(_) | Shape::KeyIncrement(..) => None,
        });
        let (open, (budgets, reporters, counts)) = (lists.collect(), Default::default());
        Self { services, open, limits, budgets, reporters, counts }
    }

    /// What became of all reports.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes a datagram of a source; `apply` carries out what is to be done. Returns what the reporter is told.
    pub fn take(
        &mut self,
        now_ns: u64,
        source: IpAddr,
        datagram: &[u8],
        apply: &mut impl FnMut(Operation<'_>),
    ) -> Option<Answer> {
        self.counts.received += 1;
        let (report, service) = match self.allowed(now_ns, source, datagram) {
            Ok(allowed) => allowed,
            Err(discard) => return self.discard(discard, None),
        };
        let answer = |verdict, sequence| {
            let Report { reporter, access, .. } = report;
            Some(Answer { verdict, is_congested: false, reporter, sequence, access })
        };
        let known = (source, report.reporter);
        let last = self.reporters.get(&known).copied();
        let distance = last.zip(report.sequence).map(|(last, sequence)| sequence.wrapping_sub(last).cast_signed());
        let distance = distance.filter(|distance| distance.unsigned_abs() <= NEAR);
        if let Body::Probe { received } = report.body {
            let asked = report.sequence.unwrap_or(received);
            let is_new = last.is_none_or(|last| received.wrapping_sub(last).cast_signed() > 0) || distance.is_none();
            if is_new && last.is_none() && self.reporters.len() >= self.limits.most_known {
                return self.discard(Discard::Crowded, None);
            }
            self.counts.probes += 1;
            let last = if is_new { received } else { last.unwrap_or(received) };
            self.reporters.insert(known, last);
            return answer(if last == asked { Verdict::Received } else { Verdict::Missing }, last);
        }
        if let Some(sequence) = report.sequence {
            match distance {
                Some(1) => self.reporters.insert(known, sequence),
                Some(..=0) => return self.discard(Discard::Duplicate, None),
                Some(_) => return self.discard(Discard::Gap, last.and_then(|last| answer(Verdict::Missing, last))),
                None => return self.discard(Discard::Unknown, answer(Verdict::Unknown, sequence)),
            };
        }
        self.counts.stored += 1;
        self.store(now_ns, &report, service, apply);
        None
    }

    fn discard(&mut self, discard: Discard, answer: Option<Answer>) -> Option<Answer> {
        *self.counts.discarded.entry(discard.reason()).or_default() += 1;
        answer
    }

    /// A report that may be stored, by all but its sequence number, and where.
    fn allowed<'a>(
        &mut self,
        now_ns: u64,
        source: IpAddr,
        datagram: &'a [u8],
    ) -> Result<(Report<'a>, Service), Discard> {
        let report = Report::parse(datagram).map_err(Discard::Refused)?;
        if !self.limits.sources.iter().any(|net| net.contains(&source)) {
            return Err(Discard::Source);
        }
        let service = self.services.get(&report.table).copied().ok_or(Discard::Table)?;
        if service.access != report.access {
            return Err(Discard::Access);
        }
        self.spend(now_ns, source)?;
        let payload_bytes = match (service.shape, report.body) {
            (_, Body::Probe { .. }) | (Shape::KeyIncrement(..), Body::KeyIncrement { .. }) => {
                return Ok((report, service));
            }
            (Shape::KeyWrite(table), Body::KeyWrite { payload, .. }) => (payload.len(), table.payload_bytes),
            (Shape::Append(list, _), Body::Append { payload }) => (payload.len(), list.entry_bytes),
            _ => return Err(Discard::Primitive),
        };
        let (got, wanted) = payload_bytes;
        if got == usize::from(wanted) { Ok((report, service)) } else { Err(Discard::Payload) }
    }

    /// Takes one report from a source's budget, which fills again over a second.
    fn spend(&mut self, now_ns: u64, source: IpAddr) -> Result<(), Discard> {
        const SECOND_NS: u128 = 1_000_000_000;
        let most = self.limits.rate_per_s;
        let full = Budget { reports: most, since_ns: now_ns };
        if self.budgets.len() >= self.limits.most_known && !self.budgets.contains_key(&source) {
            return Err(Discard::Crowded);
        }
        let budget = self.budgets.entry(source).or_insert(full);
        let passed_ns = u128::from(now_ns.saturating_sub(budget.since_ns));
        let more = u64::try_from(passed_ns * u128::from(most) / SECOND_NS).unwrap_or(u64::MAX);
        if more > 0 {
            // What is not a whole report yet counts on.
            let spent_ns = u64::try_from(u128::from(more) * SECOND_NS / u128::from(most)).unwrap_or(u64::MAX);
            *budget = match budget.reports.saturating_add(more) {
                reports if reports < most => Budget { reports, since_ns: budget.since_ns.saturating_add(spent_ns) },
                _ => full,
            };
        }
        budget.reports = budget.reports.checked_sub(1).ok_or(Discard::Budget)?;
        Ok(())
    }

    fn store(
        &mut self,
        now_ns: u64,
        report: &Report<'_>,
        Service { number: table, shape, .. }: Service,
        apply: &mut impl FnMut(Operation<'_>),
    ) {
        match (shape, report.body) {
            (Shape::KeyWrite(of), Body::KeyWrite { key, payload, copies }) => {
                let (hash, mut entry) = (of.hash(key), [0; MAX_ENTRY_BYTES]);
                of.encode(&hash, Stamp::of(now_ns), payload, &mut entry);
                let bytes = &entry[..of.entry_bytes()];
                copies
                    .numbers()
                    .for_each(|copy| apply(Operation::Write { table, offset: of.offset(&hash, copy), bytes }));
            }
            (Shape::KeyIncrement(of, epoch), Body::KeyIncrement { key, addend, copies }) => {
                let hash = of.hash(key);
                let add = |copy| Operation::Add { table, offset: of.offset(&hash, copy, epoch), addend };
                copies.numbers().for_each(|copy| apply(add(copy)));
            }
            (_, Body::Append { payload }) => {
                if let Some(open) = self.open.get_mut(&table)
                    && (open.push(payload, now_ns) || report.immediate)
                {
                    write_batch(table, open, now_ns, apply);
                }
            }
            _ => {}
        }
        if report.immediate {
            apply(Operation::Wake { table });
        }
    }

    /// Writes what has waited for its batch long enough.
    pub fn flush(&mut self, now_ns: u64, apply: &mut impl FnMut(Operation<'_>)) {
        for (table, open) in &mut self.open {
            if open.waits_since_ns().is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= self.limits.wait_ns) {
                write_batch(*table, open, now_ns, apply);
            }
        }
    }
}

/// Writes a list's open batch.
fn write_batch(table: u16, open: &mut Open, now_ns: u64, apply: &mut impl FnMut(Operation<'_>)) {
    let mut bytes = [0; MAX_BATCH_BYTES];
    if let Some(offset) = open.take(now_ns, &mut bytes) {
        apply(Operation::Write { table, offset, bytes: &bytes[..open.list().batch_bytes()] });
    }
}

#[cfg(test)]
mod tests;
