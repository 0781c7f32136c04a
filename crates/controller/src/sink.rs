// SPDX-License-Identifier: Apache-2.0
//! Where readings go.

use std::sync::Arc;

use onlooker_reader::clock::Relation;
use onlooker_reader::{Counters, Frames, Pair};

use onlooker_targets::Target;

/// How it goes with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Bootstrap is under way.
    Connecting,
    /// It is read: who asks, who answers.
    Reading(Pair),
    /// It was read and does not answer any more; it is asked again.
    Silent(String),
    /// It cannot be read; it is tried again.
    Failed(String),
}

impl State {
    /// What each is called.
    pub const NAMES: [&str; 4] = ["connecting", "reading", "silent", "failed"];

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        Self::NAMES[match self {
            Self::Connecting => 0,
            Self::Reading(_) => 1,
            Self::Silent(_) => 2,
            Self::Failed(_) => 3,
        }]
    }
}

/// A finished reading of one host. Times are of the reader's steady clock.
#[derive(Debug)]
pub struct Reading {
    /// When it was due.
    pub due_ns: u64,
    /// When it began.
    pub began_ns: u64,
    /// When it ended.
    pub ended_ns: u64,
    /// Requests that were lost and sent again since the host was connected.
    pub repeated: u64,
    /// The host's regions.
    pub frames: Frames,
    /// Boot id of the host.
    pub boot: Option<[u8; 16]>,
    /// What the session has counted; told once a second.
    pub counters: Option<Counters>,
    /// The host's clock.
    pub relation: Relation,
}

/// Due times of one host at which nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first of them.
    pub from_ns: u64,
    /// The last of them.
    pub to_ns: u64,
    /// How many.
    pub due_times: u64,
    /// Why, in a word: what the store and the counters know it by.
    pub reason: &'static str,
}

/// Takes what the engine reads, in order, on the processor's thread. One that takes long makes readings gaps of the
/// reason `behind`.
pub trait Sink {
    /// A reading has ended.
    fn reading(&mut self, target: &Arc<Target>, reading: &Reading);
    /// Due times were missed.
    fn gap(&mut self, target: &Arc<Target>, gap: Gap);
    /// A host's state has changed.
    fn state(&mut self, target: &Arc<Target>, state: State);
    /// A host is watched no more, or another target takes its name: nothing follows for this one.
    fn gone(&mut self, target: &Arc<Target>);
}
