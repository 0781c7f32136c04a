// SPDX-License-Identifier: Apache-2.0
//! Rules in TOML, and what they say of rows.

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use crate::config::Checks;
use crate::{Checked, Now, Reason, Rules};

const S: u64 = 1_000_000_000;

fn rules(text: &str) -> Rules {
    Rules::new(&toml::from_str::<Checks>(text).unwrap()).unwrap_or_else(|(key, message)| panic!("{key}: {message}"))
}

/// One rule without defaults, for a gauge and a counter.
fn checked(rule: &str) -> Checked {
    let text = format!("shipped = false\n[[rules]]\nmatch = '{{__name__=~\"one|two_total\"}}'\n{rule}");
    *rules(&text).of(&series()).unwrap()
}

fn series() -> [Series; 2] {
    let two = Series { at: 1, ..Series::new("two_total", Metric::Counter, Form::Unsigned) };
    [Series::new("one", Metric::Gauge, Form::Float), two]
}

/// What stands in the row after each value of the gauge, one a second, and why it is not the value.
fn gauge(checked: &mut Checked, values: &[f64]) -> Vec<(f64, Option<Reason>)> {
    let (mut row, mut all) = (None, Vec::new());
    for (at, value) in (1..).zip(values) {
        let (mut words, mut why) = ([value.to_bits(), at], None);
        let new = words;
        checked.judge(row.as_ref().map(|row: &[u64; 2]| &row[..]), &new, at * S, |failure, (place, word)| {
            if failure.series == 0 {
                assert!(failure.value.to_bits() == value.to_bits() && failure.time_ns == at * S);
                why = Some(failure.reason);
            }
            words[place] = word;
        });
        all.push((f64::from_bits(words[0]), why));
        row = Some(words);
    }
    all
}

/// The same of the counter.
fn counter(checked: &mut Checked, values: &[u64]) -> Vec<(u64, Option<Reason>)> {
    let (mut row, mut all) = (None, Vec::new());
    for (at, value) in (1..).zip(values) {
        let (mut words, mut why) = ([at, *value], None);
        let new = words;
        checked.judge(row.as_ref().map(|row: &[u64; 2]| &row[..]), &new, at * S, |failure, (place, word)| {
            if failure.series == 1 {
                why = Some(failure.reason);
            }
            words[place] = word;
        });
        all.push((words[1], why));
        row = Some(words);
    }
    all
}

fn good<T: Copy>(values: &[T]) -> Vec<(T, Option<Reason>)> {
    values.iter().map(|value| (*value, None)).collect()
}

#[test]
fn what_is_out_of_range_gives_way_to_the_last_valid_value_or_the_nearest_one() {
    let mut checked = checked("range = [0, 100]");
    let out = Some(Reason::Range);
    let expected = [(0.0, out), (50.0, None), (50.0, out), (50.0, out), (100.0, None), (100.0, out)];
    assert_eq!(gauge(&mut checked, &[-1.0, 50.0, 101.0, f64::NAN, 100.0, f64::INFINITY]), expected);
}

#[test]
fn a_counter_that_falls_is_marked_once_and_begins_again() {
    let mut checked = checked("monotone = true");
    let less = Some(Reason::Monotone);
    let expected = [(5, None), (9, None), (9, less), (1, None), (4, None), (4, less), (6, None)];
    assert_eq!(counter(&mut checked, &[5, 9, 0, 1, 4, 3, 6]), expected);
}

#[test]
fn a_step_is_believed_once_there_was_time_enough_for_it() {
    let mut checked = checked("max_change_per_s = 10\nslack = 1");
    let fast = Some(Reason::Rate);
    let expected = [(0.0, None), (11.0, None), (11.0, fast), (11.0, fast), (41.0, None), (41.0, fast), (30.0, None)];
    assert_eq!(gauge(&mut checked, &[0.0, 11.0, 41.0, 41.0, 41.0, 20.0, 30.0]), expected);
}

#[test]
fn what_stands_still_is_marked_until_it_moves() {
    let mut checked = checked("still = '3s'");
    let still = Some(Reason::Still);
    let expected = [(7.0, None), (7.0, None), (7.0, None), (7.0, still), (7.0, still), (8.0, None), (8.0, None)];
    assert_eq!(gauge(&mut checked, &[7.0, 7.0, 7.0, 7.0, 7.0, 8.0, 8.0]), expected);
}

#[test]
fn outliers_are_far_from_the_median_until_they_are_usual() {
    let rule = "window = 5\noutlier = 4";
    let usual = [10.0, 11.0, 10.0, 12.0, 11.0];
    let far = Some(Reason::Outlier);
    let (mut values, mut expected) = (usual.to_vec(), good(&usual));
    values.extend([50.0, 11.5, 50.0, 50.0]);
    // Of the last five three are as large before the fourth.
    expected.extend([(11.0, far), (11.5, None), (11.5, far), (11.5, far)]);
    assert_eq!(gauge(&mut checked(rule), &values), expected);
    // Where all are the same nothing is far, but for a slack.
    let flat = [3.0, 3.0, 3.0, 3.0, 9.0];
    assert_eq!(gauge(&mut checked(rule), &flat), good(&flat));
    let slack = format!("{rule}\noutlier_slack = 2");
    assert_eq!(gauge(&mut checked(&slack), &flat)[4], (3.0, far));
    // Of a counter it is the increase since the last valid sample.
    let mut checked = checked(rule);
    let expected = [(0, None), (10, None), (21, None), (31, None), (43, None), (43, far), (63, None)];
    assert_eq!(counter(&mut checked, &[0, 10, 21, 31, 43, 1043, 63]), expected);
}

