// SPDX-License-Identifier: Apache-2.0
//! The plain group of an open region: where its words stand, and what they are used by, one by one or as an array.

use crate::open::{Published, Token};
use crate::owner::Owner;
use crate::placement::handle::Handle;
use crate::words::Word;
use crate::words::sealed::Sealed;
use onlooker_region::limits::BLOCK_WORDS;
use std::sync::Arc;

/// Word of the region's memory at which slot `slot` of its plain group (which comes first) stands.
pub(crate) fn plain_word(slot: usize) -> usize {
    let (block, word) = onlooker_region::block::plain_place(slot);
    block * BLOCK_WORDS + word
}

impl<W: Word> Published for W {
    type Handle = Handle<W>;
    #[allow(private_interfaces)]
    fn handle(owner: &Arc<Owner>, token: Token<Self>) -> Handle<W> {
        Handle::new(owner.clone(), plain_word(token.at))
    }
}

/// An array of words in a region, told apart by one label.
pub struct Array<W> {
    owner: Arc<Owner>,
    token: Token<[W]>,
}

impl<W: Word> Array<W> {
    /// Element `index`; `None` beyond the end.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&W> {
        (index < self.token.count)
            .then(|| W::wrap_ref(&self.owner.words()[plain_word(self.token.at + index * self.token.stride)]))
    }

    /// A handle of its own for element `index`, for the thread that uses it.
    #[must_use]
    pub fn handle(&self, index: usize) -> Option<Handle<W>> {
        (index < self.token.count)
            .then(|| Handle::new(self.owner.clone(), plain_word(self.token.at + index * self.token.stride)))
    }

    /// Number of elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // never empty
    pub fn len(&self) -> usize {
        self.token.count
    }
}

impl<W> Clone for Array<W> {
    fn clone(&self) -> Self {
        Self { owner: self.owner.clone(), token: self.token }
    }
}

impl<W: Word> Sealed for [W] {}
impl<W: Word> Published for [W] {
    type Handle = Array<W>;
    #[allow(private_interfaces)]
    fn handle(owner: &Arc<Owner>, token: Token<Self>) -> Array<W> {
        Array { owner: owner.clone(), token }
    }
}
