// SPDX-License-Identifier: Apache-2.0
//! Verdicts on a region's copied blocks: each block is checked once, and only checked blocks are decoded.
//!
//! [`Verdicts::take`] checks the blocks that a READ has brought. What must hold depends on the kind of their group. The
//! reader keeps the verdicts beside the blocks. [`Verdicts::on`] joins the two to a [`Checked`]. [`crate::columns`] and
//! [`crate::compiled`] decode nothing else: they have no checks of their own.
//!
//! A computed group may have a published twin (docs/format/schema.md). Then one whole group of the two is enough:
//! refused blocks of the computed one are not missed, and only one of the two gives values.
//!
//! Cost: about 60 ns for a block with a guard, one comparison for a plain one. While all blocks are accepted nothing is
//! allocated.

use crate::block::{Block, GUARDED_TIME, Identity, check_plain};
use crate::columns::Plan;
use crate::compiled::CompiledGroup;
use crate::guard::{self, Reject};
use crate::schema::{Group, Kind};
use std::ops::Range;

/// A block that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number in the region.
    pub block: usize,
    /// Why.
    pub reject: Reject,
}

/// Fewer blocks than the schema needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {got} blocks where the schema describes {needed}")]
pub struct ShortFrame {
    /// Blocks of the schema.
    pub needed: usize,
    /// Blocks given.
    pub got: usize,
}

/// What was found of a region's blocks. Whoever has read the blocks holds them, and tells [`Verdicts::take`] of each
/// block that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Refused blocks whose values are missed, in order.
    refused: Vec<Refused>,
    /// Refused blocks of computed groups that have a twin, in order.
    stood_in: Vec<Refused>,
}

impl Verdicts {
    /// Of a region whose blocks have all been read. Surplus blocks are ignored.
    ///
    /// # Errors
    /// [`ShortFrame`].
    pub fn of(plan: &Plan, first: Identity, blocks: &[Block]) -> Result<Self, ShortFrame> {
        let (mut verdicts, needed) = (Self::default(), plan.compiled().blocks());
        if blocks.len() < needed {
            return Err(ShortFrame { needed, got: blocks.len() });
        }
        verdicts.take(plan, first, blocks, |_| true);
        Ok(verdicts)
    }

    /// Checks the blocks that have just been read (`is_read`, by number). The verdicts on all others stand. `first` is
    /// the identity of block 0.
    ///
    /// # Panics
    /// If there are fewer blocks than the schema needs.
    pub fn take(&mut self, plan: &Plan, first: Identity, blocks: &[Block], is_read: impl Fn(usize) -> bool) {
        self.refused.retain(|refused| !is_read(refused.block));
        self.stood_in.retain(|refused| !is_read(refused.block));
        for group in plan.compiled().groups() {
            let refused = if group.has_twin { &mut self.stood_in } else { &mut self.refused };
            refused.extend(group.blocks().filter(|block| is_read(*block)).filter_map(|block| {
                let expected = first.at(u16::try_from(block).unwrap_or(u16::MAX));
                let reject = check(group.kind(), &blocks[block], expected).err()?;
                Some(Refused { block, reject })
            }));
        }
        self.refused.sort_unstable_by_key(|refused| refused.block);
        self.stood_in.sort_unstable_by_key(|refused| refused.block);
    }

    /// Blocks that were not accepted and are missed, in order. Those of a computed group with a twin are not listed.
    #[must_use]
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Joins the verdicts to the blocks that they were found of.
    #[must_use]
    pub fn on<'a>(&self, plan: &'a Plan, blocks: &'a [Block]) -> Checked<'a, '_> {
        Checked { plan, blocks, verdicts: self }
    }

    fn is_accepted(&self, block: usize) -> bool {
        let is_in = |refused: &[Refused]| refused.binary_search_by_key(&block, |refused| refused.block).is_ok();
        !is_in(&self.refused) && !is_in(&self.stood_in)
    }

    /// Whether none of these was refused.
    fn are_accepted(&self, blocks: &Range<usize>) -> bool {
        let is_free = |refused: &[Refused]| {
            let at = refused.partition_point(|refused| refused.block < blocks.start);
            refused.get(at).is_none_or(|refused| refused.block >= blocks.end)
        };
        is_free(&self.refused) && is_free(&self.stood_in)
    }
}

