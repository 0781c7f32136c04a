// SPDX-License-Identifier: Apache-2.0
//! `onlooker doctor --metrics`: each metric of a host with how it gets there, its last self-check, what it costs that host, and its age.

use std::collections::BTreeMap;
use std::io::{self, Write};

use onlooker_metrics::groups::{Group, is_held_to_bounds};
use onlooker_metrics::user::REGION_PREFIX;
use onlooker_reader::Session;
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_region::columns::Value;
use serde::Serialize;

use crate::number::span;
use crate::output::shown;
use crate::read::directory::acquisition_name;

/// What a computed block may cost (SPECIFICATION.md, 20). Benches hold it; no agent measures its own, so none tells.
const BLOCK_BUDGET: &str = "budget of a block: 5 us of softirq; not measured";
/// Of the operator's own collectors the loader measures each block, and refuses those over its `[kernel] collector_budget`, which it does not tell.
const COLLECTOR_BUDGET: &str = "a block within the host's collector_budget, as measured when it was installed";

/// A metric of a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    metric: String,
    region: String,
    /// How values get there: `direct`, `computed`, `published`, `sampled`.
    mechanism: &'static str,
    /// Number of its series.
    series: u64,
    /// What is known of its being right.
    self_check: String,
    /// What it costs the host.
    cost: String,
    /// Age of its oldest value; none where it is that of the READ.
    age_ns: Option<i64>,
    /// How finely it moves.
    resolution_ns: u64,
}

impl Row {
    /// Of a metric that could be computed on this machine, or why not.
    pub(super) fn surveyed(
        metric: &str,
        region: String,
        is_served: bool,
        self_check: String,
        cost_ns: Option<u64>,
    ) -> Self {
        let mechanism = if is_served { "computed" } else { "sampled" };
        let cost = cost_ns.map_or_else(String::new, |ns| format!("{ns} ns of softirq a block, measured now"));
        Self { metric: metric.into(), region, mechanism, series: 0, self_check, cost, age_ns: None, resolution_ns: 0 }
    }
}

/// The metrics that a session has read.
pub(super) fn rows(told: &Bootstrapped, session: &Session) -> Vec<Row> {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    let mut agent = (0.0, 0.0);
    let mut checked = None;
    for frame in session.frames() {
        let region = shown(&frame.entry().name).to_string();
        let answered_ns = frame.times_ns().1;
        frame.decode(|sample| {
            match sample.field.name.as_str() {
                "onlooker_agent_samples_total" => agent.0 = sample.scaled(),
                "onlooker_agent_sample_seconds_total" => agent.1 = sample.scaled(),
                "onlooker_agent_collectors_checked_boottime_seconds" => {
                    if let Value::U64(time_ns @ 1..) = sample.value {
                        checked = Some(told.relation.age_ns(time_ns, answered_ns));
                    }
                }
                _ => {}
            }
            let age_ns = sample.time_ns.map(|time_ns| told.relation.age_ns(time_ns, answered_ns));
            let age_ns = age_ns.map(|ns| i64::try_from(ns).unwrap_or(i64::MAX));
            let key = (shown(&sample.field.name).to_string(), region.clone());
            let row = rows.entry(key).or_insert_with_key(|(metric, region)| Row {
                metric: metric.clone(),
                region: region.clone(),
                mechanism: acquisition_name(sample.group.acquisition),
                series: 0,
                self_check: String::new(),
                cost: String::new(),
                age_ns: None,
                resolution_ns: sample.field.resolution_ns,
            });
            row.series += 1;
            row.age_ns = row.age_ns.max(age_ns);
        });
    }
    let each_ns = (agent.0 > 0.0).then(|| agent.1 / agent.0 * 1e9);
    let mut rows: Vec<Row> = rows.into_values().collect();
    for row in &mut rows {
        row.cost = cost(&row.region, row.mechanism, each_ns);
        row.self_check = self_check(&row.metric, &row.region, row.mechanism, checked);
    }
    rows
}

