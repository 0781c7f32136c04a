// SPDX-License-Identifier: Apache-2.0
//! The chosen row of a list that changes under it, and the part of the list that the screen shows.

use ratatui::crossterm::event::KeyCode;

/// See the module. Rows are known by keys of type `K`.
#[derive(Clone, Debug)]
pub(super) struct Chosen<K> {
    /// `None`: whichever is first.
    key: Option<K>,
    /// First row on the screen.
    pub(super) top: usize,
    /// Rows that the screen has room for, as last drawn.
    height: usize,
}

impl<K> Default for Chosen<K> {
    fn default() -> Self {
        Self { key: None, top: 0, height: 10 }
    }
}

impl<K: PartialEq + Copy> Chosen<K> {
    pub(super) fn forget(&mut self) {
        (self.key, self.top) = (None, 0);
    }

    /// Place of the chosen row among `rows`; the first one where it is gone.
    pub(super) fn position<'a>(&self, mut rows: impl Iterator<Item = &'a K>) -> usize
    where
        K: 'a,
    {
        self.key.and_then(|key| rows.position(|row| *row == key)).unwrap_or(0)
    }

    /// Moves the window so that the chosen row is in it.
    pub(super) fn scroll(&mut self, position: usize, rows: usize, height: usize) {
        self.height = height;
        let height = height.max(1);
        if position < self.top {
            self.top = position;
        } else if position >= self.top + height {
            self.top = position + 1 - height;
        }
        self.top = self.top.min(rows.saturating_sub(height));
    }

    /// Whether a key moves the choice.
    pub(super) fn is_move(key: KeyCode) -> bool {
        use KeyCode::{Char, Down, End, Home, PageDown, PageUp, Up};
        matches!(key, Up | Down | PageUp | PageDown | Home | End | Char('k' | 'j' | 'g' | 'G'))
    }

    /// Moves it.
    pub(super) fn go(&mut self, key: KeyCode, rows: &[K]) {
        let Some(last) = rows.len().checked_sub(1) else { return };
        let at = self.position(rows.iter());
        let page = self.height.saturating_sub(1).max(1);
        let position = match key {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::PageUp => at.saturating_sub(page),
            KeyCode::PageDown => at + page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => at + 1,
        };
        let position = position.min(last);
        // At the top stays at the top, whatever comes there.
        self.key = (position > 0).then(|| rows[position]);
        if position == 0 {
            self.top = 0;
        }
    }
}
