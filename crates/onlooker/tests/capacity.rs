// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker capacity`: over what a real controller has recorded of itself, and over points of a file.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use onlooker_testbed::{Agent, Controller, until};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-of-more-than-16";

/// How a run ended: code, standard output, standard error.
fn capacity(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onlooker")).arg("capacity").args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// It records itself every 10 s, so this takes half a minute.
#[test]
fn a_controller_has_a_history_of_its_load_and_of_all_that_it_takes() {
    let agent = Agent::start();
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("http");
    fs::write(&token, format!("{TOKEN}\n")).unwrap();
    let token = token.to_str().unwrap().to_owned();
    let http = format!("token_file = {token:?}");
    let controller = Controller::start_in(dir, &http, &(agent.target("web") + "interval = \"20ms\"\n"));
    let url = format!("http://{}", controller.address());

    let (code, _, error) = capacity(&[&url]);
    assert!(code == Some(1) && error.contains("a token is needed") && error.contains("--token-file"), "{error}");
    let ask = [&*url, "--token-file", &token, "--since", "2min", "--step", "1s", "--link", "1", "--json"];
    let (code, out, error) = capacity(&ask);
    assert!(code == Some(3) && out.is_empty() && error.contains("nothing is recorded"), "{code:?} {out} {error}");

    let told = until("a history", || {
        thread::sleep(Duration::from_secs(1));
        let (code, out, error) = capacity(&ask);
        if code == Some(3) {
            return None;
        }
        // Whether the host's load moved meanwhile is its own affair.
        assert!(matches!(code, Some(0 | 1)), "{code:?} {error}");
        let told: Value = serde_json::from_str(&out).unwrap();
        (told["now"]["hosts"] == 1.0).then_some(told)
    });
    assert!(told["now"]["values_per_s"].as_f64().is_some_and(|load| load > 50.0), "{told:#}");
    let resources = told["resources"].as_array().unwrap();
    let names: Vec<&str> = resources.iter().filter_map(|one| one["resource"].as_str()).collect();
    assert_eq!(names, ["engine", "processor", "store", "own", "rules", "cpu", "memory", "network"]);
    for resource in resources {
        let share = resource["share_now"].as_f64().unwrap();
        let is_used = !matches!(resource["resource"].as_str(), Some("own" | "rules"));
        assert!((0.0..=1.0).contains(&share) && (share > 0.0 || !is_used), "{resource}");
    }
}

#[test]
fn points_of_a_file_have_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("points.json");
    let file = path.to_str().unwrap();
    let points = |loads: &[f64]| {
        let point = |load: &f64| json!({"values_per_s": load, "hosts": load / 100.0, "shares": {"cpu": load / 1e6}});
        fs::write(&path, Value::from_iter(loads.iter().map(point)).to_string()).unwrap();
    };
    points(&[1e5, 2e5, 3e5]);
    let (code, out, error) = capacity(&["--points", file]);
    assert!(code == Some(0) && error.is_empty(), "{code:?} {error}");
    assert!(out.contains("cpu (all threads, of all cores) ends first: at 1,000,000 values/s, 10,000 hosts"), "{out}");
    let (_, out, _) = capacity(&["--points", file, "--share", "0.5", "--json"]);
    let told: Value = serde_json::from_str(&out).unwrap();
    assert!((told["resources"][0]["ends_at"]["values_per_s"].as_f64().unwrap() - 5e5).abs() < 1.0, "{told}");
    // What was printed can be asked again.
    fs::write(&path, &out).unwrap();
    assert_eq!(capacity(&["--points", file, "--share", "0.5", "--json"]).1, out);

    points(&[1e5, 1.2e5, 1.4e5]);
    let (code, out, error) = capacity(&["--points", file]);
    assert!(code == Some(1) && error.contains("too little spread") && out.contains("cannot be told"), "{out} {error}");
    points(&[]);
    assert_eq!(capacity(&["--points", file]).0, Some(3));
    fs::write(&path, "no JSON").unwrap();
    let (code, _, error) = capacity(&["--points", file]);
    assert!(code == Some(1) && error.contains("points.json") && error.contains("--json"), "{error}");
}

#[test]
fn who_is_no_controller_is_told_apart() {
    let (code, _, error) = capacity(&["http://127.0.0.1:1"]);
    assert!(
        code == Some(1) && error.contains("http://127.0.0.1:1") && error.contains("is this the controller"),
        "{error}"
    );
    let (code, _, error) = capacity(&["127.0.0.1"]);
    assert!(code == Some(1) && error.contains("write http://HOST:PORT"), "{error}");
    assert_eq!(capacity(&["--since", "7"]).0, Some(2));
    assert_eq!(capacity(&["--points", "x", "--link", "1"]).0, Some(2));
}
