// SPDX-License-Identifier: Apache-2.0
//! The handle of one word of a region.

use crate::owner::Owner;
use crate::words::Word;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// One word of a region: dereferences to a [`crate::Counter`], [`crate::UpDown`] or [`crate::Gauge`]. Its address never changes. The region lives at
/// least as long as its handles.
pub struct Handle<W> {
    at: NonNull<W>,
    owner: Arc<Owner>,
}

// SAFETY: a shared reference to an atomic word, kept valid by `owner`.
unsafe impl<W: Sync> Send for Handle<W> {}
// SAFETY: as above.
unsafe impl<W: Sync> Sync for Handle<W> {}

impl<W: Word> Handle<W> {
    /// For word `word` of the region's memory.
    pub(crate) fn new(owner: Arc<Owner>, word: usize) -> Self {
        let at = NonNull::from(W::wrap_ref(&owner.words()[word]));
        Self { at, owner }
    }
}

impl<W> Deref for Handle<W> {
    type Target = W;

    #[inline]
    fn deref(&self) -> &W {
        // SAFETY: a word of the owner's place, which is mapped as long as `owner` lives and always holds a valid word.
        unsafe { self.at.as_ref() }
    }
}

impl<W> Clone for Handle<W> {
    fn clone(&self) -> Self {
        Self { at: self.at, owner: self.owner.clone() }
    }
}
