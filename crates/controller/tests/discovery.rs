// SPDX-License-Identifier: Apache-2.0
//! Targets from files, read by a real controller while they are written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onlooker_testbed::{Agent, Controller, get, json, until};
use rustix::process::Signal;
use serde_json::{Value, json};

struct World {
    agent: Agent,
    controller: Controller,
}

impl World {
    /// A controller with target files `targets/*.json` and `*.yml` of its directory. `more` stands behind its `[[discovery]]`.
    fn new(more: &str) -> Self {
        let agent = Agent::start();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("targets")).unwrap();
        let text = discovery(dir.path(), &agent.token_file(), more);
        let controller = Controller::start_in(dir, "", &text);
        Self { agent, controller }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.controller.dir().join("targets").join(name)
    }

    fn targets(&self) -> Value {
        json(self.controller.address(), "/api/onlooker/v1/targets")
    }

    /// Names of the targets that are watched.
    fn names(&self) -> BTreeSet<String> {
        let hosts = json(self.controller.address(), "/api/onlooker/v1/hosts");
        hosts["hosts"].as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap().to_owned()).collect()
    }

    fn wait(&self, names: &[&str]) {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        until(&format!("{names:?} are watched"), || (self.names() == names).then_some(()));
    }

    fn host(&self, name: &str) -> Value {
        json(self.controller.address(), &format!("/api/onlooker/v1/hosts/{name}"))
    }

    /// A group of these names, which all are the one agent.
    fn group(&self, names: &[&str]) -> Value {
        names.iter().map(|name| json!({"targets": [self.agent.address()], "labels": {"instance": name}})).collect()
    }
}

fn discovery(dir: &Path, token: &Path, more: &str) -> String {
    let targets = dir.join("targets");
    format!(
        "[[discovery]]\nfiles = [\"{0}/*.json\", \"{0}/*.yml\"]\ntoken_file = {token:?}\ninterval = \"20ms\"\nrefresh = \"1s\"\n{more}",
        targets.display()
    )
}