/// Copied blocks of one region (`'a`), checked (`'v`).
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a, 'v> {
    plan: &'a Plan,
    blocks: &'a [Block],
    verdicts: &'v Verdicts,
}

impl<'a, 'v> Checked<'a, 'v> {
    /// The groups that give values.
    pub(crate) fn groups(self) -> impl Iterator<Item = CheckedGroup<'a, 'v>> {
        (0..self.plan.compiled().groups().len()).filter_map(move |number| self.group(number))
    }

    /// A group by its number; `None`: there is none, or its twin gives the values.
    pub(crate) fn group(self, number: usize) -> Option<CheckedGroup<'a, 'v>> {
        let compiled = self.plan.compiled().groups().get(number)?;
        let (group, blocks) = (&self.plan.schema().groups[number], &self.blocks[compiled.blocks()]);
        self.gives(compiled).then_some(CheckedGroup { group, compiled, blocks, verdicts: self.verdicts })
    }

    /// Of a computed group and its twin one gives values: the twin, if any of the computed one was refused.
    fn gives(self, group: &CompiledGroup) -> bool {
        let are_accepted = |group: &CompiledGroup| self.verdicts.are_accepted(&group.blocks());
        match group.twin_of {
            Some(computed) => !are_accepted(&self.plan.compiled().groups()[computed]),
            None => !group.has_twin || are_accepted(group),
        }
    }
}

/// Blocks of one group, checked.
#[derive(Clone, Copy)]
pub(crate) struct CheckedGroup<'a, 'v> {
    pub(crate) group: &'a Group,
    pub(crate) compiled: &'a CompiledGroup,
    blocks: &'a [Block],
    verdicts: &'v Verdicts,
}

impl<'a> CheckedGroup<'a, '_> {
    /// All blocks, accepted or not.
    pub(crate) fn blocks(&self) -> &'a [Block] {
        self.blocks
    }

    /// Whether all were accepted.
    pub(crate) fn is_whole(&self) -> bool {
        self.verdicts.are_accepted(&self.compiled.blocks())
    }

    /// One of its blocks, with its acquisition time (CLOCK_BOOTTIME, ns) if blocks of this kind have one. `None`: it
    /// was refused.
    pub(crate) fn accepted(&self, number: usize) -> Option<(&'a Block, Option<u64>)> {
        let block = &self.blocks[number];
        let time_ns = || has_guard(self.group.kind).then(|| block.0[GUARDED_TIME]);
        self.verdicts.is_accepted(self.compiled.blocks().start + number).then(|| (block, time_ns()))
    }
}

pub(crate) fn has_guard(kind: Kind) -> bool {
    matches!(kind, Kind::Guarded | Kind::Computed | Kind::Table)
}

