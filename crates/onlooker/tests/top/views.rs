// SPDX-License-Identifier: Apache-2.0
//! Views over an agent with all its tables, in a network namespace of its own: what is on the screen, and what each
//! view reads for it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use onlooker_testbed::{Agent, Namespace, example, is_root, until};
use serde_json::Value;

use crate::terminal::{Shown, Size, Top};

const SIZES: [Size; 3] = [(80, 24), (120, 40), (200, 60)];
const VIEWS: [&str; 5] = ["machine", "processes", "containers", "programs", "series"];
/// Its name as the kernel has it.
const HOG: &str = "hog-of-the-test";
const TABLES: &str = "[sampled]\ninterval = \"100ms\"\n\
    [processes]\nenabled = true\ninterval = \"200ms\"\nby = \"process\"\nrows = 1024\n\
    [cgroups]\nenabled = true\ninterval = \"200ms\"\n";

/// Ends with its value.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that computes, under a name of its own.
fn hog(dir: &Path) -> Ends {
    let program = dir.join(HOG);
    fs::copy("/bin/sh", &program).unwrap();
    Ends(Command::new(program).args(["-c", "while :; do :; done"]).spawn().unwrap())
}

fn once(agent: &Agent, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
    command.args(["top", &agent.address(), "--once", "--token-file"]).arg(agent.token_file()).args(arguments);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A line that begins like this.
fn row(shown: &Shown, begin: &str) -> Option<String> {
    shown.rows.iter().map(|row| row.iter().collect::<String>()).find(|line| line.starts_with(begin))
}

#[test]
#[allow(clippy::print_stdout)] // to be looked at with --nocapture
fn views_show_the_same_host_and_each_reads_only_what_it_shows() {
    if !is_root("top's views over an agent in a network namespace") {
        return;
    }
    let (namespace, dir) = (Namespace::new(), tempfile::tempdir().unwrap());
    let agent = Agent::start_in(&namespace, TABLES);
    let _hog = hog(dir.path());
    let watched = Command::new(example("onlooker", "watched"))
        .env("ONLOOKER_SOCKET", agent.socket())
        .stdin(Stdio::piped())
        .spawn();
    let _watched = Ends(watched.unwrap());
    for size in SIZES {
        let mut top = Top::start_sized(&agent, &[], "", size, "");
        // Without being told it begins with the machine.
        top.until("memory [");
        top.until("FILE SYSTEM");
        top.until("NETWORK");
        until("eth0", || row(&top.shown(), "eth0").or_else(|| top.shown().line(" eth0 ")));
        top.press("2");
        top.until("PROCESS ");
        // It has some of a processor, whoever wants it, too.
        let cpu = |line: &String| {
            line[16..]
                .split_whitespace()
                .find_map(|word| word.parse::<f64>().ok().filter(|cpu| *cpu < 500.0 && word.contains('.')))
        };
        until("the hog's CPU", || row(&top.shown(), HOG).filter(|line| cpu(line).is_some_and(|cpu| cpu > 0.0)));
        top.press("/hog-of\r");
        top.until("processes with `hog-of`");
        top.press("\r");
        top.until("SERIES^ of hog-of-the-test");
        // The first of them in full, at the bottom.
        top.until("onlooker_process_cpu_seconds_total{");
        top.press("\u{1b}");
        top.until("processes with `hog-of`");
        top.press("3");
        top.until("control groups");
        top.until("CONTROL GROUP");
        top.press("4");
        top.until("shop_requests_total");
        assert!(row(&top.shown(), "  ").is_none_or(|line| !line.contains("node_")), "of programs only");
        top.press("\t");
        until("all series", || top.shown().line("SERIES").filter(|line| line.contains(" of ")));
        // Keys of all views stand in the last line, whatever the size.
        let last: String = top.shown().rows.last().unwrap().iter().collect();
        assert!(VIEWS.iter().all(|view| last.contains(view)) && last.contains("q quit"), "{last}");
        assert!(top.shown().line("this view reads").is_some_and(|line| line.contains("so far")));
        top.press("?");
        top.until("VIEWS");
        top.press("xq");
        assert_eq!(top.ended(), 0);
        let raw = top.shown().raw;
        let frames = raw.matches("\u{1b}[?2026h").count();
        assert!(frames > 5 && raw.matches("\u{1b}[?2026l").count() >= frames, "whole frames only");
    }
    let read: Vec<(f64, Value)> = VIEWS.iter().map(|view| bytes(&agent, view)).collect();
    for (view, (bytes, _)) in VIEWS.iter().zip(&read) {
        println!("{view}: {bytes:.0} bytes a second");
    }
    let [machine, processes, containers, programs, series] = [0, 1, 2, 3, 4].map(|at| &read[at].1);
    assert!(machine["machine"]["memory"]["total_bytes"].as_f64().unwrap() > 0.0);
    assert!(machine["machine"]["cpu"]["busy"].as_f64().unwrap() > 0.0);
    let hog = |row: &&Value| row["name"] == HOG;
    let row = processes["rows"].as_array().unwrap().iter().find(hog).expect("the hog");
    assert!(row["cpu_cores"].as_f64().unwrap() > 0.0 && row["memory_bytes"].as_f64().unwrap() > 0.0, "{row}");
    assert!(!containers["rows"].as_array().unwrap().is_empty());
    let names = |of: &Value| -> Vec<String> {
        of["rows"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(programs).iter().all(|name| name.starts_with("shop_")), "{:?}", names(programs));
    assert!(names(series).iter().any(|name| name.starts_with("node_")));
    // Programs cost least. Of the others it depends on the machine: how many processes there are, and how busy it is.
    let rates: Vec<f64> = read.iter().map(|(bytes, _)| *bytes).collect();
    assert!(rates.iter().enumerate().all(|(view, rate)| view == 3 || *rate > rates[3]), "{rates:?}");
    let text = String::from_utf8(once(&agent, &["--view", "processes", "--search", HOG, "--width", "80"])).unwrap();
    assert!(
        text.lines().any(|line| line.starts_with(HOG)) && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

/// Bytes that the view reads a second, and what it says.
fn bytes(agent: &Agent, view: &str) -> (f64, Value) {
    let said: Value = serde_json::from_slice(&once(agent, &["--json", "--view", view])).unwrap();
    assert_eq!(said["view"], view);
    assert!(said["read"]["bytes"].as_f64().unwrap() > 0.0, "{}", said["read"]);
    (said["read"]["bytes_per_second"].as_f64().unwrap(), said)
}

#[test]
fn a_view_whose_table_is_off_says_how_to_switch_it_on() {
    let agent = Agent::start();
    for (view, section) in [("processes", "[processes]"), ("containers", "[cgroups]")] {
        let text = String::from_utf8(once(&agent, &["--view", view])).unwrap();
        assert!(text.contains(section) && text.contains("enabled = true"), "{text}");
        let said: Value = serde_json::from_slice(&once(&agent, &["--json", "--view", view])).unwrap();
        assert_eq!(said["published"], false);
    }
    let text = String::from_utf8(once(&agent, &["--view", "programs"])).unwrap();
    assert!(text.contains("No program on this host has registered"), "{text}");
    for (arguments, why) in [
        (&["--view", "processes", "--region", "node_cpu"][..], "--region shows series"),
        (&["--view", "machine", "--search", "x"], "no rows for --search"),
        (&["--view", "processes", "--sort", "nosuch"], "cpu_cores"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
        let output = command.args(["top", &agent.address(), "--once"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}
