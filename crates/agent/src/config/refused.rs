// SPDX-License-Identifier: Apache-2.0
//! What a section's check says.

/// A key, its value and what to set instead.
pub(super) type Refused = (&'static str, String, &'static str);
