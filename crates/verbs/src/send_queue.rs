// SPDX-License-Identifier: Apache-2.0
//! Which work requests of a queue pair are outstanding, which of them is to be signalled, and what a completion says of the others.
//!
//! A reliable connection executes its work requests in order (IBA 9.5), so a completion stands for every unsignalled request before it. A place in the send queue is free
//! again only when a completion at or behind it was polled, whatever the device has done by then: unsignalled requests alone would fill the queue for ever. Soft-RoCE does
//! not show that; this counts as a card does.

use std::collections::VecDeque;

use crate::completion::Status;

/// Requests between two that are signalled, in parts of the queue.
const SIGNALS_A_QUEUE: u32 = 4;

/// The outstanding requests of one queue pair; `T` is what the caller knows of one.
#[derive(Debug)]
pub struct SendQueue<T> {
    outstanding: VecDeque<T>,
    /// Number of the first of them; numbers wrap.
    first: u32,
    depth: usize,
    signal_every: u32,
    unsignalled: u32,
}

impl<T> SendQueue<T> {
    /// For a queue of `depth` requests, at least one.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        let depth = depth.max(1);
        Self {
            outstanding: VecDeque::with_capacity(depth as usize),
            first: 0,
            depth: depth as usize,
            signal_every: (depth / SIGNALS_A_QUEUE).max(1),
            unsignalled: 0,
        }
    }

    /// Requests that may be posted now.
    #[must_use]
    pub fn room(&self) -> usize {
        self.depth - self.outstanding.len()
    }

    /// Requests that have not completed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether none is outstanding.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Those that have not completed, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.outstanding.iter_mut()
    }

    /// The next request: its number, and whether it is to be signalled. The last of a batch always is.
    ///
    /// # Panics
    /// If there is no [`SendQueue::room`].
    pub fn push(&mut self, request: T, is_last: bool) -> (u32, bool) {
        assert!(self.room() > 0, "the send queue is full");
        let number = self.first.wrapping_add(u32::try_from(self.outstanding.len()).unwrap_or(u32::MAX));
        self.outstanding.push_back(request);
        self.unsignalled += 1;
        let is_signalled = is_last || self.unsignalled >= self.signal_every;
        if is_signalled {
            self.unsignalled = 0;
        }
        (number, is_signalled)
    }

    /// The device has refused the last `count` requests, of one batch: they were never posted.
    pub fn refused(&mut self, count: usize) {
        self.outstanding.truncate(self.outstanding.len().saturating_sub(count));
    }

    /// Takes a completion: `ended` gets each request that it stands for. False: of none that is outstanding.
    pub fn complete(&mut self, number: u32, status: Status, mut ended: impl FnMut(u32, T, Status)) -> bool {
        let before = number.wrapping_sub(self.first);
        if before as usize >= self.outstanding.len() {
            return false;
        }
        for _ in 0..=before {
            let Some(request) = self.outstanding.pop_front() else { break };
            let status = if self.first == number { status } else { Status::Done };
            ended(self.first, request, status);
            self.first = self.first.wrapping_add(1);
        }
        true
    }

    /// Ends all, whose completions will never be seen.
    pub fn abandon(&mut self, mut ended: impl FnMut(T)) {
        self.first = self.first.wrapping_add(u32::try_from(self.outstanding.len()).unwrap_or(u32::MAX));
        self.outstanding.drain(..).for_each(&mut ended);
        self.unsignalled = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(queue: &mut SendQueue<char>, number: u32, status: Status) -> Vec<(char, Status)> {
        let mut all = Vec::new();
        assert!(queue.complete(number, status, |_, request, status| all.push((request, status))));
        all
    }

    #[test]
    fn a_completion_stands_for_those_before_it() {
        let mut queue = SendQueue::new(16);
        queue.first = u32::MAX - 1;
        let posted: Vec<_> = "abcde".chars().map(|c| queue.push(c, c == 'e')).collect();
        assert_eq!(posted, [(u32::MAX - 1, false), (u32::MAX, false), (0, false), (1, true), (2, true)]);
        let done = |c| (c, Status::Done);
        assert_eq!(ended(&mut queue, 1, Status::Done), [done('a'), done('b'), done('c'), done('d')]);
        assert_eq!((queue.len(), queue.room()), (1, 15));
        assert!(!queue.complete(1, Status::Done, |_, _, _| unreachable!()), "told twice");
        assert!(!queue.complete(3, Status::Done, |_, _, _| unreachable!()), "never posted");
    }

    #[test]
    fn a_failure_is_its_requests_own() {
        let mut queue = SendQueue::new(16);
        for c in "abc".chars() {
            queue.push(c, false);
        }
        assert_eq!(ended(&mut queue, 1, Status::Access), [('a', Status::Done), ('b', Status::Access)]);
        assert_eq!(ended(&mut queue, 2, Status::Flushed), [('c', Status::Flushed)]);
    }

    #[test]
    fn a_full_queue_always_has_a_signal_outstanding() {
        for depth in 1..40 {
            let mut queue = SendQueue::new(depth);
            let mut signals = 0;
            while queue.room() > 0 {
                signals += u32::from(queue.push('x', false).1);
            }
            assert!(signals >= 1, "{depth}");
        }
    }

    #[test]
    fn what_was_refused_was_not_posted() {
        let mut queue = SendQueue::new(4);
        queue.push('a', true);
        queue.push('b', false);
        queue.push('c', true);
        queue.refused(2);
        assert_eq!((queue.len(), queue.push('d', true)), (1, (1, true)));
    }
}
