// SPDX-License-Identifier: Apache-2.0
//! Copies the words of checked blocks into the columns of rows.

use crate::block::GUARDED_TIME;
use crate::checked::{Checked, has_guard};
use crate::columns::RowRef;
use crate::compiled::Acquired;
use crate::limits::GUARDED_SLOTS;
use crate::table;

impl<'a> Checked<'a, '_> {
    /// Copies a group's values to the front of `row`, its [width](crate::compiled::CompiledGroup::width) long; `text`
    /// gives numbers to the bytes of texts, which may be no UTF-8. `None`, and the row is as it was: a block of the
    /// group was refused, or its twin gives the values, or it is a table.
    ///
    /// # Panics
    /// If the row is shorter than that.
    pub fn copy_group(self, group: usize, row: &mut [u64], text: impl FnMut(&[u8]) -> u64) -> Option<Acquired> {
        let group = self.group(group).filter(|group| group.compiled.layout.is_none() && group.is_whole())?;
        group.compiled.copy(bytemuck::cast_slice(group.blocks()), &mut row[..group.compiled.width()], text);
        if !has_guard(group.compiled.kind) {
            return Some(Acquired::WhenRead);
        }
        let (mut oldest_ns, mut newest_ns) = (u64::MAX, 0);
        for block in group.blocks() {
            let time_ns = block.0[GUARDED_TIME];
            (oldest_ns, newest_ns) = (oldest_ns.min(time_ns), newest_ns.max(time_ns));
        }
        Some(Acquired::At { oldest_ns, newest_ns })
    }

    /// When one of a group's blocks was acquired, CLOCK_BOOTTIME ns. `None`: blocks of its kind have no time, or it was
    /// refused, or the group's twin gives the values.
    ///
    /// # Panics
    /// If the group has no such block.
    #[must_use]
    pub fn time_ns(self, group: usize, block: usize) -> Option<u64> {
        self.group(group)?.accepted(block)?.1
    }

    /// Visits each live row of a table with its columns and its acquisition time, CLOCK_BOOTTIME ns. False: blocks were
    /// refused, or it is no table; other rows than those visited may be live.
    pub fn rows(
        self,
        group: usize,
        mut text: impl FnMut(&[u8]) -> u64,
        mut visit: impl FnMut(RowRef<'a>, &[u64], u64),
    ) -> bool {
        let Some(group) = self.group(group) else { return false };
        let Some(layout) = group.compiled.layout else { return false };
        let is_straight = group.compiled.is_straight();
        let mut columns = [0; GUARDED_SLOTS];
        let columns = &mut columns[..group.compiled.width()];
        for number in 0..group.blocks().len() {
            let Some((block, _)) = group.accepted(number) else { continue };
            for row in table::rows(layout, block.payload()) {
                let row_ref = RowRef::new(group.group, number * layout.rows_per_block(), &row);
                let columns = if is_straight {
                    &row.values[..columns.len()]
                } else {
                    group.compiled.copy(row.values, columns, &mut text);
                    &*columns
                };
                visit(row_ref, columns, block.0[GUARDED_TIME]);
            }
        }
        group.is_whole()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
