// SPDX-License-Identifier: Apache-2.0
//! The screen, drawn into a buffer of any size: header, machine, table, the chosen series, keys. What there is no room for is left out, from the
//! least important on; nothing is ever drawn outside.

mod header;
mod help;
mod machine;
mod table;

use super::machine::Machine;
use super::model::Model;
use super::theme::Theme;
use super::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr as _;

/// Rows that the table shall have before anything else gets some.
const TABLE_ROWS: u16 = 6;
/// Rows of processors at most.
const CPU_ROWS: u16 = 4;

/// A pen in a buffer that stays within its area.
pub(super) struct Pen<'a> {
    pub(super) area: Rect,
    pub(super) buffer: &'a mut Buffer,
}

impl Pen<'_> {
    /// Writes at a place of the area; returns the column after it.
    pub(super) fn put(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if y >= self.area.height || x >= self.area.width {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let (end, _) = self.buffer.set_stringn(self.area.x + x, self.area.y + y, text, room, style);
        end - self.area.x
    }

    /// Writes so that it ends before column `end`, if there is room from `begin` on.
    pub(super) fn put_right(&mut self, begin: u16, end: u16, y: u16, text: &str, style: Style) {
        let width = u16::try_from(text.width()).unwrap_or(u16::MAX);
        if let Some(x) = end.checked_sub(width).filter(|x| *x >= begin) {
            self.put(x, y, text, style);
        }
    }

    /// A line of pieces.
    fn line(&mut self, y: u16, pieces: &[(String, Style)]) {
        let mut x = 0;
        for (text, style) in pieces {
            x = self.put(x, y, text, *style);
        }
    }

    fn style_row(&mut self, y: u16, style: Style) {
        if y < self.area.height {
            let row = Rect { y: self.area.y + y, height: 1, ..self.area };
            self.buffer.set_style(row, style);
        }
    }
}

/// Draws everything. `live` is what comes in; a paused view has its own.
pub(super) fn draw(view: &mut View, live: &Model, now_ns: u64, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let paused = view.paused.take();
    let (model, now_ns) = paused.as_ref().map_or((live, now_ns), |(model, since_ns)| (&**model, *since_ns));
    let area = area.intersection(buffer.area);
    let pen = &mut Pen { area, buffer };
    if view.shows_help {
        help::draw(pen, theme);
    } else {
        parts(view, model, paused.is_some(), now_ns, theme, pen);
    }
    view.paused = paused;
}

fn parts(view: &mut View, model: &Model, is_paused: bool, now_ns: u64, theme: Theme, pen: &mut Pen) {
    let area = pen.area;
    let header_rows = match area.height {
        0..=4 => area.height.min(1),
        5..=9 => 2,
        // What to do about it stands at the end of the reason.
        11.. if model.silent_ns(now_ns).is_some() => 4,
        _ => 3,
    };
    let footer_rows = match area.height {
        0..=5 => 0,
        6..=11 => 1,
        _ => 3,
    };
    let machine = Machine::of(model);
    let spare = area.height.saturating_sub(header_rows + footer_rows + 1 + TABLE_ROWS);
    let machine_rows = machine::rows(&machine, area.width, spare);
    let mut y = area.y;
    let mut part = |rows: u16| {
        let rows = rows.min(area.bottom() - y);
        let part = Rect { y, height: rows, ..area };
        y += rows;
        part
    };
    let (header, middle) = (part(header_rows), part(machine_rows));
    let table = part(area.height.saturating_sub(header_rows + machine_rows + footer_rows));
    let footer = part(footer_rows);
    let mut within = |area: Rect, draw: &mut dyn FnMut(&mut Pen)| draw(&mut Pen { area, buffer: pen.buffer });
    within(header, &mut |pen| header::draw(pen, model, is_paused, now_ns, theme));
    within(middle, &mut |pen| machine::draw(pen, &machine, model, now_ns, theme));
    let mut chosen = None;
    within(table, &mut |pen| chosen = table::draw(pen, view, model, now_ns, theme));
    within(footer, &mut |pen| footer_of(pen, view, model, chosen, theme));
}

/// The chosen series in full, and what keys do.
fn footer_of(pen: &mut Pen, view: &View, model: &Model, chosen: Option<usize>, theme: Theme) {
    let last = pen.area.height.saturating_sub(1);
    if let (Some(chosen), true) = (chosen, last > 0) {
        let series = &model.series[chosen];
        pen.put(0, 0, &series.text(), theme.strong());
        pen.put(0, 1, &series.details(), theme.dim());
    }
    if view.is_searching {
        let x = pen.put(0, last, &format!("search: {}", view.search), theme.strong());
        let x = pen.put(x, last, "_", theme.strong());
        pen.put(x + 2, last, "Enter keep  Esc clear", theme.dim());
        return;
    }
    pen.put(0, last, "q quit  / search  r region  0-4 s sort  i turn  space pause  ? help", theme.dim());
}

/// Rows that a whole table and everything else take: for a frame that nobody scrolls.
pub(super) fn full_height(view: &View, model: &Model, width: u16) -> u16 {
    let machine = Machine::of(model);
    let rows = view.rows(model).len();
    u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(3 + machine::rows(&machine, width, u16::MAX) + 1 + 3)
}

/// Lines of at most so many characters, broken at blanks where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_inclusive(' ') {
        if !line.is_empty() && line.chars().count() + word.trim_end().chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// `14:03:12` of a time since 1970.
fn clock(utc_ns: u64) -> String {
    let seconds = utc_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
