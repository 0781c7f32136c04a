// SPDX-License-Identifier: Apache-2.0
//! Tables of what goes by a name.

/// Something with its name.
pub(super) type Named<T> = (&'static str, T);

/// What a table has under a name.
pub(super) fn named<T: Copy>(table: &[Named<T>], name: &str) -> Option<T> {
    table.iter().find(|(own, _)| *own == name).map(|(_, what)| *what)
}
