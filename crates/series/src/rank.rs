// SPDX-License-Identifier: Apache-2.0
//! Which of several equal series is shown: of those that are there now ([`Rivals`]), and of their rows over a time
//! ([`Precedence`]).
//!
//! Series are equal when name and labels are: the same metric computed and sampled, or a program that says what the
//! agent says. Both answers follow the same [`Rank`], so that a chart's past and present show the same series.

use std::cmp::Reverse;

use onlooker_region::Identity;
use onlooker_region::schema::Acquisition;

use crate::series::EntityKey;

/// Which of several series of one name and labels is shown: the least. How values get there counts for the agent's own
/// regions only; all of a program's are alike, whatever its schema says, and give way to the agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The agent's, by how the values get there.
    Agents(u8),
    /// The controller's own.
    Controllers,
    /// A program's: of two the older region stays, so that a newcomer takes over nothing. `since` grows with each
    /// region.
    Programs {
        /// Of the region.
        since: u64,
    },
}

impl Rank {
    /// Of a series of this entity. `since` orders regions by their age.
    #[must_use]
    pub fn of(key: &EntityKey, acquisition: Acquisition, since: u64) -> Self {
        match acquisition {
            _ if key.is_own() => Self::Controllers,
            _ if !key.is_vouched_for() => Self::Programs { since },
            Acquisition::Computed => Self::Agents(0),
            Acquisition::Published => Self::Agents(1),
            Acquisition::Direct => Self::Agents(2),
            Acquisition::Sampled => Self::Agents(3),
        }
    }
}

/// The series of one name and labels that are there now, the shown one first. `P` says where each is.
#[derive(Clone, Debug)]
pub struct Rivals<P>(Vec<(Rank, Reverse<u64>, P)>);

impl Rank {
    /// Source of the agent's regions that share a row of the store; other regions' is their identity word, or
    /// [`EntityKey::OWN_REGION`].
    pub const AGENT: u64 = 0;

    /// As [`Rank::of`], of what the store has from this source.
    #[must_use]
    pub fn of_source(source: u64, acquisition: Acquisition, since: u64) -> Self {
        let region = if source == Self::AGENT { Identity::first(1, 1).word() } else { source };
        Self::of(&EntityKey { region, group: 0, row: None }, acquisition, since)
    }
}

impl<P> Default for Rivals<P> {
    fn default() -> Self {
        // Most series have no rival.
        Self(Vec::with_capacity(1))
    }
}

impl<P: Ord> Rivals<P> {
    /// A series has come. `entered` grows with each that does: of two of one rank the newer is shown, since a row that
    /// was made anew follows itself.
    pub fn enter(&mut self, rank: Rank, entered: u64, place: P) {
        self.0.push((rank, Reverse(entered), place));
        self.0.sort_unstable();
    }

    /// Keeps those of which `is_left` is true; false where none is.
    pub fn keep(&mut self, is_left: impl Fn(&P) -> bool) -> bool {
        self.0.retain(|(_, _, place)| is_left(place));
        !self.0.is_empty()
    }

    /// All of them, the shown one first.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.0.iter().map(|(_, _, place)| place)
    }
}

/// Which rows of several series of one name and labels are shown, over a time: none of a worse rank between the first
/// and the last row of a better one.
#[derive(Debug, Default)]
pub struct Precedence {
    /// Of each better rank the time of its first row and of its last.
    better_ns: Vec<(u64, u64)>,
    /// The rank whose rows come now, and the same of it.
    current: Option<(Rank, u64, u64)>,
}

impl Precedence {
    /// Whether a row is shown. Rows come rank by rank, the best first.
    pub fn shows(&mut self, rank: Rank, time_ns: u64) -> bool {
        match &mut self.current {
            Some((of, first, last)) if *of == rank => (*first, *last) = ((*first).min(time_ns), (*last).max(time_ns)),
            current => {
                let before = current.replace((rank, time_ns, time_ns));
                self.better_ns.extend(before.map(|(_, first, last)| (first, last)));
            }
        }
        !self.better_ns.iter().any(|(first, last)| (*first..=*last).contains(&time_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_the_agents_word() {
        let key =
            |region: u32| EntityKey { region: onlooker_region::Identity::first(region, 5).word(), group: 0, row: None };
        let own = EntityKey { region: EntityKey::OWN_REGION, group: 0, row: None };
        let agents = |acquisition| Rank::of(&key(255), acquisition, 9);
        let program = |acquisition, since| Rank::of(&key(256), acquisition, since);
        use Acquisition::{Computed, Direct, Published, Sampled};
        let order = [
            agents(Computed),
            agents(Published),
            agents(Direct),
            agents(Sampled),
            Rank::of(&own, Computed, 0),
            program(Direct, 0),
            program(Computed, 1),
        ];
        assert!(order.is_sorted() && order.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(program(Computed, 3), program(Sampled, 3));
    }
    #[test]
    fn the_best_that_is_there_is_shown_and_of_two_alike_the_newer() {
        let mut rivals = Rivals::default();
        let program = Rank::Programs { since: 1 };
        let shown = |rivals: &Rivals<char>| rivals.iter().copied().collect::<String>();
        for (entered, (rank, place)) in
            (0..).zip([(program, 'p'), (Rank::Agents(3), 's'), (Rank::Agents(0), 'c'), (Rank::Agents(0), 'd')])
        {
            rivals.enter(rank, entered, place);
        }
        assert_eq!(shown(&rivals), "dcsp");
        assert!(rivals.keep(|place| !"dc".contains(*place)));
        assert_eq!(shown(&rivals), "sp");
        rivals.enter(Rank::Programs { since: 2 }, 9, 'q');
        assert_eq!(shown(&rivals), "spq", "a newer region takes over nothing");
        assert!(!rivals.keep(|_| false));
    }

    #[test]
    fn rows_of_a_worse_rank_fill_what_a_better_one_leaves() {
        let mut precedence = Precedence::default();
        let mut shown = |rank, times: &[u64]| -> Vec<u64> {
            times.iter().copied().filter(|time_ns| precedence.shows(rank, *time_ns)).collect()
        };
        assert_eq!(shown(Rank::Agents(0), &[20, 30, 25]), [20, 30, 25]);
        assert_eq!(shown(Rank::Agents(3), &[10, 20, 27, 31, 60]), [10, 31, 60]);
        assert_eq!(shown(Rank::Programs { since: 0 }, &[5, 10, 40, 61]), [5, 61]);
        assert_eq!(shown(Rank::Programs { since: 1 }, &[4, 5, 62]), [4, 62]);
    }
}
