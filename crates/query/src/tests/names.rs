// SPDX-License-Identifier: Apache-2.0
//! Names, labels and values are those of `/metrics`.

use std::collections::BTreeSet;

use onlooker_framestore::layout::Layout;
use onlooker_promql::labels::Matcher;
use onlooker_promql::limits::{Budget, Cancel, Limits};
use onlooker_promql::source::{SeriesSource as _, Span};
use onlooker_promql::{Query, QueryError};
use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use onlooker_series::exposition::samples;
use onlooker_series::series::{Form, Series};

use super::fixture::{S, T0, World, budget, description, gauge, pair};
use crate::StoreSource;
use crate::lists::{self, Asked};

const SHAPE: Shape = Shape { grouping_power: 1, max_power: 5 };
pub(super) const ALL: Span = Span { after_ns: 0, until_ns: i64::MAX };

/// All forms, in two parts; the words of a row, each part with its time.
fn every_form(world: &mut World) -> Vec<Series> {
    let with_label = |series: Series| Series { labels: vec![pair("instance", "own")].into(), ..series };
    let parts = vec![
        vec![
            Series { scale: 1e-9, ..Series::new("busy_seconds_total", Metric::Counter, Form::Unsigned) },
            Series::new("balance", Metric::Gauge, Form::Signed),
            with_label(gauge("load")),
        ],
        vec![
            Series::new("machine_info", Metric::Info, Form::Text),
            Series { scale: 0.001, ..Series::new("wait_seconds", Metric::Histogram, Form::Histogram(SHAPE)) },
        ],
    ];
    let texts = vec![(1, 0, "6.1 \"odd\"".to_owned())];
    let track = world.track(&onlooker_framestore::client::Description { texts, ..description("a", parts) });
    let mut words = vec![T0 + S, 3, (-4i64).cast_unsigned(), 0.1f64.to_bits(), T0 + S];
    words.extend((0..SHAPE.buckets()).map(|at| at as u64 % 4));
    words.push(777);
    world.append(track, T0 + S, &words);
    let mut all = Vec::new();
    for named in world.store.series_of("a") {
        all.extend(named.series.iter().map(|series| (series.clone(), series.value(&words).unwrap())));
    }
    // What `/metrics` writes of them.
    let mut text = String::new();
    for (series, value) in &all {
        let labels = series.text()[series.name.len()..].to_owned();
        samples(&mut text, &series.name, &labels, value, series.scale);
    }
    let expected: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    // Native histograms are beside them.
    let answered = world.query("{instance=\"a\",__name__!=\"wait_seconds\"}", S).into_iter().map(|line| {
        // `{__name__="x", a="b"} 1` as a line of text.
        let (labels, value) = line.rsplit_once(' ').unwrap();
        let labels = labels.strip_prefix("{__name__=\"").unwrap().replace(", ", ",");
        let (name, labels) = labels.split_once('"').unwrap();
        format!("{name}{{{} {value}", labels.trim_start_matches(','))
    });
    assert_eq!(answered.collect::<BTreeSet<_>>(), expected);
    all.into_iter().map(|(series, _)| series).collect()
}

#[test]
fn every_form_is_answered_as_metrics_writes_it() {
    let mut world = World::new();
    every_form(&mut world);
    assert_eq!(world.query("histogram_quantile(1, wait_seconds_bucket)", S).len(), 1);
    let count = world.query("wait_seconds_count", S);
    assert_eq!(world.query("wait_seconds_bucket{le=\"+Inf\"}", S)[0].rsplit(' ').next(), count[0].rsplit(' ').next());
    for (selector, series) in [
        ("load{exported_instance=\"own\"}", 1),
        ("load{instance=\"own\"}", 0),
        ("{__name__=~\"wait_seconds_(sum|count)\"}", 2),
        ("wait_seconds", 1),
        ("{le=\"\",instance=\"a\"}", 7),
        ("machine_info{value=~\"6.*\"}", 1),
        ("machine_info{value=\"\"}", 0),
        ("wait_seconds_bucket{le=~\"0.00[13]\"}", 2),
    ] {
        assert_eq!(world.query(selector, S).len(), series, "{selector}");
    }
}

