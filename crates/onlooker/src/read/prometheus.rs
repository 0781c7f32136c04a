// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format 0.0.4: HELP, TYPE, samples; all of one metric together, each series once.

use super::directory::type_name;
use super::samples::{Collected, Row};
use onlooker_region::columns::Value;
use onlooker_region::schema::Metric;
use onlooker_series::exposition::{Format, labels_text, samples};
use onlooker_series::families::{Claims, Names};
use onlooker_series::text::Text;
use std::collections::BTreeMap;
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
        let mut text = String::new();
        Format::Text.head(&mut text, name, *metric, help);
        for row in rows {
            let infos = match &row.value {
                Value::Text(text) if !text.is_empty() => Some(("value", text.as_str())),
                _ => None,
            };
            let own = row.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            samples(&mut text, name, &labels_text(own.chain(infos)), &row.value, row.scale);
        }
        out.write_all(text.as_bytes())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{fixture, samples};
    use onlooker_series::derive::Derived;

    fn exposition(session: &onlooker_reader::Session, patterns: &[String]) -> (String, Vec<String>) {
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
}
