// SPDX-License-Identifier: Apache-2.0
//! What is selected, against looking at every series of every track.

use std::collections::{BTreeMap, BTreeSet};

use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use super::super::item::{Item, Pairs};
use super::super::tests::{labels, layout, part, series};
use super::super::{FIRST_LINE, HostId, Known, LineKey, Matcher};
use super::is_dynamic;
use super::matcher::Comparison;
use crate::layout::Layout;
use crate::types::{Line, TrackId};

fn enter(known: &mut Known, item: &Item<'_>) {
    assert_eq!(known.enter(item), Ok(true), "{item:?}");
}

fn define(known: &mut Known, layout: &Layout) {
    for placed in layout.parts() {
        let (id, content) = placed.part.content();
        let _ = known.enter(&Item::Part { id, content: &content }).unwrap();
    }
    let parts = layout.parts().iter().map(|part| part.id).collect();
    let _ = known.enter(&Item::Layout { id: layout.id(), is_table: layout.is_table(), parts }).unwrap();
}

fn host(known: &mut Known, number: u32, own: &[(&str, &str)]) {
    let name = format!("h{number}");
    enter(known, &Item::Host { number: HostId(number), name: &name, labels: Pairs::new(&labels(own)) });
}

fn track(known: &mut Known, number: u32, host: u32, own: &[(&str, &str)], layout: &Layout) {
    let (number, host, labels) = (TrackId(number), HostId(host), Pairs::new(&labels(own)));
    enter(
        known,
        &Item::Track { number, host, source: 0, created_ns: 0, layout: layout.id(), labels, texts: Pairs::new(&[]) },
    );
}

fn line(known: &mut Known, track: u32, line: u32, own: &[(&str, &str)]) {
    let labels = Pairs::new(&labels(own));
    enter(known, &Item::Line { track: TrackId(track), line: Line(line), since_ns: 0, labels, texts: Pairs::new(&[]) });
}

fn matcher(name: &str, comparison: Comparison, value: &str) -> Matcher {
    Matcher::new(name, comparison, value).unwrap()
}

/// Place, line, labels with the name.
type Every = ((TrackId, u32, u32), Line, Series, BTreeMap<String, String>);

/// Every series of every line.
fn every(known: &Known) -> Vec<Every> {
    let mut every = Vec::new();
    for track in known.tracks() {
        let layout = known.layout_of(track).unwrap();
        let lines = if layout.is_table() { known.lines_of(track).collect() } else { vec![Line::ONLY] };
        for (placed, part) in layout.parts().iter().zip(0..) {
            for (series, number) in placed.part.series.iter().zip(0..) {
                for line in &lines {
                    let mut labels: BTreeMap<String, String> =
                        known.labels(track, *line, part, number).unwrap().into_iter().collect();
                    labels.insert("__name__".into(), series.name.to_string());
                    every.push(((track, part, number), *line, series.clone(), labels));
                }
            }
        }
    }
    every
}

/// What is selected is what matches; of tables what may, and of their lines just those that do.
fn check(known: &Known, matchers: &[Matcher]) -> usize {
    let selected = known.select(matchers);
    assert!(selected.is_sorted_by(|a, b| a < b), "in order, each once");
    let mut lines: BTreeMap<(TrackId, u32, u32), Vec<Line>> = BTreeMap::new();
    for (track, part, series) in &selected {
        lines.insert((*track, *part, *series), known.lines(*track, *part, *series, matchers));
    }
    let mut count = 0;
    for (place, line, series, labels) in every(known) {
        let is_match = matchers.iter().all(|matcher| {
            let value = labels.get(matcher.name()).map_or("", String::as_str);
            is_dynamic(&series, matcher.name()) || matcher.is_match(value)
        });
        let is_found = lines.get(&place).is_some_and(|lines| lines.contains(&line));
        assert_eq!(is_found, is_match, "{place:?} {line:?} {labels:?} {matchers:?}");
        let is_table = known.layout_of(place.0).unwrap().is_table();
        assert!(is_table || is_match || !selected.contains(&place), "{place:?} {labels:?} {matchers:?}");
        count += usize::from(is_match);
    }
    count
}

