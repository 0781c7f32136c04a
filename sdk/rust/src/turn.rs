// SPDX-License-Identifier: Apache-2.0
//! The lock of a region: whoever writes guarded blocks, exchanges memory or forks has it. It knows its owner, so that a commit inside of a commit is
//! an error at once and not a thread that hangs.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The lock.
#[derive(Debug)]
pub(crate) struct Turn<T> {
    inner: Mutex<T>,
    /// Thread that has it, 0: nobody. Only a thread's own number means anything to it, so relaxed is enough.
    owner: AtomicUsize,
}

/// Having the lock.
pub(crate) struct Guard<'a, T> {
    inner: MutexGuard<'a, T>,
    owner: &'a AtomicUsize,
}

/// A number for this thread; the same in the child of a fork.
fn me() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place) as usize)
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { inner: Mutex::new(value), owner: AtomicUsize::new(0) }
    }

    /// Whether this thread has it.
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == me()
    }

    /// Waits for it.
    ///
    /// # Panics
    /// If this thread has it already.
    pub(crate) fn take(&self) -> Guard<'_, T> {
        assert!(
            !self.is_mine(),
            "onlooker: a commit within a commit of the same region would wait for itself for ever; end the outer one first"
        );
        // A panic in a program's closure leaves the data whole (see `guarded`, `table`): poison means nothing here.
        self.guard(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes it if it is free.
    pub(crate) fn try_take(&self) -> Option<Guard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(self.guard(inner)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.guard(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn guard<'a>(&'a self, inner: MutexGuard<'a, T>) -> Guard<'a, T> {
        self.owner.store(me(), Relaxed);
        Guard { inner, owner: &self.owner }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Relaxed);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_within_a_commit_is_an_error_and_not_a_deadlock() {
        let turn = Turn::new(1);
        let held = turn.take();
        assert!(turn.is_mine() && turn.try_take().is_none());
        let inner = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| *turn.take()));
        assert!(inner.is_err());
        std::thread::scope(|scope| {
            assert!(!scope.spawn(|| turn.is_mine()).join().unwrap());
        });
        drop(held);
        assert_eq!(*turn.take(), 1);
    }
}
