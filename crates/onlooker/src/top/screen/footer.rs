// SPDX-License-Identifier: Apache-2.0
//! The chosen row in full, and what keys do.

use super::super::kind::Kind;
use super::super::theme::Theme;
use super::super::view::View;
use super::Pen;

/// Its rows below a list of series.
pub(super) const SERIES_ROWS: u16 = 3;
/// Its rows below a table of processes or control groups.
pub(super) const ENTITY_ROWS: u16 = 2;

/// `said`: of the chosen row.
pub(super) fn draw(pen: &mut Pen, view: &mut View, said: &[String], theme: Theme) {
    let Some(last) = pen.area.height.checked_sub(1) else { return };
    for ((y, text), style) in (0..last).zip(said).zip([theme.strong(), theme.dim()]) {
        pen.put(0, y, text, style);
    }
    if view.is_searching {
        let search = view.filter().cloned().unwrap_or_default();
        let x = pen.put(0, last, &format!("search: {search}"), theme.strong());
        let x = pen.put(x, last, "_", theme.strong());
        pen.put(x + 2, last, "Enter keep  Esc clear", theme.dim());
        return;
    }
    let mut x = 0;
    // In a terminal too narrow for the names of all views, their numbers have to do.
    let is_wide = pen.area.width >= 60;
    for (number, kind) in (1..).zip(Kind::ALL) {
        let is_shown = kind == view.kind;
        let text = if is_wide || is_shown { format!("{number} {}", kind.name()) } else { number.to_string() };
        x = pen.put(x, last, &text, if is_shown { theme.selected() } else { theme.strong() }) + 1;
    }
    let keys: &[&str] = match (view.opened.is_some(), view.kind) {
        (true, _) => &["Esc back", "/ search", "? help", "q quit"],
        (false, Kind::Machine) => &["? help", "q quit", "space pause"],
        (false, Kind::Processes | Kind::Containers) => {
            &["/ filter", "? help", "q quit", "Enter all of it", "s sort", "i turn", "space pause"]
        }
        (false, Kind::Programs | Kind::Series) => {
            &["/ search", "? help", "q quit", "s sort", "i turn", "r region", "space pause"]
        }
    };
    for key in keys {
        // What does not fit is in the help.
        if usize::from(x) + 1 + key.len() <= usize::from(pen.area.width) {
            x = pen.put(x + 1, last, key, theme.dim());
        }
    }
}
