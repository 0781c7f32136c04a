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
}
