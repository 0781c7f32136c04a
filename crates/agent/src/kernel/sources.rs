// SPDX-License-Identifier: Apache-2.0
//! Sources of the configuration as the responder's and the translator's maps have them.

use onlooker_responder::{Error, Prefix};

pub(super) fn prefixes(allow: &[crate::prefix::Prefix]) -> Result<Vec<Prefix>, Error> {
    allow.iter().map(|prefix| Prefix::new(prefix.address(), prefix.bits())).collect()
}
