// SPDX-License-Identifier: Apache-2.0
//! `onlooker top` in a terminal of its own (a pty made by script(1)) over a real agent: what keys do, and that the terminal is given back.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use onlooker_testbed::{Agent, until};
use rustix::process::{Pid, Signal, kill_process};

const COLUMNS: usize = 120;
const ROWS: usize = 36;

/// What the terminal shows: places of the cursor and texts are all that top uses.
#[derive(Default)]
struct Shown {
    raw: String,
    rows: Vec<Vec<char>>,
}

impl Shown {
    fn of(raw: &str) -> Self {
        let mut rows = vec![vec![' '; COLUMNS]; ROWS];
        let (mut x, mut y) = (0, 0);
        let mut chars = raw.chars();
        while let Some(c) = chars.next() {
            match c {
                '\u{1b}' => {
                    if chars.next() != Some('[') {
                        continue;
                    }
                    let mut arguments = String::new();
                    let end = chars.by_ref().find(|c| {
                        arguments.push(*c);
                        c.is_ascii_alphabetic()
                    });
                    let numbers: Vec<usize> =
                        arguments.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
                    match end {
                        Some('H') => {
                            (y, x) = (numbers.first().map_or(0, |n| n - 1), numbers.get(1).map_or(0, |n| n - 1))
                        }
                        Some('J') => rows.iter_mut().for_each(|row| row.fill(' ')),
                        _ => {}
                    }
                }
                '\r' => x = 0,
                '\n' => y += 1,
                c => {
                    if let Some(cell) = rows.get_mut(y).and_then(|row| row.get_mut(x)) {
                        *cell = c;
                    }
                    x += 1;
                }
            }
        }
        Self { raw: raw.to_owned(), rows }
    }

    fn line(&self, part: &str) -> Option<String> {
        self.rows.iter().map(|row| row.iter().collect::<String>()).find(|line| line.contains(part))
    }
}

struct Top {
    terminal: Child,
    keys: ChildStdin,
    raw: Arc<Mutex<Vec<u8>>>,
    dir: tempfile::TempDir,
}

impl Top {
    fn start(agent: &Agent, environment: &[(&str, &str)]) -> Self {
        Self::start_after(agent, environment, "")
    }

    /// After these words of the shell.
    fn start_after(agent: &Agent, environment: &[(&str, &str)], before: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let command = format!(
            "{before} stty rows {ROWS} cols {COLUMNS}; stty -a >{settings}; (sh -c 'echo $$ >{pid}; exec {onlooker} top {host} --token-file {token}'; echo $? >{status}); stty -a >{after}; sleep 60",
            settings = at("before"),
            after = at("after"),
            pid = at("pid"),
            status = at("status"),
            onlooker = env!("CARGO_BIN_EXE_onlooker"),
            host = agent.address(),
            token = agent.token_file().display(),
        );
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--flush", "--command", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR");
        script.envs(environment.iter().copied());
        let mut terminal =
            script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script(1), of Debian's bsdutils");
        let (keys, mut output) = (terminal.stdin.take().unwrap(), terminal.stdout.take().unwrap());
        let raw = Arc::new(Mutex::new(Vec::new()));
        let sink = raw.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut some) {
                sink.lock().unwrap().extend_from_slice(&some[..count]);
            }
        });
        let top = Self { terminal, keys, raw, dir };
        // A busy machine may read late at once: a gap, which stays.
        top.until(" readings");
        top
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn pid(&self) -> Pid {
        let pid = until("its pid", || fs::read_to_string(self.file("pid")).ok()?.trim().parse().ok());
        Pid::from_raw(pid).unwrap()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn shown(&self) -> Shown {
        Shown::of(&String::from_utf8_lossy(&self.raw.lock().unwrap()))
    }

    /// Waits for a line that contains this.
    fn until(&self, part: &str) -> String {
        until(part, || self.shown().line(part))
    }

    /// Waits for its end; gives the shell's status.
    fn ended(&self) -> i32 {
        let read = |name: &str| fs::read_to_string(self.file(name)).ok().filter(|text| text.ends_with('\n'));
        let after = until("its end", || read("after"));
        assert_eq!(read("before"), Some(after), "the terminal's settings are given back");
        // The terminal may tell the last of it later.
        until("the screen and the cursor are given back", || {
            let raw = self.shown().raw;
            let (came, went) = (raw.rfind("\u{1b}[?1049h"), raw.rfind("\u{1b}[?1049l"));
            let is_cursor_back = raw.rfind("\u{1b}[?25l") < raw.rfind("\u{1b}[?25h");
            (came.is_some() && came < went && is_cursor_back).then_some(())
        });
        read("status").unwrap().trim().parse().unwrap()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.terminal.kill();
        let _ = self.terminal.wait();
    }
}

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
    top.press("2");
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
