// SPDX-License-Identifier: Apache-2.0
//! The table of series.

use super::super::model::Model;
use super::super::motion::STEPS;
use super::super::series::Series;
use super::super::theme::Theme;
use super::super::view::{Column, View};
use super::Pen;
use super::machine::level;
use crate::number::span;
use onlooker_region::schema::Metric;
use ratatui::style::Style;
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

/// Draws it; returns the index of the chosen series.
pub(super) fn draw(pen: &mut Pen, view: &mut View, model: &Model, now_ns: u64, theme: Theme) -> Option<usize> {
    let rows = view.rows(model);
    let height = pen.area.height.saturating_sub(1);
    let position = view.position(model, &rows);
    view.scroll(position, rows.len(), usize::from(height));
    let window = || rows.iter().copied().skip(view.top).take(usize::from(height));
    let longest = window().map(|index| model.series[index].value_text().width()).max().unwrap_or(0);
    let widths = Widths::of(pen.area.width, longest);
    view.in_view = window().map(|index| model.series[index].key.region).collect();
    heading(pen, view, model, (position, rows.len()), widths, theme);
    let is_down = model.silent_ns(now_ns).is_some();
    let mut above: Option<&str> = None;
    for (place, index) in rows.iter().enumerate().skip(view.top).take(usize::from(height)) {
        let y = u16::try_from(place - view.top + 1).unwrap_or(u16::MAX);
        let series = &model.series[*index];
        let is_old = is_down || !model.is_fresh(series);
        let repeats = above == Some(&series.name) && !view.is_whole && place != position;
        above = Some(&series.name);
        row(pen, y, series, model, (widths, now_ns, is_old, repeats), theme);
        if place == position {
            pen.style_row(y, theme.selected());
        }
    }
    if rows.is_empty() && height > 0 {
        let text = match (view.search.is_empty(), &view.region) {
            (true, None) => {
                "the host publishes no series: no program has registered, and its agent samples nothing".to_owned()
            }
            _ => format!("nothing matches; Esc shows all {}", model.series.len()),
        };
        pen.put(0, 1, &text, theme.warn());
    }
    rows.get(position).copied()
}

fn heading(pen: &mut Pen, view: &View, model: &Model, (position, rows): (usize, usize), widths: Widths, theme: Theme) {
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
    if rows > 0 {
        title.push_str(&format!("  {} of {rows}", position + 1));
    }
    if let Some(region) = &view.region {
        title.push_str(&format!("  region {region}"));
    }
    if !view.search.is_empty() && !view.is_searching {
        title.push_str(&format!("  search `{}`", view.search));
    }
    if rows < model.series.len() {
        title.push_str(&format!(" ({} in all)", model.series.len()));
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
    series: &Series,
    model: &Model,
    (widths, now_ns, is_old, repeats): (Widths, u64, bool, bool),
    theme: Theme,
) {
    let style = |style: Style| if is_old { theme.dim() } else { style };
    let (name, labels) = fitted(&series.name, &series.labels, widths.name, repeats);
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

/// The last minute in so many characters. Rates stand on zero, gauges on their least value; a hole is a dot, the time before the first reading blank.
fn spark(series: &Series, step: u64, width: usize) -> String {
    let past = series.motion.past(step);
    let each = STEPS / width.clamp(1, STEPS);
    let largest = |steps: &[Option<f64>]| steps.iter().flatten().copied().reduce(f64::max);
    // The step that is under way has nothing yet when it begins: that is no hole.
    let mut past: Vec<Option<f64>> = past.chunks(each).map(largest).collect();
    if let [.., before, last @ None] = past.as_mut_slice() {
        *last = *before;
    }
    let known = || past.iter().flatten().copied();
    let Some(high) = known().reduce(f64::max) else { return String::new() };
    let least = known().reduce(f64::min).unwrap_or(high);
    let low = if series.metric == Metric::Gauge { least } else { least.min(0.0) };
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
fn cut(text: &str, width: u16) -> String {
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
