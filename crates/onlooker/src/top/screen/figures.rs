// SPDX-License-Identifier: Apache-2.0
//! A table of figures whose columns come and go with the room that there is: the first column has what the others
//! leave.

use super::super::theme::Theme;
use super::Pen;
use super::table::cut;
use ratatui::style::Style;

/// A column of texts.
pub(super) struct Column {
    pub(super) title: String,
    /// Of the first column what it has at least before others are shown that are not always.
    pub(super) width: u16,
    /// 0: always shown; of the others the lower ones first, while there is room.
    pub(super) rank: u16,
    /// Texts begin at the left edge, numbers end at the right one.
    pub(super) is_text: bool,
}

/// A cell's text and how it looks.
pub(super) type Cell = (String, Style);

/// Numbers of the columns that have room, and the width of the first.
pub(super) fn fitting(columns: &[Column], width: u16) -> (Vec<usize>, u16) {
    let mut ranks: Vec<usize> = (1..columns.len()).collect();
    ranks.sort_by_key(|column| columns[*column].rank);
    let mut rest = width;
    let mut shown = vec![0];
    for column in ranks {
        let of = &columns[column];
        let least = if of.rank == 0 { 1 } else { columns[0].width };
        if rest > of.width + least {
            rest -= of.width + 1;
            shown.push(column);
        }
    }
    shown.sort_unstable();
    (shown, rest)
}

/// The line of titles.
pub(super) fn titles(pen: &mut Pen, y: u16, columns: &[Column], fitting: &(Vec<usize>, u16), theme: Theme) {
    pen.style_row(y, theme.heading());
    let cells: Vec<Cell> = columns.iter().map(|column| (column.title.clone(), theme.heading())).collect();
    row(pen, y, columns, fitting, &cells);
}

/// One row.
pub(super) fn row(pen: &mut Pen, y: u16, columns: &[Column], (shown, first): &(Vec<usize>, u16), cells: &[Cell]) {
    let mut x = 0;
    for index in shown {
        let (column, (text, style)) = (&columns[*index], &cells[*index]);
        let width = if *index == 0 { *first } else { column.width };
        let x_here = if *index == 0 { x } else { x + 1 };
        let text = cut(text, width);
        if column.is_text {
            pen.put(x_here, y, &text, *style);
        } else {
            pen.put_right(x_here, x_here + width, y, &text, *style);
        }
        x = x_here + width;
    }
}
