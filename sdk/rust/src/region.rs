// SPDX-License-Identifier: Apache-2.0
//! A region at run time: its memory, what the agent knows of it, and how it moves.
//!
//! Values are written by the program's threads; identities, [`Live`] and the backing by the SDK's thread under the region's lock.

use crate::placement::{Mapping, MemoryId, Place, PlaceError};
use crate::switch::{Plan, block_words, identity_at};
use crate::turn::Turn;
use onlooker_region::Schema;
use onlooker_region::block::{GUARDED_FIRST, Identity};
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::schema::Kind;
use onlooker_region::table::{self, KeyPart, Layout, Table};
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The place of a region's blocks from `words.start` on, as memory of a table.
#[derive(Debug)]
pub(crate) struct Window {
    place: Arc<Place>,
    words: Range<usize>,
}

impl AsRef<[AtomicU64]> for Window {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.place.words()[self.words.clone()]
    }
}

/// Where a table stands.
#[derive(Clone, Debug)]
pub(crate) struct TableSpec {
    pub(crate) layout: Layout,
    pub(crate) blocks: Range<usize>,
}

/// What the agent made of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Standing {
    /// Not registered yet, or not any more.
    Waiting,
    /// Visible to readers.
    Published,
    /// Refused by the agent.
    Refused,
    /// Cannot be published in this process.
    Private,
}

/// A [`Standing`] that can be read in any state of locks. Written by the SDK's thread, and by the child of a fork.
#[derive(Debug)]
pub(crate) struct StandingCell(AtomicU8);

impl StandingCell {
    pub(crate) fn get(&self) -> Standing {
        match self.0.load(Relaxed) {
            0 => Standing::Waiting,
            1 => Standing::Published,
            2 => Standing::Refused,
            _ => Standing::Private,
        }
    }

    pub(crate) fn set(&self, standing: Standing) {
        self.0.store(standing as u8, Relaxed);
    }
}

/// A range that the agent gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attached {
    pub(crate) identity: Identity,
    pub(crate) memory: MemoryId,
    pub(crate) offset: u64,
}

impl Attached {
    /// Whether a range of so many bytes, as this one has, would share memory with it.
    pub(crate) fn overlaps(&self, memory: MemoryId, offset: u64, bytes: usize) -> bool {
        self.memory == memory && self.offset.abs_diff(offset) < bytes as u64
    }
}

/// What changes, under the region's lock.
pub(crate) struct Live {
    /// Second view of what backs the place; `None` where it cannot be exchanged.
    pub(crate) second: Option<Mapping>,
    /// In the blocks now.
    pub(crate) identity: Identity,
    /// `None`: private memory.
    pub(crate) attached: Option<Attached>,
    pub(crate) tables: Vec<Table<Window>>,
}

/// A region as the SDK's thread knows it.
pub(crate) struct Inner {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) schema: Schema,
    pub(crate) place: Arc<Place>,
    pub(crate) live: Turn<Live>,
    pub(crate) standing: StandingCell,
    plan: Plan,
    tables: Vec<TableSpec>,
}

impl AsRef<Turn<Live>> for Inner {
    fn as_ref(&self) -> &Turn<Live> {
        &self.live
    }
}

/// Identity in private memory, where nobody looks.
pub(crate) fn private_identity() -> Identity {
    Identity::first(0, 1)
}

/// CLOCK_BOOTTIME, ns.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// What describes a region, from the builder or from globals.
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) instance: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) schema: Schema,
    pub(crate) plan: Plan,
    pub(crate) tables: Vec<TableSpec>,
}

impl Inner {
    pub(crate) fn new(description: Description, place: Place, second: Option<Mapping>) -> Self {
        let Description { name, instance, labels, schema, plan, tables } = description;
        let place = Arc::new(place);
        let standing = if second.is_some() { Standing::Waiting } else { Standing::Private };
        let live =
            Live { second, identity: private_identity(), attached: None, tables: Vec::with_capacity(tables.len()) };
        let standing = StandingCell(AtomicU8::new(standing as u8));
        let inner = Self { name, instance, labels, schema, place, live: Turn::new(live), standing, plan, tables };
        let mut live = inner.live.take();
        live.tables = inner.tables.iter().map(|spec| inner.new_table(spec, private_identity())).collect();
        drop(live);
        inner
    }

