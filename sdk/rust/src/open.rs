// SPDX-License-Identifier: Apache-2.0
//! An open region, as the program has it: a metric's [`Token`] from the time of building is turned into its handle.

use crate::owner::Owner;
use crate::region::{Inner, Standing};
use crate::words::sealed::Sealed;
use onlooker_region::histogram::Shape;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that no other builder or group of the process has.
pub(crate) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// A metric of a region that is being built; see [`Region::get`].
#[derive(Debug)]
pub struct Token<M: ?Sized> {
    builder: u64,
    /// First slot of the plain group; number of the guarded group or table.
    pub(crate) at: usize,
    pub(crate) count: usize,
    pub(crate) stride: usize,
    pub(crate) shape: Shape,
    /// Of a group or table: its fields' number, which their slots carry.
    pub(crate) fields: u64,
    metric: PhantomData<fn() -> Box<M>>,
}

impl<M: ?Sized> Clone for Token<M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: ?Sized> Copy for Token<M> {}

impl<M: ?Sized> Token<M> {
    pub(crate) fn new(builder: u64, at: usize, count: usize, stride: usize, shape: Shape) -> Self {
        Self { builder, at, count, stride, shape, fields: 0, metric: PhantomData }
    }
}

/// A region of this program: open as long as this value or any handle from it exists.
#[derive(Clone)]
pub struct Region {
    owner: Arc<Owner>,
    builder: u64,
}

impl Region {
    pub(crate) fn new(inner: Arc<Inner>, builder: u64) -> Self {
        Self { owner: Arc::new(Owner(inner)), builder }
    }

    /// The handle of a metric, group or table. Any number of them may be taken.
    ///
    /// # Panics
    /// If the token came from another region's builder.
    #[must_use]
    pub fn get<M: Published + ?Sized>(&self, token: Token<M>) -> M::Handle {
        assert_eq!(token.builder, self.builder, "onlooker: a token of another region's builder");
        M::handle(&self.owner, token)
    }

    /// Whether readers can see it now.
    #[must_use]
    pub fn is_published(&self) -> bool {
        self.owner.0.standing.get() == Standing::Published
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Region").field("name", &self.owner.0.name).field("instance", &self.owner.0.instance).finish()
    }
}

/// What a region can hold, and what handle it is used by.
pub trait Published: Sealed {
    /// Clone, Send and Sync.
    type Handle;
    /// Makes one.
    #[doc(hidden)]
    #[allow(private_interfaces)]
    fn handle(owner: &Arc<Owner>, token: Token<Self>) -> Self::Handle;
}
