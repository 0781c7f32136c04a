// SPDX-License-Identifier: Apache-2.0
//! A real controller with a directory of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::{Process, binary};

/// A controller. Dropping it kills it.
#[derive(Debug)]
pub struct Controller {
    dir: TempDir,
    capabilities: Option<String>,
    environment: Vec<(String, String)>,
    process: Option<Process>,
    address: SocketAddr,
}

impl Controller {
    /// Starts one on loopback with a store of its own. `http` are further keys of `[http]`, `rest` further sections ([`crate::Agent::target`]).
    #[must_use]
    pub fn start(http: &str, rest: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), http, rest)
    }

    /// As [`Controller::start`], in a directory that has files which the configuration names.
    #[must_use]
    pub fn start_in(dir: TempDir, http: &str, rest: &str) -> Self {
        Self::start_with(dir, &[], http, rest)
    }

    /// As [`Controller::start_in`], with more variables in its environment.
    #[must_use]
    pub fn start_with(dir: TempDir, environment: &[(&str, &str)], http: &str, rest: &str) -> Self {
        let path = |name: &str| dir.path().join(name);
        let boards = if http.contains("boards =") { String::new() } else { format!("boards = {:?}", path("boards")) };
        let text = format!(
            "[http]\nlisten = \"127.0.0.1:0\"\n{boards}\n{http}\n[store]\ndir = {:?}\nhot_file = {:?}\nhot_bytes = \"16MiB\"\nmax_bytes = \"64MiB\"\n\
             [joined]\nfile = {:?}\n{rest}",
            path("store"),
            path("hot"),
            path("joined.json"),
        );
        fs::write(path("controller.toml"), text).unwrap();
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut controller = Self { dir, capabilities: None, environment, process: None, address };
        controller.start_again();
        controller
    }

    /// Starts it again as root with these capabilities only, as setpriv names them.
    pub fn start_again_with(&mut self, capabilities: &str) {
        self.capabilities = Some(capabilities.to_owned());
        self.start_again();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it again, killed before if it runs. The address is another one.
    pub fn start_again(&mut self) {
        self.process = None;
        let program = binary("onlooker", "onlooker");
        let mut command = match &self.capabilities {
            None => Command::new(program),
            Some(capabilities) => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--bounding-set=-all,+{capabilities}")).arg("--").arg(program);
                command
            }
        };
        command.arg("controller").arg("--config").arg(self.dir.path().join("controller.toml"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let (process, line) = Process::start(&mut command, "dashboard http");
        let address = line.split("://").nth(1).expect("an address").trim().trim_end_matches('/');
        self.address = address.parse().unwrap();
        self.process = Some(process);
    }

    /// Where its HTTP is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs")
    }

    /// Takes its process, to end it in some way.
    pub fn take_process(&mut self) -> Process {
        self.process.take().expect("it runs")
    }

    /// Its files: `controller.toml`, `store`, `hot`, `joined.json`, `boards`.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}