#[test]
fn names_labels_and_values_are_listed() {
    let mut world = World::new();
    every_form(&mut world);
    let selectors =
        |texts: &[&str]| -> Vec<Vec<Matcher>> { texts.iter().map(|text| Query::selector(text).unwrap()).collect() };
    for texts in [&[][..], &["{instance=\"a\"}"]] {
        let selectors = selectors(texts);
        let asked = Asked { selectors: &selectors, span: ALL, budget: &budget(100) };
        let names = lists::label_names(&world.store, &asked).unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["__name__", "exported_instance", "instance", "le", "value"]);
        let values = |label: &str| lists::label_values(&world.store, label, &asked).unwrap();
        let of_histogram = |end| values("__name__").contains(&format!("wait_seconds{end}"));
        assert_eq!(["", "_bucket", "_sum", "_count", "_other"].map(of_histogram), [true, true, true, true, false]);
        assert!(values("le").contains("+Inf") && values("value").len() == 1);
        assert_eq!(values("instance").iter().collect::<Vec<_>>(), ["a"]);
        assert!(values("none").is_empty());
    }
    let selectors = selectors(&["load", "balance", "{__name__=~\"load|nothing\"}"]);
    let asked = Asked { selectors: &selectors, span: ALL, budget: &budget(2) };
    assert_eq!(lists::series(&world.store, &asked).unwrap().len(), 2);
    assert!(lists::series(&world.store, &Asked { budget: &budget(1), ..asked }).is_err());
    let later = Span { after_ns: (T0 + 1_000 * S).cast_signed(), until_ns: i64::MAX };
    assert!(lists::series(&world.store, &Asked { span: later, ..asked }).unwrap().is_empty());
    let metadata = lists::metadata(&world.store, &budget(1)).unwrap();
    let kind = |name: &str| metadata[name].first().unwrap().kind;
    assert_eq!(["busy_seconds_total", "wait_seconds", "machine_info"].map(kind), ["counter", "histogram", "gauge"]);
}

/// Bounds and texts are told without a look at any series.
#[test]
fn what_only_rows_have_is_listed_however_many_series_have_it() {
    let mut world = World::new();
    every_form(&mut world);
    let few = budget(1);
    let asked = Asked { selectors: &[], span: ALL, budget: &few };
    let values = |label: &str| lists::label_values(&world.store, label, &asked).unwrap();
    let bounds: BTreeSet<String> =
        onlooker_series::exposition::bounds(SHAPE, 0.001).into_iter().map(|(bound, _)| bound).collect();
    assert!(bounds.len() > 2);
    assert_eq!(values("le"), bounds);
    assert_eq!(values("value").iter().collect::<Vec<_>>(), ["6.1 \"odd\""]);
}

/// Both look at the deadline and at whoever cancels, and count what they hold.
#[test]
fn finding_series_ends_when_the_query_does() {
    let mut world = World::new();
    every_form(&mut world);
    let source = StoreSource::new(&world.store);
    let matchers = Query::selector("{instance=\"a\"}").unwrap();
    let selectors = [matchers.clone()];
    let select = |budget: &Budget| source.select(&matchers, ALL, budget).map_err(QueryError::from);
    let cancelled = Cancel::default();
    cancelled.cancel();
    let over = |budget: &Budget| {
        // A query looks after so much work.
        let mut tries = (0..10_000).map(|_| {
            let asked = Asked { selectors: &selectors, span: ALL, budget };
            select(budget).map(drop).and_then(|()| lists::series(&world.store, &asked).map(drop))
        });
        tries.find_map(Result::err)
    };
    let limits = Limits::default();
    assert!(matches!(over(&Budget::new(limits, cancelled.clone(), None)), Some(QueryError::Cancelled)));
    let now = std::time::Instant::now();
    assert!(matches!(over(&Budget::new(limits, Cancel::default(), Some(now))), Some(QueryError::Time)));
    for (selectors, label) in [(&[][..], "le"), (&[], "value"), (&[], "__name__"), (&selectors[..], "instance")] {
        let budget = Budget::new(limits, cancelled.clone(), None);
        let asked = Asked { selectors, span: ALL, budget: &budget };
        let mut tries = (0..10_000).map(|_| lists::label_values(&world.store, label, &asked));
        assert!(matches!(tries.find_map(Result::err), Some(QueryError::Cancelled)), "{label}");
    }
    let held = Budget::new(Limits { bytes: 2_000, ..limits }, Cancel::default(), None);
    assert!(matches!(select(&held), Err(QueryError::Bytes { .. })));
    // What was found before is given back: one alone takes more than a tenth of that.
    let held = Budget::new(Limits { bytes: 40_000, ..limits }, Cancel::default(), None);
    assert!((0..100).all(|_| select(&held).is_ok()));
    let tenth = Budget::new(Limits { bytes: 4_000, ..limits }, Cancel::default(), None);
    assert!(select(&tenth).is_err());
}

/// Lines of a table are series of their own.
#[test]
fn lines_of_tables_are_found_by_their_labels() {
    let mut world = World::new();
    let one = description("a", vec![vec![gauge("disk_busy")]]);
    let parts = one.layout.parts().iter().map(|placed| (placed.id, placed.part.clone())).collect();
    let track =
        world.track(&onlooker_framestore::client::Description { layout: Layout::new(parts, true).into(), ..one });
    for (at, disk) in (1u64..).zip(["sda", "sdb", "sdc"]) {
        let line = world.appender.line(track, &[pair("device", disk)], &[], T0).unwrap();
        world.appender.append(track, line, T0 + at * S, &[(at as f64).to_bits()]).unwrap();
    }
    assert_eq!(
        world.query("disk_busy{device=\"sdb\"}", 4 * S),
        [r#"{__name__="disk_busy", device="sdb", instance="a"} 2"#]
    );
    assert_eq!(world.query("sum(disk_busy{device=~\"sd[bc]\"})", 4 * S), ["{} 5"]);
    assert_eq!(world.query("count(disk_busy)", 2 * S), ["{} 2"]);
}
