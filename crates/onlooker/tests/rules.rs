// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker rules check`: what it says of files, and how it ends.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// How a run ended: code, standard output, standard error.
fn check(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_onlooker")).args(["rules", "check"]).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const GOOD: &str = "groups:\n- name: a\n  rules:\n  - record: up:sum\n    expr: sum(up)\n";
const BAD: &str = "groups:
- name: a
  rules:
  - alert: Down
    expr: |
      up ==
        on(
  - record: b
    expr: sum(up)
    for: 5s
";

#[test]
fn mistakes_have_their_places_and_end_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good, bad, missing) =
        (file("good.yaml", GOOD), file("bad.yaml", BAD), format!("{}/none", dir.path().display()));

    assert_eq!(check(&[&good]), (Some(0), format!("{good}: 1 rule, 1 group\n"), String::new()));

    let (code, out, _) = check(&[&good, &bad, &missing]);
    assert_eq!(code, Some(1));
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 6, "{out}");
    assert_eq!(lines[1], format!("{bad}: 2 mistakes"));
    assert!(lines[2].starts_with(&format!("{bad}:7:11: group \"a\", rule 1, \"Down\": could not parse")), "{out}");
    assert_eq!(lines[3], format!("{bad}:8:13: group \"a\", rule 2, \"b\": invalid field 'for' in recording rule: b"));
    assert!(lines[5].starts_with(&format!("{missing}: it cannot be read: ")), "{out}");

    let (code, out, _) = check(&["--json", &good, &bad]);
    assert_eq!(code, Some(1));
    let all: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(all["files"][0]["rules"], 1);
    assert_eq!(all["files"][1]["mistakes"][1]["line"], 8);
    assert_eq!(all["files"][1]["mistakes"][1]["offending"], "b");
}

#[test]
fn the_help_says_what_it_does() {
    let (code, out, _) = check(&["--help"]);
    assert_eq!(code, Some(0));
    for word in ["FILE", "--json", "Ends with 1"] {
        assert!(out.contains(word), "{out}");
    }
    assert_eq!(check(&[]).0, Some(2), "a file must be named");
}