fn check(kind: Kind, block: &Block, expected: Identity) -> Result<(), Reject> {
    match kind {
        Kind::Foreign => Ok(()),
        Kind::Plain => check_plain(block, expected),
        Kind::Guarded | Kind::Computed | Kind::Table => guard::check(block, expected).map(|_| ()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limits::BLOCK_WORDS;
    use crate::schema::Schema;
    use crate::sync::{AtomicU64, Ordering};

    const ME: Identity = Identity { region: 4, generation: 9, index: 0 };
    const TWINS: &str = r#"{"name":"t","groups":[
        {"kind":"plain","blocks":1,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]},
        {"kind":"guarded","blocks":2,"acquisition":"published","twin_of":2,
         "fields":[{"name":"b","metric":"gauge","type":"u64"}]},
        {"kind":"computed","blocks":2,"acquisition":"computed",
         "fields":[{"name":"b","metric":"gauge","type":"u64"}]}]}"#;

    /// The blocks of [`TWINS`], good ones.
    fn good() -> Vec<Block> {
        let block = |index: u16| {
            let words: [AtomicU64; BLOCK_WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
            match index {
                0 => words[0].store(ME.word(), Ordering::Relaxed),
                _ => guard::commit(&words, ME.at(index), 77 + u64::from(index), |_| ()),
            }
            let mut block = Block::default();
            block.copy_from(&words);
            block
        };
        (0..5).map(block).collect()
    }

    fn plan() -> Plan {
        Plan::new(Schema::parse(TWINS).unwrap())
    }

    fn kinds(plan: &Plan, verdicts: &Verdicts, blocks: &[Block]) -> Vec<Kind> {
        verdicts.on(plan, blocks).groups().map(|group| group.group.kind).collect()
    }

    #[test]
    fn a_computed_group_gives_way_to_its_twin_and_is_not_missed() {
        let (plan, mut blocks) = (plan(), good());
        let verdicts = Verdicts::of(&plan, ME, &blocks).unwrap();
        assert_eq!(kinds(&plan, &verdicts, &blocks), [Kind::Plain, Kind::Computed]);
        blocks[4].0[60] ^= 1;
        let verdicts = Verdicts::of(&plan, ME, &blocks).unwrap();
        assert_eq!(kinds(&plan, &verdicts, &blocks), [Kind::Plain, Kind::Guarded]);
        assert_eq!(verdicts.refused(), []);
        blocks[1].0[60] ^= 1;
        let verdicts = Verdicts::of(&plan, ME, &blocks).unwrap();
        assert_eq!(verdicts.refused(), [Refused { block: 1, reject: Reject::Crc }]);
        let guarded = verdicts.on(&plan, &blocks).groups().nth(1).unwrap();
        assert!(guarded.accepted(0).is_none());
        assert_eq!(guarded.accepted(1).unwrap().1, Some(79));
        assert_eq!(Verdicts::of(&plan, ME, &blocks[..4]), Err(ShortFrame { needed: 5, got: 4 }));
    }

    #[test]
    fn only_what_was_read_again_is_checked_again() {
        let (plan, mut blocks) = (plan(), good());
        (blocks[0].0[0], blocks[1].0[60]) = (1, 1);
        let mut verdicts = Verdicts::of(&plan, ME, &blocks).unwrap();
        let at = |block, reject| Refused { block, reject };
        assert_eq!(verdicts.refused(), [at(0, Reject::Identity), at(1, Reject::Crc)]);
        // Block 2 is damaged, too, and nobody has read it since: its verdict stands.
        (blocks[0], blocks[2].0[60]) = (good()[0], 1);
        verdicts.take(&plan, ME, &blocks, |block| block < 2);
        assert_eq!(verdicts.refused(), [at(1, Reject::Crc)]);
        blocks[1] = good()[1];
        verdicts.take(&plan, ME, &blocks, |block| block == 1 || block == 2);
        assert_eq!(verdicts.refused(), [at(2, Reject::Crc)]);
        verdicts.take(&plan, ME, &good(), |block| block == 2);
        assert_eq!(verdicts, Verdicts::default());
    }

    #[test]
    fn verdicts_are_the_same_in_whatever_parts_blocks_come() {
        bolero::check!().with_type::<(u8, [u8; 5])>().for_each(|(damaged, order)| {
            let (plan, mut blocks, mut parts) = (plan(), good(), Verdicts::default());
            for (index, block) in blocks.iter_mut().enumerate().filter(|(index, _)| damaged >> index & 1 == 1) {
                block.0[if index == 0 { 0 } else { 60 }] ^= 1;
            }
            let mut turns: Vec<usize> = (0..5).collect();
            turns.sort_by_key(|index| order[*index]);
            turns.into_iter().for_each(|turn| parts.take(&plan, ME, &blocks, |block| block == turn));
            assert_eq!(parts, Verdicts::of(&plan, ME, &blocks).unwrap());
        });
    }
}