/// `checked_ns`: how long ago the agent has compared what is computed with what else tells it.
fn self_check(metric: &str, region: &str, mechanism: &str, checked_ns: Option<i128>) -> String {
    let when = checked_ns.map_or_else(|| "when it was installed".to_owned(), |ns| format!("{} ago", span(ns)));
    match mechanism {
        // Nobody but the operator knows what it should be.
        "computed" if region.starts_with(REGION_PREFIX) => "a collector of the operator's own: not compared".into(),
        "computed" | "published" if is_held_to_bounds(metric) => {
            format!("bounds checked {when}: procfs has none of it")
        }
        "computed" | "published" if region == Group::RESPONDER.region() => {
            format!("equal to what system calls read {when}")
        }
        // What differs is left out by the loader (docs/kernel-metrics.md).
        "computed" | "published" => format!("equal to procfs {when}"),
        "sampled" => "is what the system says".into(),
        _ => "the program's own".into(),
    }
}

fn cost(region: &str, mechanism: &str, each_ns: Option<f64>) -> String {
    match mechanism {
        "computed" if region.starts_with(REGION_PREFIX) => COLLECTOR_BUDGET.into(),
        "computed" => BLOCK_BUDGET.into(),
        "published" => "a timer's run an interval".into(),
        "sampled" => each_ns.map_or_else(String::new, |ns| {
            #[allow(clippy::cast_possible_truncation)] // a mean of times
            let ns = ns as i128;
            format!("{} of the agent's time a sample of all", span(ns))
        }),
        _ => "an atomic store or add".into(),
    }
}

/// The table.
pub(super) fn write(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    let age = |row: &Row| row.age_ns.map_or_else(|| "at the READ".to_owned(), |ns| span(ns.into()).to_string());
    let mut lines = vec![["METRIC", "MECHANISM", "SERIES", "AGE", "REGION", "SELF-CHECK", "COST"].map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let series = if row.series == 0 { "-".to_owned() } else { row.series.to_string() };
        [
            shown(&row.metric).to_string(),
            row.mechanism.to_owned(),
            series,
            age(row),
            shown(&row.region).to_string(),
            row.self_check.clone(),
            row.cost.clone(),
        ]
    }));
    let widths: [usize; 7] =
        std::array::from_fn(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0));
    for line in &lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_to_be_compared_that_is_not() {
        let of = |metric, region| self_check(metric, region, "computed", None);
        assert_eq!(of("node_cpu_seconds_total", "node_cpu"), "equal to procfs when it was installed");
        let published = self_check("node_load1", "node_load", "published", Some(2_000_000_000));
        assert!(published.starts_with("equal to procfs 2.0 s"), "{published}");
        for metric in ["onlooker_softirq_pending", "onlooker_pressure_in_progress"] {
            assert_eq!(of(metric, "node_stat"), "bounds checked when it was installed: procfs has none of it");
        }
        assert!(!of("onlooker_responder_packets_total", "onlooker_responder").contains("procfs"));
        assert!(self_check("mine", "user_mine", "computed", Some(1)).ends_with("not compared"));
        assert_eq!(self_check("mine", "user_mine", "direct", None), "the program's own");
    }

    #[test]
    fn a_table_has_a_line_a_metric() {
        let mut sampled = Row::surveyed("node_load1", "node_load".into(), false, "differs".into(), None);
        (sampled.series, sampled.age_ns) = (3, Some(1_500_000));
        let rows = [Row::surveyed("a_total", "node_a".into(), true, "equal".into(), Some(420)), sampled];
        let mut out = Vec::new();
        write(&mut out, &rows).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0][..4], ["METRIC", "MECHANISM", "SERIES", "AGE"]);
        assert_eq!(lines[1][..4], ["a_total", "computed", "-", "at"]);
        assert!(text.lines().nth(1).is_some_and(|line| line.ends_with("420 ns of softirq a block, measured now")));
        assert_eq!(lines[2][..3], ["node_load1", "sampled", "3"]);
        assert!(text.lines().nth(2).is_some_and(|line| line.ends_with("differs")));
    }

    #[test]
    fn costs_are_by_mechanism() {
        let sampled = cost("node_cpu", "sampled", Some(2_500_000.0));
        assert!(sampled.starts_with("2.5"), "{sampled}");
        assert!(cost("node_cpu", "sampled", None).is_empty());
        assert!(cost("node_cpu", "computed", None).starts_with("budget of a block: 5 us"));
        // Theirs is the operator's to set.
        assert!(!cost("user_mine", "computed", None).contains("5 us"));
    }
}
