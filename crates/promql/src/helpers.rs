// SPDX-License-Identifier: Apache-2.0
//! Threads that help: a query that reads many series shares them among as many as are free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many threads all queries together may have beside those that they are asked on. By default none.
#[derive(Clone, Debug, Default)]
pub struct Helpers {
    free: Arc<AtomicUsize>,
}

impl Helpers {
    /// So many.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { free: Arc::new(threads.into()) }
    }

    /// As many as are free, and at most this many, until what is returned is dropped.
    pub(crate) fn take(&self, most: usize) -> Taken<'_> {
        let left = |free: usize| Some(free.saturating_sub(most));
        let free = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        Taken { helpers: self, count: free.unwrap_or_default().min(most) }
    }
}

/// Helpers that a query has.
pub(crate) struct Taken<'a> {
    helpers: &'a Helpers,
    pub(crate) count: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.helpers.free.fetch_add(self.count, Ordering::Relaxed);
    }
}
