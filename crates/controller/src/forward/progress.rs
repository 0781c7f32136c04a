// SPDX-License-Identifier: Apache-2.0
//! How a target is doing: its thread writes, `/metrics` and `/api/onlooker/v1/status` read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use onlooker_forward::{Body, Protocol};
use onlooker_reader::clock::Moment;

/// Why a body is sent again.
const RETRIES: [&str; 2] = ["unreachable", "status"];

/// Of one target.
#[derive(Debug)]
pub struct Progress {
    /// What it is called.
    pub name: String,
    /// How it wants samples.
    pub kind: Protocol,
    done_ns: AtomicU64,
    series: AtomicU64,
    samples: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    left: AtomicU64,
    retries: [AtomicU64; RETRIES.len()],
    gaps: AtomicU64,
    gap_ns: AtomicU64,
    damaged: AtomicU64,
    last_error: Mutex<Option<String>>,
}

fn get(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

fn add(number: &AtomicU64, more: u64) {
    number.fetch_add(more, Ordering::Relaxed);
}

impl Progress {
    pub(super) fn new(name: &str, kind: Protocol) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            done_ns: AtomicU64::default(),
            series: AtomicU64::default(),
            samples: AtomicU64::default(),
            bytes: AtomicU64::default(),
            refused: AtomicU64::default(),
            left: AtomicU64::default(),
            retries: Default::default(),
            gaps: AtomicU64::default(),
            gap_ns: AtomicU64::default(),
            damaged: AtomicU64::default(),
            last_error: Mutex::default(),
        }
    }

    pub(super) fn set(&self, done_ns: u64, series: usize) {
        self.done_ns.store(done_ns, Ordering::Relaxed);
        self.series.store(series as u64, Ordering::Relaxed);
    }

    pub(super) fn set_left(&self, left: u64) {
        self.left.store(left, Ordering::Relaxed);
    }

    pub(super) fn sent(&self, body: &Body) {
        add(&self.samples, body.samples);
        add(&self.bytes, body.bytes.len() as u64);
    }

    pub(super) fn refused(&self, body: &Body, what: &str) {
        add(&self.refused, body.samples);
        self.failed(Some(what));
    }

    pub(super) fn retried(&self, reason: &str) {
        let counts = RETRIES.iter().zip(&self.retries).filter(|(own, _)| **own == reason);
        counts.for_each(|(_, count)| add(count, 1));
    }

    pub(super) fn gap(&self, span_ns: u64) {
        add(&self.gaps, 1);
        add(&self.gap_ns, span_ns);
    }

    pub(super) fn add_damaged(&self, chunks: u64) {
        add(&self.damaged, chunks);
    }

    pub(super) fn failed(&self, what: Option<&str>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = what.map(str::to_owned);
    }

    /// How long ago the last row was read that it has, ns; 0: it has not begun.
    #[must_use]
    pub fn lag_ns(&self) -> u64 {
        match get(&self.done_ns) {
            0 => 0,
            done_ns => Moment::now().utc_ns.saturating_sub(done_ns),
        }
    }

    /// Series that go on.
    #[must_use]
    pub fn series(&self) -> u64 {
        get(&self.series)
    }

    /// Samples that it has taken.
    #[must_use]
    pub fn samples(&self) -> u64 {
        get(&self.samples)
    }

    /// Bytes of their bodies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        get(&self.bytes)
    }

    /// Samples that it does not have and will not get, by reason.
    pub fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [("refused", get(&self.refused)), ("no_number", get(&self.left))].into_iter()
    }

    /// Times that a body was sent again, by reason.
    pub fn retries(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        RETRIES.into_iter().zip(self.retries.iter().map(get))
    }

    /// Times whose rows were deleted before they were sent: how many, and how long all together, ns.
    #[must_use]
    pub fn gaps(&self) -> (u64, u64) {
        (get(&self.gaps), get(&self.gap_ns))
    }

    /// Chunks that could not be sent because they are damaged.
    #[must_use]
    pub fn damaged(&self) -> u64 {
        get(&self.damaged)
    }

    /// What is wrong now.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
