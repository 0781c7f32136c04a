// SPDX-License-Identifier: Apache-2.0
//! A terminal of its own (a pty made by script(1)) with `onlooker top` in it, and what that shows.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use onlooker_testbed::{Agent, until};
use rustix::process::Pid;

/// Columns and rows.
pub(crate) type Size = (usize, usize);

/// What the terminal shows: places of the cursor and texts are all that top uses.
pub(crate) struct Shown {
    pub(crate) raw: String,
    pub(crate) rows: Vec<Vec<char>>,
}

impl Shown {
    fn of(raw: &str, (columns, rows): Size) -> Self {
        let mut rows = vec![vec![' '; columns]; rows];
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

    pub(crate) fn line(&self, part: &str) -> Option<String> {
        self.rows.iter().map(|row| row.iter().collect::<String>()).find(|line| line.contains(part))
    }
}

/// A terminal with `onlooker top` in it.
pub(crate) struct Top {
    pub(crate) terminal: Child,
    keys: ChildStdin,
    raw: Arc<Mutex<Vec<u8>>>,
    size: Size,
    dir: tempfile::TempDir,
}

impl Top {
    /// All series.
    pub(crate) fn start(agent: &Agent, environment: &[(&str, &str)]) -> Self {
        Self::start_after(agent, environment, "")
    }

    /// After these words of the shell.
    pub(crate) fn start_after(agent: &Agent, environment: &[(&str, &str)], before: &str) -> Self {
        Self::start_sized(agent, environment, before, (120, 36), "--view series")
    }

    /// In a terminal of this size, with these arguments.
    pub(crate) fn start_sized(
        agent: &Agent,
        environment: &[(&str, &str)],
        before: &str,
        size: Size,
        arguments: &str,
    ) -> Self {
        let (columns, rows) = size;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let command = format!(
            "{before} stty rows {rows} cols {columns}; stty -a >{settings}; (sh -c 'echo $$ >{pid}; exec {onlooker} top {host} --token-file {token} {arguments}'; echo $? >{status}); stty -a >{after}; sleep 60",
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
        let top = Self { terminal, keys, raw, size, dir };
        // A busy machine may read late at once: a gap, which stays.
        top.until(" readings");
        top
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn pid(&self) -> Pid {
        let pid = until("its pid", || fs::read_to_string(self.file("pid")).ok()?.trim().parse().ok());
        Pid::from_raw(pid).unwrap()
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    pub(crate) fn shown(&self) -> Shown {
        Shown::of(&String::from_utf8_lossy(&self.raw.lock().unwrap()), self.size)
    }

    /// Waits for a line that contains this.
    pub(crate) fn until(&self, part: &str) -> String {
        until(part, || self.shown().line(part))
    }

    /// Waits for its end; gives the shell's status.
    pub(crate) fn ended(&self) -> i32 {
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
