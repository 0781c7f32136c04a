// SPDX-License-Identifier: Apache-2.0
//! Which of several equal series is shown.

use onlooker_region::schema::Acquisition;

use crate::series::EntityKey;

/// Which of several series of one name and labels is shown: the least. How values get there counts for the agent's own regions only; all of a program's are
/// alike, whatever its schema says, and give way to the agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The agent's, by how the values get there.
    Agents(u8),
    /// The controller's own.
    Controllers,
    /// A program's: of two the older region stays, so that a newcomer takes over nothing. `since` grows with each region.
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
}
