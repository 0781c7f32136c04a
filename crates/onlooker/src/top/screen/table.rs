// SPDX-License-Identifier: Apache-2.0
//! The table of series.

use super::super::advice;
use super::super::listing::{Column, Listing, Only};
use super::super::model::Model;
use super::super::motion::STEPS;
use super::super::series::Series;
use super::super::theme::Theme;
use super::Pen;
use super::machine::level;
use crate::number::span;
use onlooker_region::schema::Metric;
use ratatui::style::Style;
use std::collections::HashSet;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Widths of the columns; 0: not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    name: u16,
    value: u16,
    rate: u16,
    change: u16,
    spark: u16,
    age: u16,
}

/// What the name shall have before other columns are shown, and before those are that one can do without.
const NAME: u16 = 28;
const NAME_IN_FULL: u16 = 44;
/// Widths that the column `VALUE` has: few, so that columns stay where they are while values change.
const VALUES: [u16; 4] = [11, 14, 20, 28];

impl Widths {
    /// `longest`: of the values in view.
    fn of(width: u16, longest: usize) -> Self {
        let value = VALUES.into_iter().find(|value| longest <= usize::from(*value)).unwrap_or(VALUES[3]);
        let mut widths = Self { name: 0, value, rate: 0, change: 0, spark: 0, age: 0 };
        let mut rest = width.saturating_sub(NAME + widths.value + 1);
        let mut give = |wanted: u16, to: &mut u16| {
            if *to < wanted && rest > wanted - *to {
                rest -= wanted - *to + u16::from(*to == 0);
                *to = wanted;
            }
        };
        give(13, &mut widths.rate);
        rest = rest.saturating_sub(NAME_IN_FULL - NAME);
        let mut give = |wanted: u16, to: &mut u16| {
            if *to < wanted && rest > wanted - *to {
                rest -= wanted - *to + u16::from(*to == 0);
                *to = wanted;
            }
        };
        give(8, &mut widths.age);
        give(10, &mut widths.spark);
        give(8, &mut widths.change);
        // A wider line only where names have room with their labels.
        for (wider, least) in [(15, 0), (20, 110), (30, 150)] {
            if width >= least {
                give(wider, &mut widths.spark);
            }
        }
        // The rest is the name's, and on very wide screens each second has a character.
        if width > 190 {
            give(60, &mut widths.spark);
        }
        let others = [widths.rate, widths.change, widths.spark, widths.age];
        let taken: u16 = others.iter().filter(|width| **width > 0).map(|width| width + 1).sum();
        if width < NAME + widths.value {
            widths.value = widths.value.min(width / 2);
        }
        widths.name = width.saturating_sub(taken + widths.value + 1);
        widths
    }
}

/// What is drawn.
pub(super) struct Shown<'a> {
    pub(super) listing: &'a mut Listing,
    /// What all of it is of.
    pub(super) of: Option<&'a str>,
    /// Where the regions are entered that have a row on the screen.
    pub(super) in_view: &'a mut HashSet<u64>,
}

/// A line of the table.
#[derive(Clone, Copy)]
enum Line {
    /// The program of the row below.
    Head(usize),
    /// Place of a row.
    Row(usize),
}

