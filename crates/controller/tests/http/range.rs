// SPDX-License-Identifier: Apache-2.0
//! As many points as were asked for, whichever of the series is the first with more rows than that.

use onlooker_testbed::{Agent, Controller, json, until};
use serde_json::Value;

/// Each of them stands in a track of its own.
const METRICS: [&str; 4] = ["node_load1", "node_forks_total", "node_memory_MemFree_bytes", "node_vmstat_pgfault"];
const ROWS: usize = 5;

#[test]
fn every_series_has_no_more_points_than_were_asked_for() {
    let agent = Agent::start();
    let controller = Controller::start("", &format!("{}interval = \"10ms\"\n", agent.target("a")));
    let matches = METRICS.map(|metric| format!("match={metric}")).join("&");
    let range = |points: usize| {
        json(controller.address(), &format!("/api/onlooker/v1/hosts/a/range?{matches}&points={points}"))
    };
    let lengths = |range: &Value| -> Vec<usize> {
        let series = range["series"].as_array().into_iter().flatten();
        series.map(|series| series["t_ms"].as_array().unwrap().len()).collect()
    };
    let rows = until("rows of each", || {
        let rows = lengths(&range(5000));
        (rows.len() >= METRICS.len() && rows.iter().all(|rows| *rows >= ROWS)).then_some(rows)
    });
    let few = range(2);
    assert!(few["bucket_ms"].as_f64().unwrap() > 0.0, "{few}");
    assert!(lengths(&few).iter().all(|points| *points <= 3), "{:?} of {rows:?} rows", lengths(&few));
}
