// SPDX-License-Identifier: Apache-2.0
//! Rates of what is sampled seldom and read often: as many seconds a second as there are CPUs, live and in range, never the ratio of the intervals.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)] // times and numbers of CPUs

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};

use onlooker_testbed::{Agent, Controller, json, until};
use serde_json::Value;

/// Sampled every second, read every 10 ms. The modes of a CPU together count all of its time.
const METRIC: &str = "node_cpu_seconds_total";
const SAMPLES: usize = 6;

/// Per second, of all series together: times, and the sum at each.
type Sums = BTreeMap<u64, f64>;

fn check(rates: &[f64], cpus: usize, what: &str) {
    let expected = cpus as f64;
    assert!(!rates.is_empty(), "{what}");
    // Never faster than the clock, but for clock ticks of 10 ms in each of some modes and for when they are looked at. A virtual machine whose host takes its
    // processors away counts less.
    let is_right = |rate: &f64| *rate < 1.05 * expected + 0.02 && *rate > 0.8 * expected;
    assert!(rates.iter().all(is_right), "{what}: {rates:?}");
}

/// Sums of the values of `SAMPLES` samples, from a stream.
fn live(address: SocketAddr) -> (Sums, usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/onlooker/v1/live?host=a&match={METRIC}&every_ms=10 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let (mut sums, mut event) = (Sums::new(), String::new());
    let mut cpus = BTreeSet::new();
    for line in BufReader::new(stream).lines().map(Result::unwrap) {
        if let Some(name) = line.strip_prefix("event: ") {
            event = name.to_owned();
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).unwrap();
            if event == "open" {
                let texts = data["series"].as_array().unwrap().iter().map(|series| series["series"].as_str().unwrap());
                cpus.extend(
                    texts.map(|text| text.split("cpu=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()),
                );
            }
            for row in data["rows"].as_array().into_iter().flatten() {
                let sum: f64 = row["v"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).sum();
                let time_us = (row["t_ms"].as_f64().unwrap() * 1e3) as u64;
                assert!(sums.insert(time_us, sum).is_none(), "a value comes once");
            }
            if sums.len() > SAMPLES {
                return (sums, cpus.len());
            }
        }
    }
    panic!("the stream ended: {sums:?}");
}

#[test]
fn what_is_sampled_every_second_is_never_faster_than_the_clock() {
    let _quiet = crate::quiet();
    let agent = Agent::start_with("[sampled]\ninterval = \"1s\"\n");
    let controller = Controller::start("", &format!("{}interval = \"10ms\"\n", agent.target("a")));
    let address = controller.address();
    let listed = until("a sample", || {
        let listed = json(address, &format!("/api/onlooker/v1/hosts/a/series?search={METRIC}"));
        (listed["series"].as_array()?.len() > 1).then_some(listed)
    });
    for series in listed["series"].as_array().unwrap() {
        assert!(series["resolution_ms"].as_f64().unwrap() >= 1000.0, "{series}");
    }
    let (sums, cpus) = live(address);
    let pairs = || sums.iter().zip(sums.iter().skip(1));
    let rates: Vec<f64> = pairs().map(|((t0, v0), (t1, v1))| (v1 - v0) / ((t1 - t0) as f64 / 1e6)).collect();
    check(&rates, cpus, "live");

    // Readings were late now and then. That takes a rate away only where much of its time is missing.
    let range = until("range", || {
        let range = json(address, &format!("/api/onlooker/v1/hosts/a/range?match={METRIC}"));
        (range["series"][0]["t_ms"].as_array()?.len() > SAMPLES).then_some(range)
    });
    let (all, gaps) = (range["series"].as_array().unwrap(), range["gaps"].as_array().unwrap());
    let ms = |value: &Value| value.as_f64().unwrap();
    let missing_ms = |from_ms: f64, to_ms: f64| -> f64 {
        let within = |gap: &Value| ms(&gap["to_ms"]).min(to_ms) - ms(&gap["from_ms"]).max(from_ms);
        gaps.iter().map(within).filter(|within| *within > 0.0).sum()
    };
    let times_ms: Vec<f64> = all[0]["t_ms"].as_array().unwrap().iter().map(ms).collect();
    let mut rates = Vec::new();
    for (at, two) in (1..).zip(times_ms.windows(2)) {
        let missing = missing_ms(two[0], two[1]) / (two[1] - two[0]);
        match all.iter().map(|series| series["rate"][at].as_f64()).sum::<Option<f64>>() {
            Some(rate) => rates.push(rate),
            None => assert!(missing > 0.6, "no rate at {two:?}, of which {missing} is missing: {gaps:?}"),
        }
    }
    check(&rates, cpus, "range");
}
