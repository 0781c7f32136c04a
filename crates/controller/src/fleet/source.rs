// SPDX-License-Identifier: Apache-2.0
//! Whose regions share a row.

use onlooker_region::Identity;
use onlooker_series::rank::Rank;
use onlooker_series::series::EntityKey;

/// Whose regions share a row: 0 the agent's, else one region.
pub(super) type Source = u64;

/// Source of the agent's regions.
const AGENT: Source = Rank::AGENT;

/// In whose row a fixed entity is, whose region has these labels.
pub(super) fn source(key: EntityKey, labels: &[(String, String)]) -> Source {
    let is_agents = !key.is_own() && Identity::from_word(key.region).is_some_and(Identity::is_agents);
    if is_agents && labels.is_empty() { AGENT } else { key.region }
}
