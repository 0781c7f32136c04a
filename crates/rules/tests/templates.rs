// SPDX-License-Identifier: Apache-2.0
//! Templates against Prometheus: `templates.json` has texts, and what Prometheus 3.16 makes of each.

use std::collections::BTreeMap;

use onlooker_rules::template::{Ask, Data, Sample, Template};
use serde_json::Value;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The series that the fixture was made with.
struct Series;

impl Ask for Series {
    fn ask(&mut self, query: &str) -> Result<Vec<Sample>, String> {
        let up = |instance, job, value| Sample {
            labels: labels(&[("__name__", "up"), ("instance", instance), ("job", job)]),
            value,
        };
        match query {
            "up" => Ok(vec![up("c:1", "b", 1.0), up("a:1", "b", 0.0), up("b:1", "a", 2.5)]),
            "none" => Ok(Vec::new()),
            "fail" => Err("no such thing".to_owned()),
            _ => Ok(vec![Sample { labels: labels(&[("__value__", "x")]), value: 12.5 }]),
        }
    }
}

#[test]
fn templates_give_what_they_give_in_prometheus() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("templates.json")).unwrap();
    assert!(cases.len() > 1_000);
    let series = labels(&[
        ("instance", "web-1.example.com:9100"),
        ("job", "node"),
        ("mountpoint", "/var/lib"),
        ("device", "sda1"),
        ("empty", ""),
        ("quote", "a\"b<c>&'d'\n"),
    ]);
    let external = labels(&[("cluster", "eu"), ("zone", "z1")]);
    let mut wrong = String::new();
    for case in &cases {
        let field = |name: &str| case.get(name).and_then(Value::as_str);
        let text = field("text").unwrap();
        let data = Data {
            labels: &series,
            external_labels: &external,
            external_url: "https://onlooker.example:7180/alerts",
            value: field("value").unwrap().parse().unwrap(),
            time_ns: 1_353_755_652_123_000_000,
        };
        let (out, why) = match Template::parse(text) {
            Err(error) => (Err("parse"), error.text),
            Ok(template) => match template.expand(&data, &mut Series) {
                Err(error) => (Err("expand"), error.text),
                Ok(out) => (Ok(out), String::new()),
            },
        };
        let wanted = field("out").map(str::to_owned).ok_or_else(|| field("fails").unwrap());
        if out != wanted {
            wrong.push_str(&format!("{text}  value {}\n  wanted {wanted:?}\n  got    {out:?} {why}\n", data.value));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
