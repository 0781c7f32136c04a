// SPDX-License-Identifier: Apache-2.0
//! The screen, drawn into a buffer of any size: header, the view, the chosen row, keys. What there is no room for is
//! left out, from the least important on;
//! nothing is ever drawn outside.

mod figures;
mod footer;
mod grid;
mod header;
mod help;
mod machine;
mod table;
mod whole;

use super::kind::Kind;
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
    /// Writes at a place of the area; returns the column after it. `~` stands for what has no room.
    pub(super) fn put(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if y >= self.area.height || x >= self.area.width {
            return x;
        }
        let room = self.area.width - x;
        let text = table::cut(text, room);
        let (end, _) = self.buffer.set_stringn(self.area.x + x, self.area.y + y, text, usize::from(room), style);
        end - self.area.x
    }

    /// Writes so that it ends before column `end`, if there is room from `begin` on.
    pub(super) fn put_right(&mut self, begin: u16, end: u16, y: u16, text: &str, style: Style) {
        let width = u16::try_from(text.width()).unwrap_or(u16::MAX);
        if let Some(x) = end.checked_sub(width).filter(|x| *x >= begin) {
            self.put(x, y, text, style);
        }
    }

    /// A line of pieces, what matters most first. What has no room is left out from the first such piece on; only a
    /// piece that begins early is cut.
    fn line(&mut self, y: u16, pieces: &[(String, Style)]) {
        let mut x = 0;
        for (text, style) in pieces {
            let has_room = usize::from(x) + text.width() <= usize::from(self.area.width);
            if !has_room && x > self.area.width / 2 {
                return;
            }
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
        help::draw(pen, view, model, theme);
    } else {
        parts(view, model, paused.is_some(), now_ns, theme, pen);
    }
    view.paused = paused;
}

/// Rows of header and footer.
fn frame_rows(view: &mut View, height: u16, is_silent: bool) -> (u16, u16) {
    let header = match height {
        0..=4 => height.min(1),
        5..=9 => 2,
        // What to do about it stands at the end of the reason.
        11.. if is_silent => 4,
        _ => 3,
    };
    let footer = match height {
        0..=5 => 0,
        6..=11 => 1,
        _ if view.listing().is_some() => footer::SERIES_ROWS,
        _ if view.grid().is_some() => footer::ENTITY_ROWS,
        _ => 1,
    };
    (header, footer)
}

fn parts(view: &mut View, model: &Model, is_paused: bool, now_ns: u64, theme: Theme, pen: &mut Pen) {
    let area = pen.area;
    let (header_rows, footer_rows) = frame_rows(view, area.height, model.silent_ns(now_ns).is_some());
    let mut y = area.y;
    let mut part = |rows: u16| {
        let rows = rows.min(area.bottom() - y);
        let part = Rect { y, height: rows, ..area };
        y += rows;
        part
    };
    let header = part(header_rows);
    let body = part(area.height.saturating_sub(header_rows + footer_rows));
    let footer = part(footer_rows);
    within(pen, header, &mut |pen| header::draw(pen, view.kind, model, is_paused, now_ns, theme));
    let mut said = Vec::new();
    within(pen, body, &mut |pen| said = body_of(pen, view, model, now_ns, theme));
    within(pen, footer, &mut |pen| footer::draw(pen, view, &said, theme));
}

/// What the view shows; gives what is to be said of the chosen row.
fn body_of(pen: &mut Pen, view: &mut View, model: &Model, now_ns: u64, theme: Theme) -> Vec<String> {
    if let Some(grid) = view.grid() {
        return grid::draw(pen, grid, model, now_ns, theme).into_iter().collect();
    }
    if view.listing().is_none() {
        whole::draw(pen, model, now_ns, theme);
        return Vec::new();
    }
    let mut table_area = pen.area;
    // The machine stands above all series, where there is room.
    if view.kind == Kind::Series {
        let machine = Machine::of(model);
        let spare = pen.area.height.saturating_sub(1 + TABLE_ROWS);
        let rows = machine::rows(&machine, pen.area.width, spare);
        let above = Rect { height: rows, ..pen.area };
        table_area = Rect { y: pen.area.y + rows, height: pen.area.height - rows, ..pen.area };
        within(pen, above, &mut |pen| machine::draw(pen, &machine, model, now_ns, theme));
    }
    let mut in_view = std::mem::take(&mut view.in_view);
    let of = view.opened.as_ref().map(|opened| opened.name.clone());
    let mut chosen = None;
    if let Some(listing) = view.listing() {
        within(pen, table_area, &mut |pen| {
            let shown = table::Shown { listing, of: of.as_deref(), in_view: &mut in_view };
            chosen = table::draw(pen, shown, model, now_ns, theme);
        });
    }
    view.in_view = in_view;
    chosen.map(|chosen| vec![model.series[chosen].text(), model.series[chosen].details()]).unwrap_or_default()
}

/// Draws in a part of the area.
fn within(pen: &mut Pen, area: Rect, draw: &mut dyn FnMut(&mut Pen)) {
    let area = area.intersection(pen.area);
    draw(&mut Pen { area, buffer: pen.buffer });
}

/// Rows of a whole view but for its footer, and those of the footer: for a frame that nobody scrolls.
pub(super) fn full_height(view: &mut View, model: &Model, width: u16, now_ns: u64) -> (u16, u16) {
    let (header, footer) = frame_rows(view, u16::MAX, model.silent_ns(now_ns).is_some());
    let machine = Machine::of(model);
    let rows = if let Some(grid) = view.grid() {
        let rows = grid.rows(model, &machine).len();
        // As many as it takes to say why there is none.
        u16::try_from(rows.max(8)).unwrap_or(u16::MAX).saturating_add(grid::HEAD_ROWS)
    } else if let Some(listing) = view.listing() {
        table::full_rows(listing, model)
    } else {
        whole::full_rows(&machine, width)
    };
    let above = if view.kind == Kind::Series { machine::rows(&machine, width, u16::MAX) } else { 0 };
    (rows.saturating_add(header + above), footer)
}

/// Lines of at most so many characters, broken at blanks where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_inclusive(' ') {
        if !line.is_empty() && line.chars().count() + word.trim_end().chars().count() > width {
            lines.push(line.trim_end().to_owned());
            line.clear();
        }
        line.push_str(word);
    }
    lines.push(line.trim_end().to_owned());
    lines
}

/// `14:03:12` of a time since 1970.
fn clock(utc_ns: u64) -> String {
    let seconds = utc_ns / 1_000_000_000 % 86_400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
