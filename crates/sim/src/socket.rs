// SPDX-License-Identifier: Apache-2.0
//! A thread that reads answers from TCP sockets, one whole answer after the other.
//!
//! Connections are warm: windows take a whole answer, and the network drops nothing (PFC), which is more than TCP mostly
//! has. What bounds it is the thread, which copies each byte.

use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct Thread {
    /// Whose answers have begun to come and are not read, in order.
    line: VecDeque<usize>,
    /// Fragments that have come and are not read.
    came: Vec<u64>,
    has_begun: Vec<bool>,
    pub(crate) is_busy: bool,
}

impl Thread {
    pub(crate) fn new(hosts: usize) -> Self {
        Self { came: vec![0; hosts], has_begun: vec![false; hosts], ..Self::default() }
    }

    /// A fragment has come.
    pub(crate) fn came(&mut self, host: usize) {
        self.came[host] += 1;
        if !std::mem::replace(&mut self.has_begun[host], true) {
            self.line.push_back(host);
        }
    }

    /// What it reads next, if something of whose turn it is has come: the host and how many fragments.
    pub(crate) fn next(&mut self) -> Option<(usize, u64)> {
        let host = *self.line.front().filter(|_| !self.is_busy)?;
        let count = std::mem::take(&mut self.came[host]);
        self.is_busy = count > 0;
        self.is_busy.then_some((host, count))
    }

    /// The first one's answer is whole.
    pub(crate) fn is_whole(&mut self) {
        self.line.pop_front();
    }
}