/// Draws it; returns the index of the chosen series.
pub(super) fn draw(pen: &mut Pen, shown: Shown, model: &Model, now_ns: u64, theme: Theme) -> Option<usize> {
    let Shown { listing, of, in_view } = shown;
    let rows = listing.rows(model);
    let lines = lines(listing, model, &rows);
    let height = usize::from(pen.area.height.saturating_sub(1));
    let position = listing.position(model, &rows);
    let at = lines.iter().position(|line| matches!(line, Line::Row(place) if *place == position)).unwrap_or(0);
    listing.chosen.scroll(at, lines.len(), height);
    // Not without whose it is.
    if height > 1 && at > 0 && listing.chosen.top == at && matches!(lines[at - 1], Line::Head(_)) {
        listing.chosen.top -= 1;
    }
    let window = || lines.iter().skip(listing.chosen.top).take(height);
    let placed = || window().filter_map(|line| if let Line::Row(place) = line { Some(rows[*place]) } else { None });
    let longest = placed().map(|index| model.series[index].value_text().width()).max().unwrap_or(0);
    let widths = Widths::of(pen.area.width, longest);
    *in_view = placed().map(|index| model.series[index].key.region).collect();
    heading(pen, listing, of, model, (position, rows.len()), widths, theme);
    let is_down = model.silent_ns(now_ns).is_some();
    let mut above: Option<&str> = None;
    for (y, line) in (1..).zip(window()) {
        let place = match line {
            Line::Head(place) => {
                let name = model.series[rows[*place]].program.as_deref().unwrap_or_default();
                pen.put(0, y, name, theme.heading());
                above = None;
                continue;
            }
            Line::Row(place) => *place,
        };
        let series = &model.series[rows[place]];
        let is_old = is_down || !model.is_fresh(series);
        let repeats = above == Some(&series.name) && !listing.is_whole && place != position;
        above = Some(&series.name);
        let labels = if listing.only == Only::Programs { &series.own_labels } else { &series.labels };
        row(pen, y, (series, labels), model, (widths, now_ns, is_old, repeats), theme);
        if place == position {
            pen.style_row(y, theme.selected());
        }
    }
    if rows.is_empty() && height > 0 {
        for (y, line) in (1..).zip(nothing(listing, of, model)) {
            pen.put(0, y, &line, theme.warn());
        }
    }
    rows.get(position).copied()
}

/// Rows of programs have their program above them.
fn lines(listing: &Listing, model: &Model, rows: &[usize]) -> Vec<Line> {
    let program = |place: usize| &model.series[rows[place]].program;
    let is_first = |place: usize| place == 0 || program(place) != program(place - 1);
    let with_head = |place: usize| {
        let head = (listing.only == Only::Programs && is_first(place)).then_some(Line::Head(place));
        head.into_iter().chain(std::iter::once(Line::Row(place)))
    };
    (0..rows.len()).flat_map(with_head).collect()
}

/// Lines that a whole table has, with its heading.
pub(super) fn full_rows(listing: &Listing, model: &Model) -> u16 {
    let lines = lines(listing, model, &listing.rows(model)).len();
    u16::try_from(lines.max(nothing(listing, None, model).len())).unwrap_or(u16::MAX).saturating_add(1)
}

/// Why there are no rows.
fn nothing(listing: &Listing, of: Option<&str>, model: &Model) -> Vec<String> {
    let all = model.series.iter().filter(|series| listing.has(series)).count();
    let is_narrowed = !listing.search.is_empty() || listing.region.is_some();
    match (listing.only, of) {
        _ if is_narrowed && all > 0 => vec![format!("nothing matches; Esc shows all {all}")],
        (Only::Programs, _) => advice::no_programs(),
        (Only::Row(_), _) => vec!["it has ended, or has no row any more; Esc goes back".into()],
        (Only::All, _) => {
            vec!["the host publishes no series: no program has registered, and its agent samples nothing".into()]
        }
    }
}

fn heading(
    pen: &mut Pen,
    view: &Listing,
    of: Option<&str>,
    model: &Model,
    (position, rows): (usize, usize),
    widths: Widths,
    theme: Theme,
) {
    pen.style_row(0, theme.heading());
    let marked = |column: Column, name: &str| {
        let descends = (column != Column::Name) != view.is_turned;
        let mark = if view.sort != column {
            ""
        } else if descends {
            "v"
        } else {
            "^"
        };
        format!("{name}{mark}")
    };
    let mut title = marked(Column::Name, "SERIES");
    if let Some(of) = of {
        title.push_str(&format!(" of {of}"));
    }
    if rows > 0 {
        title.push_str(&format!("  {} of {rows}", position + 1));
    }
    if let Some(region) = &view.region {
        title.push_str(&format!("  region {region}"));
    }
    if !view.search.is_empty() {
        title.push_str(&format!("  search `{}`", view.search));
    }
    let all = model.series.iter().filter(|series| view.has(series)).count();
    if rows < all {
        title.push_str(&format!(" ({all} in all)"));
    }
    let style = theme.heading();
    pen.put(0, 0, &cut(&title, widths.name), style);
    let mut x = widths.name;
    let titles = [
        (widths.value, marked(Column::Value, "VALUE")),
        (widths.rate, marked(Column::Rate, "RATE")),
        (widths.change, marked(Column::Change, "CHANGE")),
    ];
    for (width, title) in titles {
        x = cell(pen, x, 0, width, &title, style);
    }
    if widths.spark > 0 {
        let past = span(i128::from(model.step_ns()) * i128::try_from(STEPS).unwrap_or(60));
        pen.put(x + 1, 0, &cut(&format!("LAST {past}"), widths.spark), style);
        x += widths.spark + 1;
    }
    cell(pen, x, 0, widths.age, "AGE", style);
}

