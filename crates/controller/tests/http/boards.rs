// SPDX-License-Identifier: Apache-2.0
//! Saved boards over HTTP: versions that do not overwrite one another, and who may write them.

use std::fs;
use std::net::SocketAddr;

use onlooker_testbed::{Answer, Controller, request};
use serde_json::{Value, json};

const TOKEN: &str = "a-token-of-many-characters";
const ALL: &str = "/api/onlooker/v1/boards";

fn path(name: &str) -> String {
    format!("{ALL}/{name}")
}

fn tag(answer: &Answer) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("etag: "));
    line.unwrap_or_else(|| panic!("no ETag: {}", answer.head)).to_owned()
}

fn put(address: SocketAddr, name: &str, headers: &str, board: &Value) -> Answer {
    request(address, "PUT", &path(name), &format!("Content-Type: application/json\r\n{headers}"), &board.to_string())
}

fn list(address: SocketAddr) -> Value {
    request(address, "GET", ALL, "", "").json()
}

#[test]
fn two_who_change_a_board_hear_of_each_other() {
    let mut controller = Controller::start("", "");
    let address = controller.address();
    assert_eq!(list(address), json!({"boards": [], "writable": true}));
    assert_eq!(request(address, "GET", &path("web"), "", "").status, 404);
    let first = json!({"title": "Web", "panels": [], "unknown": {"kept": [1, null]}});
    assert_eq!(put(address, "web", "", &first).status, 428);
    assert_eq!(put(address, "web", "If-Match: \"x\"\r\n", &first).status, 404);
    let made = put(address, "web", "If-None-Match: *\r\n", &first);
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(put(address, "web", "If-None-Match: *\r\n", &first).status, 412);

    let read = request(address, "GET", &path("web"), "", "");
    assert_eq!((read.json(), tag(&read)), (first.clone(), tag(&made)));
    let known = format!("If-None-Match: {}\r\n", tag(&made));
    assert_eq!(request(address, "GET", &path("web"), &known, "").status, 304);
    // What a proxy that packs makes of it.
    let base = format!("If-Match: W/{}\r\n", tag(&made));
    let second = json!({"title": "Web tier", "panels": [{"type": "text"}]});
    let changed = put(address, "web", &base, &second);
    assert_eq!(changed.status, 204, "{}", changed.body);
    let late = put(address, "web", &base, &first);
    assert_eq!(late.status, 412);
    assert!(late.body.contains("another version"), "{}", late.body);
    assert_eq!(request(address, "DELETE", &path("web"), &base, "").status, 412);
    assert_eq!(request(address, "DELETE", &path("web"), "", "").status, 428);

    // A kill loses nothing, and the file is what Grafana may be given.
    controller.start_again();
    let address = controller.address();
    let listed = list(address);
    assert_eq!(listed["boards"][0]["title"], "Web tier");
    assert_eq!(listed["boards"][0]["etag"], tag(&changed).trim_matches('"'));
    let file = fs::read(controller.dir().join("boards/web.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&file).unwrap(), second);
    let removed = request(address, "DELETE", &path("web"), &format!("If-Match: {}\r\n", tag(&changed)), "");
    assert_eq!(removed.status, 204, "{}", removed.body);
    assert_eq!(fs::read_dir(controller.dir().join("boards")).unwrap().count(), 0);
}

#[test]
fn what_is_no_board_is_refused() {
    let controller = Controller::start("", "");
    let address = controller.address();
    let new = "If-None-Match: *\r\n";
    let board = json!({"panels": []});
    for name in ["..%2Fjoined", "%2e%2e", ".web", "a%00", "a%20b", &"x".repeat(65)] {
        assert_eq!(put(address, name, new, &board).status, 400, "{name}");
        assert_eq!(request(address, "GET", &path(name), "", "").status, 400, "{name}");
    }
    for body in [json!([]), json!({}), json!("panels"), json!({"panels": [], "title": 1})] {
        assert_eq!(put(address, "web", new, &body).status, 400, "{body}");
    }
    let long = json!({"panels": [], "text": "x".repeat(1 << 20)});
    assert_eq!(put(address, "web", new, &long).status, 413);
    let most = json!({"panels": [], "text": "x".repeat((1 << 20) - 100)});
    assert_eq!(put(address, "web", new, &most).status, 201);
    assert!(!controller.dir().join("joined.json").exists());
}

#[test]
fn who_may_not_write_reads() {
    let controller = Controller::start("boards = \"\"", "");
    let address = controller.address();
    assert_eq!(list(address), json!({"boards": [], "writable": false}));
    let none = put(address, "web", "If-None-Match: *\r\n", &json!({"panels": []}));
    assert_eq!(none.status, 404);
    assert!(none.body.contains("[http] boards"), "{}", none.body);

    // A link is somebody else's.
    let controller = Controller::start("", "");
    let address = controller.address();
    let boards = controller.dir().join("boards");
    fs::create_dir(&boards).unwrap();
    fs::write(controller.dir().join("provisioned"), json!({"title": "Fixed", "panels": []}).to_string()).unwrap();
    std::os::unix::fs::symlink(controller.dir().join("provisioned"), boards.join("fixed.json")).unwrap();
    let read = request(address, "GET", &path("fixed"), "", "");
    assert_eq!((read.status, &list(address)["boards"][0]["writable"]), (200, &json!(false)));
    let base = format!("If-Match: {}\r\n", tag(&read));
    assert_eq!(put(address, "fixed", &base, &json!({"panels": []})).status, 403);
    assert_eq!(request(address, "DELETE", &path("fixed"), &base, "").status, 403);
}

#[test]
fn a_token_is_needed_where_there_is_one_and_pages_elsewhere_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let join = dir.path().join("join");
    fs::write(&token, TOKEN).unwrap();
    fs::write(&join, "a-token-that-adds-hosts").unwrap();
    let controller = Controller::start_in(dir, &format!("token_file = {token:?}\njoin_token_file = {join:?}"), "");
    let address = controller.address();
    let board = json!({"panels": []});
    let new = "If-None-Match: *\r\n";
    for (headers, status) in [
        ("", 401),
        ("Authorization: Bearer a-token-that-adds-hosts\r\n", 401),
        ("Cookie: onlooker_token=wrong\r\n", 401),
        // By a browser that is logged in, for a page elsewhere.
        (&format!("Cookie: onlooker_token={TOKEN}\r\nOrigin: http://evil.example\r\n"), 403),
        (&format!("Cookie: onlooker_token={TOKEN}\r\nSec-Fetch-Site: cross-site\r\n"), 403),
        (&format!("Cookie: onlooker_token={TOKEN}\r\nSec-Fetch-Site: same-origin\r\n"), 201),
    ] {
        assert_eq!(put(address, "web", &format!("{new}{headers}"), &board).status, status, "{headers}");
    }
    assert_eq!(request(address, "GET", &path("web"), "", "").status, 401);
    let bearer = format!("{new}Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(put(address, "other", &bearer, &board).status, 201);
}
