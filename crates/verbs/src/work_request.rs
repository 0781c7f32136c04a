// SPDX-License-Identifier: Apache-2.0
//! What is posted to a queue pair.

/// A READ as it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRequest {
    /// Comes back in the completion.
    pub id: u64,
    /// Whether it completes when nothing has failed.
    pub is_signalled: bool,
    /// Address at the other end.
    pub va: u64,
    /// Key there.
    pub rkey: u32,
    /// First block of the pair's memory that the answer goes to.
    pub at: u32,
    /// Length, whole words.
    pub bytes: u32,
}