/// Hosts, programs and tables with labels that clash in every way.
fn fleet() -> Known {
    let mut known = Known::default();
    let plain = |name: &str, own: &[(&str, &str)]| series(name, own, Form::Unsigned, Metric::Counter);
    let cpu = part(
        "cpu",
        vec![plain("cpu", &[("cpu", "0"), ("mode", "user")]), plain("cpu", &[("cpu", "1"), ("dc", "own")])],
    );
    let histogram = Form::Histogram(Shape { grouping_power: 1, max_power: 5 });
    let other = part(
        "other",
        vec![
            series("wait", &[("le", "1"), ("pid", "own")], histogram, Metric::Histogram),
            series("node_info", &[("value", "v"), ("a", "")], Form::Text, Metric::Info),
            plain("load", &[]),
        ],
    );
    let of_lines = series("wait", &[], histogram, Metric::Histogram);
    let table = part("table", vec![plain("rows", &[]), plain("cpu", &[("path", "own")]), of_lines]);
    let layouts = [layout(&[cpu.clone(), other], false), layout(&[cpu], false), layout(&[table], true)];
    layouts.iter().for_each(|layout| define(&mut known, layout));
    host(&mut known, 1, &[("instance", "a"), ("dc", "x")]);
    host(&mut known, 2, &[("instance", "b"), ("dc", "y")]);
    host(&mut known, 3, &[("instance", "c")]);
    host(&mut known, 4, &[("instance", "d"), ("le", "host"), ("exported_pid", "odd")]);
    for (number, host) in (1..=4).zip(1..) {
        track(&mut known, number, host, &[], &layouts[0]);
        track(&mut known, 10 + number, host, &[("pid", "7"), ("program", "p")], &layouts[1]);
        track(&mut known, 20 + number, host, &[("pid", "8"), ("instance", "mine")], &layouts[0]);
        track(&mut known, 30 + number, host, &[("pid", "9")], &layouts[2]);
        line(&mut known, 30 + number, 1, &[("path", "/a"), ("pid", "1")]);
        line(&mut known, 30 + number, 2, &[("path", "/b"), ("instance", "line")]);
        line(&mut known, 30 + number, 3, &[("le", "3")]);
        line(&mut known, 30 + number, 4, &[("exported_le", "own"), ("value", "v")]);
    }
    known
}

const NAMES: [&str; 16] = [
    "__name__",
    "instance",
    "dc",
    "pid",
    "program",
    "cpu",
    "mode",
    "path",
    "le",
    "value",
    "exported_pid",
    "exported_dc",
    "exported_instance",
    "exported_le",
    "exported_exported_le",
    "nothing",
];
const VALUES: [&str; 14] = ["", "cpu", "a", "x", "7", "p", "0", "user", "/a", "host", "own", "mine", "line", "rows"];

#[test]
fn what_is_asked_for_is_found() {
    let known = fleet();
    let all = every(&known).len();
    let count = |matchers: &[(&str, Comparison, &str)]| {
        let matchers: Vec<_> = matchers.iter().map(|(name, how, value)| matcher(name, *how, value)).collect();
        check(&known, &matchers)
    };
    use Comparison::{Equal, NotEqual, NotRegex, Regex};
    assert_eq!(count(&[]), all);
    assert_eq!(count(&[("__name__", Equal, "load")]), 8);
    assert_eq!(count(&[("__name__", Equal, "load"), ("instance", Equal, "a")]), 2);
    assert_eq!(count(&[("__name__", Equal, "load"), ("instance", Regex, "a|b")]), 4);
    assert_eq!(count(&[("__name__", Equal, "load"), ("exported_instance", Equal, "mine")]), 4);
    assert_eq!(count(&[("__name__", Regex, "lo.*"), ("pid", Equal, "")]), 4);
    assert_eq!(count(&[("__name__", Equal, "load"), ("dc", NotEqual, "x"), ("instance", NotRegex, "c|d")]), 2);
    assert_eq!(count(&[("__name__", Equal, "cpu"), ("exported_dc", Equal, "own"), ("pid", Equal, "7")]), 2);
    assert_eq!(count(&[("__name__", Equal, "rows"), ("path", Equal, "/a")]), 4);
    assert_eq!(count(&[("__name__", Equal, "rows"), ("exported_pid", Regex, "1"), ("instance", Equal, "a")]), 1);
    assert_eq!(count(&[("__name__", Equal, "nothing")]), 0);
    assert_eq!(count(&[("__name__", Equal, "cpu"), ("__name__", NotEqual, "cpu")]), 0);
}

#[test]
fn whatever_is_asked_for_is_found() {
    let known = fleet();
    bolero::check!().with_iterations(1_500).with_type::<Vec<(u8, u8, u8)>>().for_each(|asked| {
        let matchers: Vec<Matcher> = asked
            .iter()
            .take(4)
            .map(|(name, how, value)| {
                let value = VALUES[usize::from(*value) % VALUES.len()];
                let (comparison, value) = match how % 6 {
                    0 | 1 => (Comparison::Equal, value.to_owned()),
                    2 => (Comparison::NotEqual, value.to_owned()),
                    3 => (Comparison::Regex, format!("{value}|[abm].*")),
                    4 => (Comparison::Regex, format!(".*{value}")),
                    _ => (Comparison::NotRegex, format!("{value}|x")),
                };
                matcher(NAMES[usize::from(*name) % NAMES.len()], comparison, &value)
            })
            .collect();
        check(&known, &matchers);
    });
}