#[test]
fn what_does_not_come_is_told_once() {
    let mut checked = checked("absent_intervals = 3");
    let mut told = Vec::new();
    let mut miss = |checked: &mut Checked, ns: u64, is_gone: bool| {
        let now = Now { utc_ns: ns, interval_ns: S };
        let before = told.len();
        checked.miss(&[1f64.to_bits(), 2], S, now, is_gone, |failure| told.push(failure));
        let new = told[before..].iter();
        new.map(|failure| (failure.series, failure.reason, failure.value, failure.time_ns)).collect::<Vec<_>>()
    };
    let all = |ns| vec![(0, Reason::Absent, 1.0, ns), (1, Reason::Absent, 2.0, ns)];
    assert_eq!(miss(&mut checked, 4 * S, false), []);
    assert_eq!(miss(&mut checked, 4 * S + 1, false), all(4 * S + 1));
    assert_eq!(miss(&mut checked, 9 * S, false), []);
    assert_eq!(miss(&mut checked, 9 * S, true), []);
    checked.judge(None, &[0, 0], S, |_, _| panic!("nothing is wrong"));
    assert_eq!(miss(&mut checked, 2 * S, true), all(2 * S), "who has gone does not come");
}

#[test]
fn averages_and_quantiles_are_of_valid_samples() {
    let mut checked = checked("range = [0, 10]\nema = '1s'\nwindow = 3\nquantiles = [0, 0.5, 1]");
    gauge(&mut checked, &[4.0, 99.0, 6.0]);
    assert_eq!(checked.moving().collect::<Vec<_>>(), [(0, true, &[0.0, 0.5, 1.0][..]), (1, true, &[0.0, 0.5, 1.0])]);
    let outputs: Vec<Vec<f64>> = checked.outputs().map(Iterator::collect).collect();
    let average = 6.0 + (4.0 - 6.0) * (-2f64).exp();
    assert_eq!(outputs[0], [average, 4.0, 5.0, 6.0]);
}

#[test]
fn the_first_rule_that_takes_a_series_is_its_rule() {
    let rules = rules("shipped = true\n[[rules]]\nmatch = 'node_load1'\nrange = [0, 1]");
    let of = |name: &str, labels: &[(&str, &str)], metric, form| {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let series = Series { labels: labels.collect::<Vec<_>>().into(), ..Series::new(name, metric, form) };
        rules.of(&[series])
    };
    let why = |checked: Option<Box<Checked>>, before: u64, word: u64| {
        let mut why = None;
        checked?.judge(Some(&[before]), &[word], S, |failure, _| why = Some(failure.reason));
        why
    };
    let load = of("node_load1", &[], Metric::Gauge, Form::Float);
    assert_eq!(why(load, 0, 2f64.to_bits()), Some(Reason::Range));
    let load = of("node_load5", &[], Metric::Gauge, Form::Float);
    assert_eq!(why(load.clone(), 0, 2f64.to_bits()), None);
    assert_eq!(why(load, 0, (-2f64).to_bits()), Some(Reason::Range));
    let cpu = |mode| of("node_cpu_seconds_total", &[("mode", mode)], Metric::Counter, Form::Unsigned);
    assert_eq!(why(cpu("user"), 2, 1), Some(Reason::Monotone));
    assert!(cpu("idle").is_none() && of("shop_total", &[], Metric::Counter, Form::Unsigned).is_none());
    assert!(of("node_load1", &[], Metric::Gauge, Form::Text).is_none());
}

#[test]
fn a_mistake_names_its_rule_and_key() {
    for (text, expected) in [
        ("[[rules]]\nmatch = 'a['", "[[checks.rules]] number 1, match"),
        ("[[rules]]\nmatch = 'a'\n[[rules]]\nmatch = 'b'\nrange = [2, 1]", "[[checks.rules]] number 2, range"),
        ("[[rules]]\nmatch = 'a'\nwindow = 2", "[[checks.rules]] number 1, window"),
        ("[[rules]]\nmatch = 'a'\nquantiles = [1.5]", "[[checks.rules]] number 1, quantiles"),
        ("[[rules]]\nmatch = 'a'\nabsent_intervals = 1", "[[checks.rules]] number 1, absent_intervals"),
        ("[[rules]]\nmatch = 'a'\nslack = -1", "[[checks.rules]] number 1, slack"),
        ("[[rules]]\nmatch = 'a'\nstill = '0s'", "[[checks.rules]] number 1, still"),
    ] {
        let (key, message) = Rules::new(&toml::from_str::<Checks>(text).unwrap()).err().unwrap();
        assert_eq!(key, expected, "{message}");
    }
}
