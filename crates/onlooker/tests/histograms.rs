// SPDX-License-Identifier: Apache-2.0
//! A program's histogram in PromQL: native, classic, and as a rule records it.

use std::fs;
use std::process::{Command, Stdio};

use onlooker_testbed::{Agent, Controller, example, json, until};
use serde_json::Value;

#[test]
fn a_program_s_histogram_is_a_native_one_and_rules_record_it() {
    let agent = Agent::start();
    let mut shop = Command::new(example("onlooker", "watched"))
        .env("ONLOOKER_SOCKET", agent.socket())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("rules.yml");
    let rule = "{record: 'shop:latency', expr: sum(shop_latency_seconds)}";
    fs::write(&rules, format!("groups: [{{name: shop, interval: 1s, rules: [{rule}]}}]")).unwrap();
    let rest = format!("[rules]\nshipped = false\nfiles = [{rules:?}]\n{}", agent.target("a"));
    let controller = Controller::start_in(dir, "", &rest);
    let result =
        |query: &str| json(controller.address(), &format!("/api/v1/query?query={query}"))["data"]["result"].clone();
    let histogram = |name: &str| {
        let of = |answer: Value| Some(answer[0]["histogram"][1].clone()).filter(|histogram| histogram["count"] == "3");
        until(name, || of(result(name)))
    };
    let own = histogram("shop_latency_seconds");
    // 1 us, 2 us and 3 ms, in buckets an eighth wide.
    assert_eq!(own["sum"], "0.003003", "{own}");
    let buckets = own["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), 3, "{own}");
    for (bucket, observed) in buckets.iter().zip([1e-6, 2e-6, 3e-3]) {
        let bound = |at: usize| bucket[at].as_str().unwrap().parse::<f64>().unwrap();
        assert!(bucket[0] == 0 && bound(1) < observed && observed <= bound(2) && bound(3) == 1.0, "{own}");
        assert!(bound(2) < bound(1) * 1.25, "{own}");
    }
    assert_eq!(histogram("shop:latency"), own);
    let p99 = |of: &str| result(&format!("histogram_quantile(0.99,{of})"))[0]["value"][1].as_str().unwrap().to_owned();
    assert_eq!(p99("shop_latency_seconds"), p99("shop:latency"));
    assert!(result("shop_latency_seconds_bucket").as_array().unwrap().len() > 3, "the classic one is there, too");
    drop(shop.stdin.take());
    assert!(shop.wait().unwrap().success());
}
