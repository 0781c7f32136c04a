// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format 0.0.4: HELP, TYPE, samples; all of one metric together, each series once.

use super::directory::type_name;
use super::samples::{Collected, Row};
use crate::number::{decimal, exact};
use onlooker_controller::families::{Claims, Names};
use onlooker_controller::text::Text;
use onlooker_region::columns::Value;
use onlooker_region::schema::Metric;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

/// A metric and its rows.
struct Family<'a> {
    metric: Metric,
    help: Text,
    rows: Vec<&'a Row<'a>>,
}

/// Writes the samples and returns notes about what the format cannot say, which is left out.
pub(super) fn write(out: &mut impl Write, collected: &Collected) -> io::Result<Vec<String>> {
    let mut families = families(collected);
    let mut left_out: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &collected.rows {
        match families.get_mut(&*row.name).filter(|family| family.metric == row.metric) {
            Some(family) => family.rows.push(row),
            None => *left_out.entry(&row.name).or_default() += 1,
        }
    }
    for (name, Family { metric, help, rows }) in &families {
        if !help.is_empty() {
            writeln!(out, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"))?;
        }
        // Version 0.0.4 has no type for infos; they are gauges of 1.
        writeln!(out, "# TYPE {name} {}", if *metric == Metric::Info { "gauge" } else { type_name(*metric) })?;
        for row in rows {
            let mut labels = row.labels.clone();
            if let Value::Text(text) = &row.value
                && !text.is_empty()
            {
                labels.push(("value".into(), text.clone()));
            }
            sample(out, name, row, &labels, &series(&labels, None))?;
        }
    }
    let notes = left_out.iter().map(|(name, count)| match families.get(*name) {
        Some(Family { metric, .. }) => {
            format!("{count} samples of {name} are left out: other schemas say it is no {}", type_name(*metric))
        }
        None => format!("{count} samples of {name} are left out: they would be called as another metric's samples"),
    });
    let doubles = collected
        .doubles
        .iter()
        .map(|(name, count)| format!("{count} samples of {name} are left out: their labels are not unique"));
    Ok(notes.chain(doubles).collect())
}

/// The metrics that have their names: those of the agent first, then those of the region that was made first.
fn families<'a>(collected: &Collected) -> BTreeMap<String, Family<'a>> {
    let mut claims = Claims::default();
    let same = |a: &Row, b: &Row| a.name == b.name && a.metric == b.metric && a.entry.identity == b.entry.identity;
    for rows in collected.rows.chunk_by(same) {
        let row = &rows[0];
        let said = (&Text::from(&*row.name), row.metric, &Text::from(&*row.help));
        claims.add(said, 0, row.is_vouched_for(), row.entry.created_ns.into());
    }
    let mut names = Names::default();
    let claims = claims.in_order().into_iter().filter(|(name, metric, _)| names.take(name, name, *metric));
    claims.map(|(name, metric, help)| (name.to_string(), Family { metric, help, rows: Vec::new() })).collect()
}

fn sample(
    out: &mut impl Write,
    name: &str,
    row: &Row,
    labels: &[(String, String)],
    series_text: &str,
) -> io::Result<()> {
    let scale = row.scale;
    let Value::Histogram { buckets, shape, sum } = &row.value else {
        let value = if matches!(row.value, Value::Text(_)) { "1".to_owned() } else { exact(&row.value, scale) };
        return writeln!(out, "{name}{series_text} {value}");
    };
    for bucket in shape.cumulative(buckets, scale) {
        writeln!(out, "{name}_bucket{} {}", series(labels, Some(&decimal(bucket.le))), bucket.count)?;
    }
    let count = buckets.iter().fold(0u64, |sum, bucket| sum.wrapping_add(*bucket));
    writeln!(out, "{name}_bucket{} {count}", series(labels, Some("+Inf")))?;
    writeln!(out, "{name}_sum{series_text} {}", decimal(Value::U64(*sum).scaled(scale)))?;
    writeln!(out, "{name}_count{series_text} {count}")
}

/// `{name="value",...}`, or nothing without labels.
fn series(labels: &[(String, String)], le: Option<&str>) -> String {
    let mut text = String::new();
    for (name, value) in
        labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).chain(le.map(|le| ("le", le)))
    {
        text.push(if text.is_empty() { '{' } else { ',' });
        let _ = write!(text, "{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                other => text.push(other),
            }
        }
        text.push('"');
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{fixture, samples};
    use onlooker_controller::derive::Derived;

    fn exposition(session: &onlooker_transport::reader::Session, patterns: &[String]) -> (String, Vec<String>) {
        let mut out = Vec::new();
        let notes = write(&mut out, &samples::collect(session, patterns, &mut Derived::default())).unwrap();
        (String::from_utf8(out).unwrap(), notes)
    }

    #[test]
    fn every_type_has_its_form() {
        let session = fixture::session();
        let (text, notes) = exposition(&session, &[]);
        let expected = r#"# HELP queue_depth Waiting\\now.
# TYPE queue_depth gauge
queue_depth{device="eth0",exported_pid="3",pid="4321",program="my shop"} -5
# HELP shop_latency_seconds Time to serve.
# TYPE shop_latency_seconds histogram
shop_latency_seconds_bucket{pid="4321",program="my shop",le="0.0"} 2
shop_latency_seconds_bucket{pid="4321",program="my shop",le="1e-9"} 3
shop_latency_seconds_bucket{pid="4321",program="my shop",le="3e-9"} 3
shop_latency_seconds_bucket{pid="4321",program="my shop",le="7e-9"} 3
shop_latency_seconds_bucket{pid="4321",program="my shop",le="+Inf"} 7
shop_latency_seconds_sum{pid="4321",program="my shop"} 1e-7
shop_latency_seconds_count{pid="4321",program="my shop"} 7
# HELP shop_requests_total Requests served.
# TYPE shop_requests_total counter
shop_requests_total{cpu="0",pid="4321",program="my shop"} 18446744073709551615
shop_requests_total{cpu="1",pid="4321",program="my shop"} 7
# TYPE shop_version gauge
shop_version{pid="4321",program="my shop",value="v1 \"x\"\\\n"} 1
"#;
        assert_eq!((text.as_str(), notes), (expected, Vec::new()));
    }

    #[test]
    fn series_are_given_once_and_types_do_not_mix() {
        let mut host = fixture::host();
        for id in [8, 900] {
            let twice = r#"{"name":"t","groups":[{"kind":"plain","blocks":1,"fields":[{"name":"x","metric":"gauge","type":"u64"}]}]}"#;
            host.region(id, "t", &[], twice);
        }
        let other = r#"{"name":"u","groups":[{"kind":"plain","blocks":1,"fields":[
            {"name":"x","metric":"counter","type":"u64"},
            {"name":"y","metric":"histogram","type":"u64","slot":8,"histogram":{"grouping_power":0,"max_power":2}}]}]}"#;
        host.region(901, "u", &[("a", "b")], other);
        let hidden = r#"{"name":"v","groups":[{"kind":"plain","blocks":1,"fields":[{"name":"y_sum","metric":"gauge","type":"u64"}]}]}"#;
        host.region(11, "v", &[], hidden);
        let session = fixture::read(&host);
        let (text, notes) = exposition(&session, &["x".into(), "y*".into()]);
        // What a program says goes, whatever its place in the directory.
        assert_eq!(text, "# TYPE x gauge\nx 0\n# TYPE y_sum gauge\ny_sum 0\n");
        assert_eq!(notes.len(), 3, "{notes:?}");
    }

    #[test]
    fn a_regions_label_gives_way_to_what_the_format_needs() {
        let mut host = fixture::host();
        let info = r#"{"name":"i","groups":[{"kind":"plain","blocks":1,"fields":[
            {"name":"i","metric":"info","type":"text","bytes":8}]}]}"#;
        host.region(12, "i", &[("value", "mine"), ("le", "mine")], info);
        let (text, _) = exposition(&fixture::read(&host), &["i".into()]);
        assert_eq!(text, "# TYPE i gauge\ni{exported_value=\"mine\",le=\"mine\"} 1\n");
    }

    #[test]
    fn any_label_value_stays_within_its_quotes() {
        bolero::check!().with_type::<String>().for_each(|value| {
            let text = series(&[("a".into(), value.clone())], None);
            let inner = text.strip_prefix("{a=\"").and_then(|rest| rest.strip_suffix("\"}")).unwrap();
            let (mut back, mut chars) = (String::new(), inner.chars());
            while let Some(c) = chars.next() {
                assert!(c != '"' && c != '\n');
                back.push(match c {
                    '\\' => match chars.next().unwrap() {
                        'n' => '\n',
                        escaped => escaped,
                    },
                    other => other,
                });
            }
            assert_eq!(back, *value);
        });
    }

    #[test]
    fn histograms_follow_the_formats_vectors() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/vectors.json");
        let vectors: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let cases = vectors["histogram_prometheus"].as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let power = |key: &str| u8::try_from(case[key].as_u64().unwrap()).unwrap();
            let shape = onlooker_region::histogram::Shape { grouping_power: power("g"), max_power: power("n") };
            let mut buckets = vec![0u64; shape.buckets()];
            for (index, count) in case["buckets"].as_object().unwrap() {
                buckets[index.parse::<usize>().unwrap()] = count.as_str().unwrap().parse().unwrap();
            }
            let scale: f64 = case["scale"].as_str().unwrap().parse().unwrap();
            let mut got: Vec<_> =
                shape.cumulative(&buckets, scale).iter().map(|c| (decimal(c.le), c.count.to_string())).collect();
            got.push(("+Inf".into(), buckets.iter().sum::<u64>().to_string()));
            let expected: Vec<(String, String)> = serde_json::from_value(case["cumulative"].clone()).unwrap();
            assert_eq!(got, expected, "{}", case["what"]);
            let sum: u64 = case["sum"].as_str().unwrap().parse().unwrap();
            assert_eq!(decimal(Value::U64(sum).scaled(scale)), case["scaled_sum"], "{}", case["what"]);
        }
    }
}
