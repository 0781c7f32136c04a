// SPDX-License-Identifier: Apache-2.0
//! Hosts that are read at one time.

use onlooker_testbed::{Agent, Controller, json, request, until};
use serde_json::Value;

#[test]
fn a_snapshot_reads_all_hosts_now_and_names_those_that_are_missing() {
    let agents = [Agent::start(), Agent::start()];
    // Due so seldom that only who is called is read now.
    let target = |(name, agent): (&str, &Agent)| agent.target(name) + "interval = \"1h\"\n";
    let mut targets: String = ["a", "b"].into_iter().zip(&agents).map(target).collect();
    targets += &agents[0].target("gone").replace("address = \"127.0.0.1:", "address = \"127.0.0.9:");
    let controller = Controller::start("", &targets);
    let address = controller.address();
    let read = |host: &str| {
        let told = json(address, &format!("/api/onlooker/v1/hosts/{host}"));
        (told["state"] == "reading").then_some(())
    };
    until("both are connected", || read("a").and(read("b")));
    let ask = |more: &str| json(address, &format!("/api/onlooker/v1/snapshot?match[]=node_load1{more}"));
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value}"));
    for _ in 0..2 {
        let all = ask("&max_skew_ms=60000");
        let hosts = all["hosts"].as_array().unwrap();
        assert_eq!(hosts.iter().map(|host| &host["name"]).collect::<Vec<_>>(), ["a", "b"], "{all:#}");
        for host in hosts {
            assert_eq!(host["series"][0]["series"], format!("node_load1{{instance={}}}", host["name"]), "{all:#}");
            assert!(number(&host["series"][0]["value"]) >= 0.0);
            assert!(number(&all["asked_ms"]) <= number(&host["from_ms"]), "{all:#}");
            assert!(number(&host["from_ms"]) <= number(&host["to_ms"]));
        }
        let skew = number(&all["to_ms"]) - number(&all["from_ms"]);
        assert!((skew - number(&all["skew_ms"])).abs() < 0.01, "{all:#}");
        assert_eq!((&all["missing"][0]["name"], &all["within"]), (&"gone".into(), &false.into()));
    }
    assert_eq!(ask("&host=a&host=b&max_skew_ms=60000")["within"], true);
    assert_eq!(ask("&host=a&host=b&max_skew_ms=0")["within"], false);
    for (query, part) in
        [("", "`match[]` is missing"), ("match[]=%7B", "`match[]` is"), ("match[]=up&host=nobody", "nobody")]
    {
        let answer = request(address, "GET", &format!("/api/onlooker/v1/snapshot?{query}"), "", "");
        assert!((400..500).contains(&answer.status) && answer.body.contains(part), "{}{}", answer.head, answer.body);
    }
}
