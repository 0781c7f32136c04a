// SPDX-License-Identifier: Apache-2.0
//! What a flow, and so its queue pair, is made for.

/// What a flow may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// READs outstanding, a power of two. More than 16 gained nothing on soft-RoCE.
    pub depth: u32,
    /// Longest READ.
    pub max_read_blocks: u32,
}

impl Default for Settings {
    /// 16 READs of 4 KiB.
    fn default() -> Self {
        Self { depth: 16, max_read_blocks: 4 }
    }
}