    /// Bytes of the region's blocks.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.schema.blocks()) * BLOCK_WORDS as u64 * 8
    }

    /// Block of a guarded group.
    pub(crate) fn guarded_block(&self, number: usize) -> usize {
        self.plan.guarded.start + number
    }

    /// Key of a table.
    pub(crate) fn key_parts(&self, number: usize) -> Vec<KeyPart> {
        let mut tables = self.schema.groups.iter().filter(|group| group.kind == Kind::Table);
        tables.nth(number).map(|group| group.key.clone()).unwrap_or_default()
    }

    fn new_table(&self, spec: &TableSpec, identity: Identity) -> Table<Window> {
        let words = spec.blocks.start * BLOCK_WORDS..spec.blocks.end * BLOCK_WORDS;
        let first = identity_at(identity, spec.blocks.start);
        Table::new(spec.layout, Window { place: self.place.clone(), words }, first, now_ns())
    }

    /// Moves the region onto a range of the agent's slab. Returns how long words were copied but not yet exchanged.
    pub(crate) fn switch(&self, live: &mut Live, fd: &OwnedFd, to: Attached) -> Result<Duration, PlaceError> {
        let (new, _) = Mapping::of_slab(fd, to.offset, self.place.bytes())?;
        let window = self.exchange(live, new, to.identity, |_| self.place.replace(fd, to.offset))?;
        live.attached = Some(to);
        Ok(window)
    }

    /// Moves the region back to memory of its own: the range that it stands in will be given to others.
    pub(crate) fn retreat(&self, live: &mut Live) -> Result<(), PlaceError> {
        let (first, second) = Mapping::private_pair(self.place.bytes())?;
        self.exchange(live, second, private_identity(), |place| place.receive(first))?;
        live.attached = None;
        self.standing.set(Standing::Waiting);
        Ok(())
    }

    fn exchange(
        &self,
        live: &mut Live,
        new: Mapping,
        identity: Identity,
        replace: impl FnOnce(&Place) -> Result<(), PlaceError>,
    ) -> Result<Duration, PlaceError> {
        let Some(old) = live.second.take() else {
            // Standing::Private: the thread does not ask the agent for it.
            return Ok(Duration::ZERO);
        };
        let rows: Vec<_> = self.tables.iter().map(|spec| live_rows(spec, old.words())).collect();
        let began = Instant::now();
        let copied = self.plan.copy(old.words(), new.words(), identity);
        if let Err(error) = replace(&self.place) {
            // The kernel may have taken the old mapping away before it failed (no memory for its records): put it back where it was.
            if self.place.receive(old).is_err() {
                std::process::abort(); // the program's words are gone; its next store would be a SIGSEGV anyway
            }
            self.standing.set(Standing::Private);
            return Err(error);
        }
        self.plan.settle(old.words(), new.words(), &copied);
        let window = began.elapsed();
        live.second = Some(new);
        live.identity = identity;
        live.tables = self.tables.iter().map(|spec| self.new_table(spec, identity)).collect();
        let time_ns = now_ns();
        for (table, rows) in live.tables.iter_mut().zip(rows) {
            for (key, values) in rows {
                // As many rows as fitted before, of the same shape.
                let _fits = table.upsert(&key, time_ns, |row| {
                    values.iter().enumerate().for_each(|(slot, value)| row.set(slot, *value));
                });
            }
        }
        Ok(window)
    }

    /// In the child of a fork: the memory becomes the child's own copy.
    pub(crate) fn become_child(&self, live: &mut Live, copy: Option<(Mapping, Mapping)>, fresh: bool) {
        live.attached = None;
        live.identity = private_identity();
        if live.second.is_some() {
            live.second = copy.and_then(|(first, second)| self.place.receive(first).ok().map(|()| second));
            if live.second.is_none() {
                // No memory for a copy: the child goes on counting in the parent's words, which is wrong by the child's share but safe.
                self.standing.set(Standing::Private);
                return;
            }
            self.standing.set(Standing::Waiting);
        }
        if fresh {
            self.plan.clear_additions(self.place.words());
        }
    }

    /// Likewise in the middle of the forking thread's own commit, which goes on in the child: [`Live`] is in use there.
    pub(crate) fn become_child_within_commit(&self, copy: Option<(Mapping, Mapping)>) {
        if self.standing.get() != Standing::Private
            && let Some((first, _)) = copy
        {
            let _shared_if_not = self.place.receive(first);
        }
        self.standing.set(Standing::Private);
    }

    /// A copy of the memory as it is, in two mappings, for the child of a fork.
    pub(crate) fn snapshot(&self) -> Option<(Mapping, Mapping)> {
        let (first, second) = Mapping::private_pair(self.place.bytes()).ok()?;
        for (to, from) in first.words().iter().zip(self.place.words()) {
            to.store(from.load(Relaxed), Relaxed);
        }
        Some((first, second))
    }
}

/// Keys and values of a table's rows. The caller holds the region's lock, so no commit is under way.
fn live_rows(spec: &TableSpec, words: &[AtomicU64]) -> Vec<(Vec<u64>, Vec<u64>)> {
    let mut out = Vec::new();
    for index in spec.blocks.clone() {
        let payload: Vec<u64> =
            block_words(words, index)[GUARDED_FIRST..BLOCK_WORDS - 1].iter().map(|word| word.load(Relaxed)).collect();
        out.extend(table::rows(spec.layout, &payload).map(|row| (row.key.to_vec(), row.values.to_vec())));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_slab_overlap_unless_one_ends_before_the_other() {
        let slab = (1, 2, 0);
        let at = Attached { identity: private_identity(), memory: slab, offset: 8192 };
        for (offset, overlaps) in
            [(0, false), (4096, true), (8192, true), (12288, true), (16384, false), (u64::MAX, false)]
        {
            assert_eq!(at.overlaps(slab, offset, 8192), overlaps, "{offset}");
        }
        assert!(!at.overlaps((1, 3, 0), 8192, 8192));
    }
}