/// A cell to the right of column `x`; returns the column after it.
fn cell(pen: &mut Pen, x: u16, y: u16, width: u16, text: &str, style: Style) -> u16 {
    if width == 0 {
        return x;
    }
    pen.put_right(x + 1, x + 1 + width, y, &cut(text, width), style);
    x + 1 + width
}

fn row(
    pen: &mut Pen,
    y: u16,
    (series, labels): (&Series, &str),
    model: &Model,
    (widths, now_ns, is_old, repeats): (Widths, u64, bool, bool),
    theme: Theme,
) {
    let style = |style: Style| if is_old { theme.dim() } else { style };
    let (name, labels) = fitted(&series.name, labels, widths.name, repeats);
    let x = pen.put(0, y, &name, style(Style::new()));
    if !labels.is_empty() {
        pen.put(x + 1, y, &labels, style(theme.dim()));
    }
    let x = cell(pen, widths.name, y, widths.value, &series.value_text(), style(theme.strong()));
    let rate = series.rate_text(now_ns);
    let rate_style = if rate == "reset" { theme.warn() } else { Style::new() };
    let x = cell(pen, x, y, widths.rate, &rate, style(rate_style));
    let mut x = cell(pen, x, y, widths.change, &series.change_text(), style(Style::new()));
    if widths.spark > 0 {
        let line = spark(series, model.step(now_ns), usize::from(widths.spark));
        pen.put(x + 1, y, &line, style(theme.line()));
        x += widths.spark + 1;
    }
    cell(pen, x, y, widths.age, &age(series, now_ns, is_old), style(theme.dim()));
}

fn age(series: &Series, now_ns: u64, is_old: bool) -> String {
    match series.acquired_ns {
        Some(acquired_ns) => crate::number::age(i128::from(now_ns.saturating_sub(acquired_ns))),
        None if is_old => span(i128::from(now_ns.saturating_sub(series.read_ns))),
        None => "live".into(),
    }
}

/// The last minute in so many characters. Rates stand on zero, gauges on their least value.
fn spark(series: &Series, step: u64, width: usize) -> String {
    let past = series.motion.past(step);
    let least = past.iter().flatten().copied().reduce(f64::min).unwrap_or(0.0);
    line(&past, if series.metric == Metric::Gauge { least } else { least.min(0.0) }, width)
}

/// Steps in so many characters, above `low`; a hole is a dot, the time before the first reading blank.
pub(super) fn line(past: &[Option<f64>], low: f64, width: usize) -> String {
    let each = STEPS / width.clamp(1, STEPS);
    let largest = |steps: &[Option<f64>]| steps.iter().flatten().copied().reduce(f64::max);
    // The newest stands at the right edge, however short the past is.
    let mut steps = vec![None; STEPS.saturating_sub(past.len())];
    steps.extend_from_slice(past);
    // The step that is under way has nothing yet when it begins: that is no hole.
    let mut past: Vec<Option<f64>> = steps.chunks(each).map(largest).collect();
    if let [.., before, last @ None] = past.as_mut_slice() {
        *last = *before;
    }
    let Some(high) = past.iter().flatten().copied().reduce(f64::max) else { return String::new() };
    let first = past.iter().position(Option::is_some).unwrap_or(0);
    let glyph = |(index, value): (usize, &Option<f64>)| match value {
        Some(value) if high > low => level((value - low) / (high - low)),
        Some(_) => level(0.0),
        None if index < first => " ",
        None => "\u{b7}",
    };
    past.iter().enumerate().map(glyph).collect()
}

