// SPDX-License-Identifier: Apache-2.0
//! Lists of numbers of various lengths, any of which is found by passing over fifteen others at most.
//!
//! ```text
//! of each sixteenth entry where it begins, from the end of these numbers (4 each); entries
//! ```

use crate::column::Input;
use crate::damage::Damage;

const STRIDE: usize = 16;

/// A list that is made.
#[derive(Debug, Default)]
pub(super) struct List {
    starts: Vec<u8>,
    entries: Vec<u8>,
    count: usize,
}

impl List {
    /// Where to append the next entry.
    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        if self.count.is_multiple_of(STRIDE) {
            self.starts.extend(&self.entries.len().to_le_bytes()[..4]);
        }
        self.count += 1;
        &mut self.entries
    }

    /// Its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.starts.append(&mut self.entries);
        self.starts
    }
}

/// What is left of a list of `count` entries from entry `number` on. `skip` passes over one.
pub(super) fn seek<'a>(
    list: &'a [u8],
    count: usize,
    number: usize,
    skip: impl Fn(&mut Input<'a>) -> Result<(), Damage>,
) -> Result<Input<'a>, Damage> {
    let (starts, entries) =
        list.split_at_checked(count.div_ceil(STRIDE) * 4).ok_or(Damage::Wrong("a list's length"))?;
    let start = starts.as_chunks().0.get(number / STRIDE).map(|start| u32::from_le_bytes(*start) as usize);
    let mut input = Input(start.and_then(|start| entries.get(start..)).ok_or(Damage::Wrong("a list's entry"))?);
    (0..number % STRIDE).try_for_each(|_| skip(&mut input))?;
    Ok(input)
}

/// Passes over all entries of a list of `count`, each of which must begin where it is told to. Returns what is behind.
pub(super) fn each<'a>(
    list: &'a [u8],
    count: usize,
    mut take: impl FnMut(usize, &mut Input<'a>) -> Result<(), Damage>,
) -> Result<&'a [u8], Damage> {
    let (starts, entries) =
        list.split_at_checked(count.div_ceil(STRIDE) * 4).ok_or(Damage::Wrong("a list's length"))?;
    let mut input = Input(entries);
    for (at, start) in starts.as_chunks().0.iter().enumerate() {
        if u32::from_le_bytes(*start) as usize != entries.len() - input.0.len() {
            return Err(Damage::Wrong("a list's entry"));
        }
        let numbers = at * STRIDE..count.min((at + 1) * STRIDE);
        numbers.into_iter().try_for_each(|number| take(number, &mut input))?;
    }
    Ok(input.0)
}
