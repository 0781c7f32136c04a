// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::exposition::labels_text;
use onlooker_region::histogram::Shape;

const SHAPE: Shape = Shape { grouping_power: 0, max_power: 3 };
const VALUES: [&str; 4] = ["x", "a\"b\\\n", "ä", "h"];

fn series(name: &str, form: Form, scale: f64, labels: &[(&str, &str)], at: usize) -> Series {
    let labels: Vec<(String, String)> = labels.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let metric = if matches!(form, Form::Histogram(_)) { Metric::Histogram } else { Metric::Gauge };
    Series { labels: labels.into(), help: "Help.".into(), scale, at, ..Series::new(name, metric, form) }
}

/// All lines of an entity, by the template.
fn lines(series: &[Series], host: &[(&str, &str)], hidden: Option<&[bool]>, row: &[u64]) -> Vec<String> {
    let (template, entity) = Template::new(series, host);
    let host = LabelSet::new(host.iter().copied());
    let mut out = String::new();
    for family in template.families() {
        template.write(family, hidden, (host.view(), entity.view()), row, &mut out);
    }
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The same, one series after the other.
fn expected(series: &[Series], hidden: Option<&[bool]>, row: &[u64]) -> Vec<String> {
    let mut out = String::new();
    for (_, one) in series.iter().enumerate().filter(|(at, _)| hidden.is_none_or(|hidden| !hidden[*at])) {
        if let Some(value) = one.value(row) {
            samples(&mut out, &one.name, &labels_text(one.labels.iter()), &value, one.scale);
        }
    }
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Whatever labels an entity and its host have, and wherever the row ends: the lines are those that each series has by
/// itself.
#[test]
fn a_template_writes_what_each_series_is() {
    type Spec = (u8, u16, u8, u64);
    bolero::check!().with_type::<(Vec<Spec>, u8, u8, Option<u8>)>().for_each(|(specs, host, hides, cut)| {
        let pick = |bits: u16, at: usize| VALUES[usize::from(bits >> (2 * at) & 3)];
        let names = ["a", "b", "c", "d", "e"];
        // The host has some names, and its labels are those of all its series.
        let host: Vec<(&str, &str)> =
            (0..names.len()).filter(|at| host >> at & 1 == 1).map(|at| (names[at], "h")).collect();
        let mut at = 0;
        let mut all = Vec::new();
        for (kind, labels, has, _) in specs.iter().take(8) {
            let own = (0..names.len()).filter(|at| has >> at & 1 == 1).map(|at| (names[at], pick(*labels, at)));
            let mut labels: Vec<(&str, &str)> = own.filter(|(name, _)| host.iter().all(|(h, _)| h != name)).collect();
            labels.extend(&host);
            let form = [Form::Unsigned, Form::Signed, Form::Float, Form::Text, Form::Histogram(SHAPE)];
            let form = form[usize::from(kind % 5)];
            let scale = [1.0, 1e-9, 2.0][usize::from(kind / 5 % 3)];
            all.push(series(["m", "n_total"][usize::from(kind / 16 % 2)], form, scale, &labels, at));
            at += form.words();
        }
        let mut row: Vec<u64> = specs.iter().map(|(.., word)| *word).cycle().take(at).collect();
        if let (Some(cut), true) = (cut, all.len() > 1) {
            row.truncate(at.saturating_sub(usize::from(cut % 2)));
        }
        let hidden: Vec<bool> = (0..all.len()).map(|at| hides >> at & 1 == 1).collect();
        for hidden in [None, Some(&*hidden)] {
            assert_eq!(lines(&all, &host, hidden, &row), expected(&all, hidden, &row));
        }
    });
}

#[test]
fn hosts_and_rows_of_a_kind_share_a_template() {
    let of = |host: &str, pid: &str, mode: &str| {
        let labels = [("cpu", "0"), ("dc", "a"), ("instance", host), ("mode", mode), ("pid", pid), ("program", "shop")];
        let other = [labels[0], labels[1], labels[2], ("mode", "user"), labels[4], labels[5]];
        let one = |labels: &[(&str, &str)], at| series("x_total", Form::Unsigned, 1.0, labels, at);
        let (template, entity) = Template::new(&[one(&labels, 0), one(&other, 1)], &[("dc", "a"), ("instance", host)]);
        (template.shared(), entity)
    };
    let (first, first_entity) = of("one", "1", "idle");
    let (second, second_entity) = of("two", "22", "idle");
    assert!(Arc::ptr_eq(&first, &second), "but for what is the host's and the entity's they are the same");
    assert!(!Arc::ptr_eq(&first, &of("one", "1", "nice").0));
    let mut sets = LabelSets::default();
    [&first_entity, &second_entity, &LabelSet::default(), &first_entity].into_iter().for_each(|set| sets.push(set));
    let host = LabelSet::new([("dc", "a"), ("instance", "two")]);
    let (mut out, family) = (String::new(), &first.families()[0]);
    first.write(family, Some(&[false, true]), (host.view(), sets.get(1)), &[7, 8], &mut out);
    let expected = r#"x_total{cpu="0",dc="a",instance="two",mode="idle",pid="22",program="shop"} 7"#;
    assert_eq!(out, format!("{expected}\n"));
    assert_eq!((first.visible(family, Some(&[false, true])), first.visible(family, None), first.words()), (1, 2, 2));
    out.clear();
    first.write(family, None, (host.view(), sets.get(3)), &[7], &mut out);
    assert_eq!(out.replace("pid=\"1\"", "pid=\"22\""), format!("{expected}\n"), "there is no word for the other one");
}

#[test]
fn templates_go_with_their_last_holder() {
    let of = |name: &str| Template::new(&[series(name, Form::Unsigned, 1.0, &[], 0)], &[]).0;
    let mut pool = Pool::default();
    let kept = pool.take(of("kept"));
    for number in 0..3 * SWEEP_TEMPLATES {
        drop(pool.take(of(&format!("m{number}"))));
    }
    assert!(pool.templates.len() <= SWEEP_TEMPLATES + 1, "{}", pool.templates.len());
    assert!(Arc::ptr_eq(&kept, &pool.take(of("kept"))));
}
