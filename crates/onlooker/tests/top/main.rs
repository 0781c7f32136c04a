// SPDX-License-Identifier: Apache-2.0
//! `onlooker top` in a terminal over a real agent: what keys do, what views show, and that the terminal is given back.

mod terminal;
mod views;

use std::process::{Command, Stdio};

use onlooker_testbed::{Agent, until};
use rustix::process::{Signal, kill_process};

use terminal::Top;

#[test]
fn keys_do_what_they_say_and_q_gives_the_terminal_back() {
    let agent = Agent::start();
    let mut top = Top::start(&agent, &[]);
    assert!(top.until("over TCP").contains("each reading wakes it"));
    until("rates", || top.shown().line("node_context_switches_total").filter(|line| line.contains("/s")));
    top.until("cpu0   [");
    top.press("/node_load");
    top.until("search: node_load_");
    top.press("\r");
    assert!(top.until("SERIES").contains("1 of 3"));
    top.press("\u{1b}[B");
    until("the next row", || top.shown().line("SERIES").filter(|line| line.contains("2 of 3")));
    top.press("v");
    top.until("VALUEv");
    top.press("?");
    top.until("any key goes back");
    top.press("x");
    top.until("q quit");
    top.press(" ");
    top.until("PAUSED at");
    top.press(" ");
    until("no pause", || top.shown().line("PAUSED at").is_none().then_some(()));
    top.press("q");
    assert_eq!(top.ended(), 0);
    let raw = top.shown().raw;
    assert!(raw.contains("\u{1b}[38;5;"), "colours");
    // A terminal that knows it shows whole frames only.
    let (began, ended) = (raw.matches("\u{1b}[?2026h").count(), raw.matches("\u{1b}[?2026l").count());
    assert!(began > 1 && ended >= began, "{began} frames begun, {ended} ended");
}

#[test]
fn signals_and_control_c_give_the_terminal_back() {
    let agent = Agent::start();
    let top = Top::start(&agent, &[("NO_COLOR", "1")]);
    kill_process(top.pid(), Signal::TERM).unwrap();
    assert_eq!(top.ended(), 143, "as SIGTERM ends");
    let raw = top.shown().raw;
    assert!(!raw.contains("\u{1b}[38;5;") && !raw.contains("\u{1b}[48;5;"), "no colour where NO_COLOR is set");
    let mut top = Top::start(&agent, &[]);
    top.press("\u{3}");
    assert_eq!(top.ended(), 0);
}

#[test]
fn it_ends_with_its_terminal() {
    let agent = Agent::start();
    // The shell gets the hang-up and passes it on, or, as under nohup, keeps it to itself.
    for before in ["", "trap '' HUP;"] {
        let mut top = Top::start_after(&agent, &[], before);
        let pid = top.pid();
        top.terminal.kill().unwrap();
        until("its end", || rustix::process::test_kill_process(pid).is_err().then_some(()));
    }
}

#[test]
fn a_host_that_dies_is_told_and_comes_back() {
    let mut agent = Agent::start();
    let mut top = Top::start(&agent, &[]);
    agent.kill();
    let line = top.until("NO DATA since");
    assert!(line.contains("UTC"), "{line}");
    top.until("refuses the connection");
    assert!(top.shown().line("node_boot_time").is_some(), "the last values stay");
    agent.run();
    let gaps = until("the host again", || top.shown().line("gaps ").filter(|line| line.contains("unreachable")));
    assert!(gaps.contains("lost 1"), "{gaps}");
    // And once more, to be left while it is away.
    agent.kill();
    top.until("NO DATA since");
    top.press("q");
    assert_eq!(top.ended(), 0);
}

#[test]
fn without_a_terminal_there_is_once() {
    let agent = Agent::start();
    let top = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
        command.args(["top", &agent.address(), "--token-file"]).arg(agent.token_file()).args(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    };
    let output = top(&[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code() == Some(1) && said.contains("needs a terminal") && said.contains("onlooker read"),
        "{said}"
    );
    for (arguments, why) in [
        (["--region", "nosuch"], "no region `nosuch`: "),
        (["--search", "no such words"], "no series has all of these words: no such words ("),
    ] {
        let output = top(&[&["--once"][..], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(why) && !said.contains("Esc"), "{said}");
        assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    }
    // A busy machine reads late, but not always.
    let (mut text, mut tries) = (String::new(), 0);
    while !text.contains("no gaps in") {
        assert!(tries < 10, "{text}");
        tries += 1;
        let output = top(&["--once", "--search", "node_network_receive_bytes", "--sort", "rate", "--width", "100"]);
        assert!(output.status.success());
        text = String::from_utf8(output.stdout).unwrap();
    }
    assert!(text.contains("RATEv"), "{text}");
    assert!(text.lines().any(|line| line.contains("device=lo") && line.contains("B/s")), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100 && !line.contains('\u{1b}')), "{text}");
}
