// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::fleet::fixture::target;
use serde_json::Value;
use std::collections::BTreeMap;

fn fleet(names: &[&str]) -> Fleet {
    let fleet = Fleet::default();
    names.iter().for_each(|name| drop(fleet.enter(&Arc::new(target(name)))));
    fleet
}

fn answer(fleet: &Fleet, query: &str) -> Value {
    let mut text = Vec::new();
    let mut take = |piece: axum::body::Bytes| {
        text.extend_from_slice(&piece);
        Ok(())
    };
    let mut writer = Writer::new(false, &mut take);
    Wanted::of(Some(query)).unwrap().find(fleet).write(&mut writer).unwrap();
    writer.finish().unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn names(answer: &Value) -> Vec<&str> {
    answer["hosts"].as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap()).collect()
}

/// The pages' way: the whole once, then what has changed and what is looked at.
#[test]
fn a_page_that_asks_for_changes_knows_all() {
    let fleet = fleet(&["a", "b", "c"]);
    let mut copy: BTreeMap<String, Value> = BTreeMap::new();
    let mut cursor = 0;
    let mut ask = |query: &str| {
        let answer = answer(&fleet, &format!("since={cursor}{query}"));
        if answer["whole"] == true {
            copy.clear();
        }
        answer["gone"].as_array().unwrap().iter().for_each(|name| drop(copy.remove(name.as_str().unwrap())));
        for host in answer["hosts"].as_array().unwrap() {
            copy.insert(host["name"].as_str().unwrap().to_owned(), host["state"].clone());
        }
        cursor = answer["cursor"].as_u64().unwrap();
        (copy.clone(), names(&answer).join(" "))
    };
    assert_eq!(ask("").1, "a b c");
    assert_eq!(ask("").1, "");
    assert_eq!(ask("&fresh=c&fresh=nobody&fresh=a&fresh=c").1, "a c");
    // A list that is another one is looked at at once; with it, what else has changed is seen.
    fleet.host("b").unwrap().look().state = HostState::Silent("it does not answer".into());
    fleet.leave("a");
    fleet.enter(&Arc::new(target("d")));
    let (known, told) = ask("&fresh=d");
    assert_eq!(told, "b d");
    let known: Vec<String> = known.iter().map(|(name, state)| format!("{name} {state}")).collect();
    assert_eq!(known, ["b \"silent\"", "c \"connecting\"", "d \"connecting\""]);
}

#[test]
fn parts_of_the_list() {
    let fleet = fleet(&["db-1", "db-2", "web-1", "web-2", "web-3"]);
    fleet.host("web-2").unwrap().look().state = HostState::Failed("connection REFUSED".into());
    for (query, told, total) in [
        ("", "db-1 db-2 web-1 web-2 web-3", 5),
        ("limit=2", "db-1 db-2", 5),
        ("limit=2&offset=4", "web-3", 5),
        ("limit=0", "", 5),
        ("search=WEB", "web-1 web-2 web-3", 3),
        ("search=web%20refused", "web-2", 1),
        ("state=failed&state=silent", "web-2", 1),
        ("state=connecting&search=web&limit=1&offset=1", "web-3", 2),
        ("search=127.0.0.1:1+db", "db-1 db-2", 2),
    ] {
        let answer = answer(&fleet, query);
        assert_eq!((names(&answer).join(" "), answer["total"].as_u64()), (told.to_owned(), Some(total)), "{query}");
        assert_eq!(answer["whole"], query.is_empty(), "{query}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for query in [
        "fresh=a",
        "since=1&state=failed",
        "since=1&limit=1",
        "since=-1",
        "since=x",
        "state=dead",
        "limit=-1",
        "search=a&search=b",
        "name=a",
    ] {
        assert!(Wanted::of(Some(query)).is_err(), "{query}");
    }
    let many = "fresh=a&".repeat(MAX_FRESH + 1) + "since=1";
    assert!(Wanted::of(Some(&many)).is_err());
    assert_eq!(Wanted::of(Some("since=7")).unwrap(), Wanted::Changes { since: 7, fresh: Vec::new() });
}

/// What the list of ten thousand hosts costs: `cargo test --release -p onlooker-controller --lib -- --ignored
/// --nocapture list_of_ten_thousand`.
#[test]
#[ignore = "measures: cargo test --release -p onlooker-controller --lib ten_thousand -- --ignored --nocapture"]
#[allow(clippy::print_stdout)] // figures
fn list_of_ten_thousand() {
    const HOSTS: u32 = 10_000;
    let names: Vec<String> = (0..HOSTS).map(|number| format!("host-{number:05}.example.org")).collect();
    let fleet = fleet(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for host in fleet.hosts().iter() {
        (0..1_000).for_each(|at| host.look().latency.record(40_000 + at * 100, at));
    }
    let mut cursor = 0;
    for is_packed in [false, true, false] {
        for query in [String::new(), format!("since={cursor}")] {
            // Until somebody looks again.
            std::thread::sleep(std::time::Duration::from_millis(600));
            let mut size = 0;
            let mut take = |piece: axum::body::Bytes| {
                size += piece.len();
                Ok(())
            };
            let began = std::time::Instant::now();
            let found = Wanted::of(Some(&query)).unwrap().find(&fleet);
            let mut writer = Writer::new(is_packed, &mut take);
            found.write(&mut writer).unwrap();
            writer.finish().unwrap();
            let took = began.elapsed();
            println!("`{query}`, packed {is_packed}: {:?} a host, {size} bytes", took / HOSTS);
            cursor = found.number;
        }
    }
}
