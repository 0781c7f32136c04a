// SPDX-License-Identifier: Apache-2.0
//! What is read of the watched core: blocks of the groups that have its values.

/// A block that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Index of the group.
    pub(super) group: usize,
    pub(super) block: u32,
    /// The slot of the watched core's run queue, where the block has it.
    pub(super) running: Option<usize>,
}