/// Name and labels that have room together. Of the name, beginning and end stay; the labels, which tell series of one name apart,
/// get what the name leaves, and a third at least. Where the row above has the same name (`repeats`), and both have no room,
/// the name is left out.
fn fitted(name: &str, labels: &str, width: u16, repeats: bool) -> (String, String) {
    let (name_width, labels_width) = (name.width(), labels.width());
    let width = usize::from(width);
    if labels.is_empty() || width < 12 {
        return (cut_middle(name, width), String::new());
    }
    if repeats && name_width + 1 + labels_width > width {
        return (" \"".into(), cut(labels, u16::try_from(width - 3).unwrap_or(u16::MAX)));
    }
    let labels_room = labels_width.min((width / 3).max((width - 1).saturating_sub(name_width)));
    let name = cut_middle(name, width - 1 - labels_room);
    (name, cut(labels, u16::try_from(labels_room).unwrap_or(u16::MAX)))
}

fn cut_middle(text: &str, width: usize) -> String {
    if fits(text, width) {
        return text.to_owned();
    }
    let (head, tail) = (width.saturating_sub(1).div_ceil(2), width.saturating_sub(1) / 2);
    let end: Vec<char> = taken(text.chars().rev(), tail).collect();
    let end: String = end.into_iter().rev().collect();
    let begin: String = taken(text.chars(), head).collect();
    if width == 0 { String::new() } else { format!("{begin}~{end}") }
}

/// A text of at most so many columns; `~` stands for what is missing.
pub(super) fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if fits(text, width) {
        return text.to_owned();
    }
    let mut cut: String = taken(text.chars(), width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('~');
    }
    cut
}

/// Characters of no width count, too: else a column could hold any number of them.
fn columns(c: char) -> usize {
    c.width().unwrap_or(1).max(1)
}

fn fits(text: &str, width: usize) -> bool {
    text.chars().map(columns).sum::<usize>() <= width
}

fn taken(chars: impl Iterator<Item = char>, width: usize) -> impl Iterator<Item = char> {
    chars.scan(0, move |taken, c| {
        *taken += columns(c);
        (*taken <= width).then_some(c)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_columns_not_by_characters() {
        assert_eq!(
            (cut("\u{4e2d}\u{6587}ab", 4), cut("\u{4e2d}\u{6587}ab", 6)),
            ("\u{4e2d}~".into(), "\u{4e2d}\u{6587}ab".into())
        );
        assert_eq!(cut_middle("\u{4e2d}\u{6587}abc\u{4e2d}", 5), "\u{4e2d}~\u{4e2d}");
        let zalgo: String = std::iter::once('a').chain(std::iter::repeat_n('\u{300}', 10_000)).collect();
        assert_eq!((cut(&zalgo, 20).chars().count(), cut_middle(&zalgo, 20).chars().count()), (20, 20));
        assert_eq!((cut("", 0), cut("a", 0), cut_middle("ab", 0)), (String::new(), String::new(), String::new()));
    }

    #[test]
    fn at_80_columns_a_name_and_its_label_can_be_read() {
        let widths = Widths::of(80, 9);
        assert!(widths.name >= 44 && widths.rate > 0 && widths.age > 0, "{widths:?}");
        let labels = "cgroup=1,name=/system.slice/ssh.service";
        let (name, shown) = fitted("container_cpu_usage_seconds_total", labels, widths.name, false);
        assert_eq!(name, "container_cpu_~_seconds_total");
        assert!(shown.starts_with("cgroup=1,name="), "{shown}");
        // Below it the labels have all the room.
        assert_eq!(
            fitted("container_cpu_usage_seconds_total", labels, widths.name, true),
            (" \"".into(), labels.into())
        );
        assert!(Widths::of(160, 28).change > 0 && Widths::of(80, 28).name >= 28);
    }
}
