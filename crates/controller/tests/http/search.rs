// SPDX-License-Identifier: Apache-2.0
//! What a person finds who types a word.

use onlooker_testbed::{Agent, Controller, json, until};

#[test]
fn what_is_typed_first_is_found_first() {
    let agent = Agent::start();
    let controller = Controller::start("", &agent.target("a"));
    let address = controller.address();
    let names = |query: &str| {
        let answer = json(address, &format!("/api/onlooker/v1/hosts/a/series?{query}"));
        let names = answer["series"].as_array().unwrap().iter();
        names.map(|series| series["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("node_cpu_seconds_total", || {
        names("search=node_cpu_seconds_total").first().filter(|name| *name == "node_cpu_seconds_total").cloned()
    });
    assert_eq!(names("search=cpu&by=metric&limit=1"), ["node_cpu_seconds_total"]);
    let all = names("search=cpu&limit=10000");
    let metrics = names("search=cpu&limit=10000&by=metric");
    assert_eq!(all[0], "node_cpu_seconds_total");
    assert!(metrics.len() > 1 && metrics.len() < all.len(), "{metrics:?}");
    let first = json(address, "/api/onlooker/v1/hosts/a/series?search=cpu&by=metric&limit=1");
    let count = all.iter().filter(|name| *name == "node_cpu_seconds_total").count();
    assert_eq!((&first["series"][0]["count"], &first["more"]), (&count.into(), &true.into()));
    let one = json(address, "/api/onlooker/v1/hosts/a/series?metric=node_cpu_seconds_total&limit=1");
    assert_eq!((&one["total"], &one["more"]), (&count.into(), &(count > 1).into()));
    assert_eq!(one["series"][0]["name"], "node_cpu_seconds_total");

    // The same of the fleet, and of one host of it.
    for host in ["", "&host=a"] {
        let found = json(address, &format!("/api/onlooker/v1/search?search=cpu&limit=1{host}"));
        let metrics = &found["metrics"];
        let best = &metrics["list"][0];
        let told = (&best["name"], &best["series"], &best["hosts"], &best["unit"]);
        assert_eq!(told, (&"node_cpu_seconds_total".into(), &count.into(), &1.into(), &"seconds".into()));
        assert_eq!(metrics["list"].as_array().unwrap().len(), 1);
        assert_eq!(metrics["total"], metrics_of(address, "cpu"), "{host}");
        assert_eq!(found["hosts"].is_object(), host.is_empty());
    }
    let found = json(address, "/api/onlooker/v1/search?search=a&limit=1");
    assert_eq!((&found["hosts"]["list"][0]["name"], &found["searched"]["hosts"]), (&"a".into(), &1.into()));
    let hosts = json(address, "/api/onlooker/v1/metrics/node_cpu_seconds_total/hosts?search=cpu");
    let told = (&hosts["total"], &hosts["series"], &hosts["list"][0]["name"], &hosts["list"][0]["series"]);
    assert_eq!(told, (&1.into(), &count.into(), &"a".into(), &count.into()));
    assert_eq!(json(address, "/api/onlooker/v1/metrics/nosuch/hosts")["total"], 0);
}

/// Names and types that a walk through all series finds.
fn metrics_of(address: std::net::SocketAddr, text: &str) -> usize {
    let answer = json(address, &format!("/api/onlooker/v1/hosts/a/series?search={text}&limit=10000"));
    let series = answer["series"].as_array().unwrap().iter();
    let names = series.map(|series| (series["name"].to_string(), series["type"].to_string()));
    names.collect::<std::collections::BTreeSet<_>>().len()
}