/// Writes in place, in two halves; what is there meanwhile is cut off.
fn write_in_place(path: &Path, text: &str) {
    let (front, back) = text.split_at(text.len() / 2);
    let mut file = File::create(path).unwrap();
    file.write_all(front.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    file.write_all(back.as_bytes()).unwrap();
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Due times without a reading that a slow machine does not explain.
fn lost(host: &Value) -> u64 {
    let gaps = host["gaps"].as_object().unwrap();
    gaps.iter()
        .filter(|(reason, _)| !matches!(&reason[..], "late" | "behind"))
        .map(|(_, count)| count.as_u64().unwrap())
        .sum()
}

#[test]
fn a_file_may_be_written_while_it_is_read() {
    let world = World::new("");
    // YAML that is cut off may still be YAML.
    let yaml = |names: &[&str]| {
        let address = world.agent.address();
        let group = |name: &&str| format!("- targets: ['{address}']\n  labels: {{instance: '{name}'}}\n");
        names.iter().map(group).collect::<String>()
    };
    replace(&world.file("a.json"), &world.group(&["always"]).to_string());
    replace(&world.file("b.yml"), &yaml(&["last-in-order"]));
    world.wait(&["always", "last-in-order"]);
    let ready = |name| until("it is read", || Some(world.host(name)).filter(|host| host["cycles"].as_u64() > Some(10)));
    let before = [ready("always"), ready("last-in-order")];
    for i in 0..200 {
        let other = format!("other-{}", i % 7);
        let text = world.group(&[&other, "always"]).to_string();
        let lines = yaml(&[&other[..], "first", "second", "last-in-order"]);
        if i % 2 == 0 {
            write_in_place(&world.file("a.json"), &text);
            write_in_place(&world.file("b.yml"), &lines);
        } else {
            replace(&world.file("a.json"), &text);
            replace(&world.file("b.yml"), &lines);
        }
        // Now and then it stays long enough to count.
        std::thread::sleep(Duration::from_millis(if i % 20 == 0 { 400 } else { 5 }));
    }
    write_in_place(&world.file("a.json"), &world.group(&["always", "end"]).to_string());
    write_in_place(&world.file("b.yml"), &yaml(&["end-of-yaml", "last-in-order"]));
    world.wait(&["always", "end", "end-of-yaml", "last-in-order"]);
    let files = world.targets()["files"].clone();
    assert!(files.as_array().unwrap().iter().all(|file| file["error"].is_null() && file["targets"] == 2), "{files}");
    for before in before {
        let after = world.host(before["name"].as_str().unwrap());
        assert_eq!((lost(&after), &after["since_ms"]), (lost(&before), &before["since_ms"]), "it never went: {after}");
        assert!(after["cycles"].as_u64() > before["cycles"].as_u64());
    }
    assert!(world.names().len() == 4);
}

#[test]
fn bad_files_and_bad_lines_harm_nobody_else() {
    let world = World::new("[[discovery.relabel]]\nsource_labels = ['skip']\nregex = 'yes'\naction = 'drop'\n");
    let address = world.controller.address();
    replace(&world.file("a.json"), &world.group(&["one", "two"]).to_string());
    world.wait(&["one", "two"]);
    for (text, reason) in [("[{\"targets\":", "not a list"), ("", "empty"), ("{}", "not a list"), (" \n", "empty")] {
        fs::write(world.file("a.json"), text).unwrap();
        until(reason, || {
            let files = world.targets()["files"].clone();
            files[0]["error"].as_str().is_some_and(|error| error.contains(reason)).then_some(())
        });
        world.wait(&["one", "two"]);
    }
    let metrics = get(address, "/metrics");
    let count = |reason: &str| {
        let line = format!("onlooker_controller_target_file_failures_total{{reason=\"{reason}\"}} ");
        let found = metrics.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or("0");
        found.parse::<u64>().unwrap()
    };
    assert!(count("invalid") >= 2 && count("empty") >= 2, "{metrics}");
    // Told once each, not with every look.
    std::thread::sleep(Duration::from_millis(2_500));
    let log = world.controller.process().log();
    assert!(log.matches("a.json").count() <= 5 && log.contains("its last good contents stay (2 hosts)"), "{log}");
    // Good again, with lines that are not.
    let mut groups = world.group(&["two", "three"]);
    let more = json!([{"targets": ["x:0"]}, {"targets": ["skipped"], "labels": {"skip": "yes"}},
        {"targets": ["y"], "labels": {"__token_file__": "/nowhere/token"}}, {"targets": ["other:1"], "labels": {"instance": "two"}}]);
    groups.as_array_mut().unwrap().extend(more.as_array().unwrap().clone());
    replace(&world.file("a.json"), &groups.to_string());
    world.wait(&["two", "three"]);
    let told = world.targets();
    assert_eq!((&told["files"][0]["dropped"], &told["files"][0]["error"]), (&1.into(), &Value::Null));
    let errors: Vec<&str> =
        told["targets"].as_array().unwrap().iter().filter_map(|line| line["error"].as_str()).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    for part in ["port", "/nowhere/token", "the name is taken"] {
        assert!(errors.iter().any(|error| error.contains(part)), "{errors:?}");
    }
    // Not there: after two refreshes.
    fs::remove_file(world.file("a.json")).unwrap();
    until("missing", || {
        world.targets()["files"][0]["error"].as_str().map(|error| assert!(error.contains("not there")))
    });
    assert_eq!(world.names().len(), 2);
    world.wait(&[]);
}

#[test]
fn a_directory_that_is_swapped_behind_a_link_is_seen() {
    let world = World::new("");
    // As Kubernetes does with a ConfigMap.
    let dir = world.controller.dir().join("targets");
    for (version, names) in [("v1", ["one"]), ("v2", ["two"])] {
        fs::create_dir(dir.join(version)).unwrap();
        fs::write(dir.join(version).join("a.json"), world.group(&names).to_string()).unwrap();
    }
    std::os::unix::fs::symlink("v1", dir.join("data")).unwrap();
    std::os::unix::fs::symlink("data/a.json", dir.join("a.json")).unwrap();
    world.wait(&["one"]);
    std::os::unix::fs::symlink("v2", dir.join("data.new")).unwrap();
    fs::rename(dir.join("data.new"), dir.join("data")).unwrap();
    world.wait(&["two"]);
}

#[test]
fn the_configuration_is_read_again_when_it_is_told_to() {
    let world = World::new("");
    replace(&world.file("a.json"), &world.group(&["one"]).to_string());
    world.wait(&["one"]);
    let path = world.controller.dir().join("controller.toml");
    let text = fs::read_to_string(&path).unwrap();
    let more = format!("{text}\n{}interval = \"20ms\"\n", world.agent.target("fixed"));
    let hangup = || world.controller.process().signal(Signal::HUP);
    let says = |part: &str| until(part, || world.controller.process().log().contains(part).then_some(()));
    fs::write(&path, &more).unwrap();
    hangup();
    world.wait(&["fixed", "one"]);
    says("were read again");
    // What cannot be used changes nothing.
    let wrong = more.replace("[[targets]]", "[[target]]");
    fs::write(&path, wrong).unwrap();
    hangup();
    says("the targets stay as they were");
    let token = world.agent.token_file().display().to_string();
    fs::write(&path, more.replace(&token, "/nowhere/token")).unwrap();
    hangup();
    says("/nowhere/token");
    assert_eq!(world.names().len(), 2);
    // Another rule, and no fixed one.
    let rule = "[[discovery.relabel]]\nsource_labels = ['instance']\ntarget_label = 'instance'\nreplacement = 'x-$1'\n";
    fs::write(&path, format!("{text}{rule}")).unwrap();
    hangup();
    world.wait(&["x-one"]);
    let secret = world.agent.token();
    let log = world.controller.process().log();
    assert!(!log.contains(secret.rsplit('.').next().unwrap()), "no token is logged");
}
