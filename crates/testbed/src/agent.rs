// SPDX-License-Identifier: Apache-2.0
//! A real agent with a directory of its own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Namespace, Process, binary, free_port};

/// What a test adds to an agent's configuration, as lines of TOML.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keys<'a> {
    /// Keys of `[agent]`.
    pub agent: &'a str,
    /// Keys of `[bootstrap]`.
    pub bootstrap: &'a str,
    /// Keys of `[tcp]`.
    pub tcp: &'a str,
    /// Further sections.
    pub more: &'a str,
}

/// An agent. Dropping it kills it; its kernel responder, if it has one, is purged.
#[derive(Debug)]
pub struct Agent {
    dir: TempDir,
    address: SocketAddr,
    enter: Vec<String>,
    has_kernel: bool,
    process: Option<Process>,
}

impl Agent {
    /// On loopback, sampling every 20 ms.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with("[sampled]\ninterval = \"20ms\"\n")
    }

    /// On loopback, with `more` sections of agent.toml besides `[agent]`, `[bootstrap]`, `[tcp]`.
    #[must_use]
    pub fn start_with(more: &str) -> Self {
        let tcp = "max_connections = 1000\nmax_connections_per_source = 1000";
        Self::start_keys(Keys { tcp, more, ..Keys::default() })
    }

    /// On loopback, with these keys.
    #[must_use]
    pub fn start_keys(keys: Keys) -> Self {
        let loopback = Ipv4Addr::LOCALHOST.into();
        Self::on(SocketAddr::new(loopback, free_port()), SocketAddr::new(loopback, 0), keys, Vec::new())
    }

    /// In a namespace, over TCP, readable from outside of it; with `more` sections.
    #[must_use]
    pub fn start_in(namespace: &Namespace, more: &str) -> Self {
        let (inside, outside) = (namespace.inside(), namespace.outside());
        let enter = vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", namespace.name()), "--".to_owned()];
        let at = |port| SocketAddr::new(inside.into(), port);
        let tcp = format!("allow = [\"{outside}/32\"]");
        Self::on(at(7177), at(7178), Keys { tcp: &tcp, more, ..Keys::default() }, enter)
    }

    /// In a namespace with the kernel responder on its device; with `more` keys of `[kernel]`, sections behind them.
    #[must_use]
    pub fn start_kernel(namespace: &Namespace, more: &str) -> Self {
        let (outside, bpffs) = (namespace.outside(), namespace.bpffs());
        let kernel = format!("[kernel]\ndevices = [\"eth0\"]\nallow = [\"{outside}/32\"]\nbpffs = {bpffs:?}\n{more}");
        Self::start_in(namespace, &kernel)
    }

    fn on(address: SocketAddr, reads: SocketAddr, keys: Keys, enter: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let Keys { agent, bootstrap, tcp, more } = keys;
        let text = format!(
            "[agent]\nsocket = {:?}\nstate_dir = {:?}\n{agent}\n[bootstrap]\nlisten = \"{address}\"\n{bootstrap}\n\
             [tcp]\nlisten = \"{reads}\"\n{tcp}\n{more}",
            dir.path().join("agent.sock"),
            dir.path().join("state"),
        );
        fs::write(dir.path().join("agent.toml"), text).unwrap();
        let has_kernel = more.contains("[kernel]");
        let mut agent = Self { dir, address, enter, has_kernel, process: None };
        agent.run();
        let token = agent.command("token").output().unwrap();
        assert!(token.status.success(), "{}", String::from_utf8_lossy(&token.stderr));
        fs::write(agent.token_file(), token.stdout).unwrap();
        agent
    }

    /// `onlooker-agent SUBCOMMAND --config ...`, in its namespace.
    #[must_use]
    pub fn command(&self, subcommand: &str) -> Command {
        let agent = binary("onlooker-agent", "onlooker-agent");
        let mut command = match self.enter.split_first() {
            Some((enter, arguments)) => {
                let mut command = Command::new(enter);
                command.args(arguments).arg(agent);
                command
            }
            None => Command::new(agent),
        };
        command.arg(subcommand).arg("--config").arg(self.dir.path().join("agent.toml"));
        command
    }

    /// Starts it (again) and waits until it is ready.
    pub fn run(&mut self) {
        self.process = Some(Process::start(&mut self.command("run"), "ready: ").0);
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Its process, while it runs.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// Its files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Address of its bootstrap endpoint.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Port of its bootstrap endpoint.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Socket for programs: `ONLOOKER_SOCKET`.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    /// File with its join token.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// Its join token.
    #[must_use]
    pub fn token(&self) -> String {
        fs::read_to_string(self.token_file()).unwrap().trim().to_owned()
    }

    /// A `[[targets]]` section of controller.toml; further keys may be put behind it.
    #[must_use]
    pub fn target(&self, name: &str) -> String {
        format!(
            "[[targets]]\naddress = \"{}\"\nname = {name:?}\ntoken_file = {:?}\n",
            self.address(),
            self.token_file()
        )
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.process = None;
        if self.has_kernel {
            let _ = self.command("purge").output();
        }
    }
}