/// Line by line, as whoever holds the lock for moments only.
fn in_pieces(mut piece: impl FnMut(LineKey) -> Option<LineKey>) {
    let mut next = Some(FIRST_LINE);
    while let Some(from) = next {
        next = piece(from);
    }
}

fn all_names(known: &Known) -> BTreeSet<String> {
    let mut names = known.label_names();
    in_pieces(|from| known.label_names_of_lines(from, 1, &mut names));
    names
}

fn all_values(known: &Known, label: &str) -> BTreeSet<String> {
    let mut values = known.label_values(label);
    in_pieces(|from| known.label_values_of_lines(label, from, 1, &mut values));
    values
}

#[test]
fn names_and_values_are_those_that_series_have() {
    let mut known = fleet();
    let check = |known: &Known| {
        let (mut names, mut values) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
        for (_, _, _, labels) in every(known) {
            for (name, value) in labels {
                names.insert(name.clone());
                values.entry(name).or_default().insert(value);
            }
        }
        assert_eq!(all_names(known), names);
        for name in NAMES.iter().copied().chain(names.iter().map(String::as_str)) {
            assert_eq!(all_values(known, name), values.get(name).cloned().unwrap_or_default(), "{name}");
        }
    };
    check(&known);
    // Of what is forgotten nothing stays.
    for number in (1..=4).chain([12, 22, 31]) {
        assert_eq!(known.enter(&Item::ForgottenTrack(TrackId(number))), Ok(true));
        check(&known);
    }
    assert_eq!(known.enter(&Item::ForgottenLine(TrackId(32), Line(1))), Ok(true));
    check(&known);
    for number in known.tracks().collect::<Vec<_>>() {
        assert_eq!(known.enter(&Item::ForgottenTrack(number)), Ok(true));
    }
    assert_eq!((all_names(&known), known.select(&[])), (BTreeSet::new(), Vec::new()));
    assert_eq!(known.index.regions.find(&Pairs::new(&labels(&[("pid", "9")]))), None);
    // Label sets that nobody has are given to others.
    host(&mut known, 5, &[("instance", "e")]);
    define(&mut known, &layout(&[part("cpu", vec![series("one", &[], Form::Float, Metric::Gauge)])], false));
    let one = layout(&[part("cpu", vec![series("one", &[], Form::Float, Metric::Gauge)])], false);
    (50..60).for_each(|number| track(&mut known, number, 5, &[("pid", &number.to_string())], &one));
    assert_eq!(known.select(&[matcher("pid", Comparison::Equal, "55")]), [(TrackId(55), 0, 0)]);
    for pid in ["7", "8", "9"] {
        assert_eq!(known.select(&[matcher("pid", Comparison::Equal, pid)]), []);
    }
    check(&known);
}

/// Few hosts or regions of many are looked up, not looked for.
#[test]
fn few_of_many_are_found() {
    let mut known = Known::default();
    let one = layout(&[part("cpu", vec![series("one", &[], Form::Float, Metric::Gauge)])], false);
    define(&mut known, &one);
    for number in 1..=2_000 {
        let dc = format!("dc{}", number % 7);
        host(&mut known, number, &[("instance", &format!("i{number}")), ("dc", &dc)]);
        track(&mut known, number, number, &[], &one);
        let pid = (number / 2).to_string();
        track(&mut known, 10_000 + number, number, &[("pid", &pid), ("program", "p")], &one);
    }
    let found = known.select(&[matcher("instance", Comparison::Equal, "i77")]);
    assert_eq!(found, [(TrackId(77), 0, 0), (TrackId(10_077), 0, 0)]);
    let found =
        known.select(&[matcher("instance", Comparison::Regex, "i7[0-9]+"), matcher("dc", Comparison::Equal, "dc3")]);
    let expected = (1..=2_000u32).filter(|n| n.to_string().starts_with('7') && *n > 9 && n % 7 == 3).count();
    assert_eq!(found.len(), 2 * expected);
    let found = known.select(&[matcher("dc", Comparison::NotEqual, "dc0"), matcher("program", Comparison::Equal, "p")]);
    assert_eq!(found.len(), (1..=2_000).filter(|n| n % 7 != 0).count());
    let pid = |value| matcher("pid", Comparison::Equal, value);
    assert_eq!(known.select(&[pid("40")]), [(TrackId(10_080), 0, 0), (TrackId(10_081), 0, 0)]);
    let found = known.select(&[pid("40"), matcher("dc", Comparison::Equal, "dc3")]);
    assert_eq!(found, [(TrackId(10_080), 0, 0)]);
    assert_eq!(known.enter(&Item::ForgottenTrack(TrackId(10_080))), Ok(true));
    assert_eq!(known.select(&[pid("40")]), [(TrackId(10_081), 0, 0)]);
}
