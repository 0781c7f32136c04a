// SPDX-License-Identifier: Apache-2.0
//! The configuration files of a demo's agents and controller.

use super::network;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often an agent without responder samples its kernel's values, and how often such a host is read.
pub(super) const SAMPLED: Duration = Duration::from_millis(100);

/// A duration as the files have it.
fn span(time: Duration) -> String {
    format!("{}ns", time.as_nanos())
}

/// An agent.
#[derive(Debug)]
pub(super) struct Agent<'a> {
    /// Its files lie here.
    pub(super) dir: &'a Path,
    pub(super) listen: Ipv4Addr,
    /// Who may read.
    pub(super) reader: Ipv4Addr,
    /// Where its responder's pins go; None: no responder.
    pub(super) bpffs: Option<&'a Path>,
    /// What it calls itself.
    pub(super) host: &'a str,
    /// Whether it takes the made-up network's reports.
    pub(super) telemetry: bool,
}

impl Agent<'_> {
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    pub(super) fn toml(&self) -> String {
        let Self { listen, reader, .. } = self;
        let mut text = format!(
            "[agent]\nsocket = {:?}\nstate_dir = {:?}\nhost = {:?}\n[bootstrap]\nlisten = \"{listen}:0\"\nallow = [\"{reader}/32\"]\n\
             [tcp]\nlisten = \"{listen}:0\"\nallow = [\"{reader}/32\"]\n",
            self.socket(),
            self.dir.join("state"),
            self.host,
        );
        // The agent samples once a second what its responder cannot compute (devices, caches): more often than it would, so that charts move.
        if let Some(bpffs) = self.bpffs {
            let _ = write!(
                text,
                "[kernel]\ndevices = [\"eth0\"]\nallow = [\"{reader}/32\"]\nbpffs = {bpffs:?}\nname = \"demo\"\nsample = \"1s\"\n"
            );
            if self.telemetry {
                text.push_str(&telemetry(*reader));
            }
            text.push_str("[sampled]\ninterval = \"1s\"\n");
        } else {
            let _ = writeln!(text, "[sampled]\ninterval = \"{}\"", span(SAMPLED));
        }
        // Who uses the CPU is what people ask first. Off by default elsewhere, since it costs 20 us a process.
        text.push_str("[processes]\nenabled = true\nby = \"process\"\ninterval = \"1s\"\n[cgroups]\nenabled = true\n");
        text
    }
}

/// Tables of the made-up network.
fn telemetry(reporter: Ipv4Addr) -> String {
    let mut text = format!("[kernel.telemetry]\nallow = [\"{reporter}/32\"]\n");
    for (number, name, more) in [
        (network::PATHS, "flow_paths", "primitive = \"key-write\"\npayload_bytes = 20\ncheck_bytes = 8"),
        (network::DROPS, "drops", "primitive = \"append\"\npayload_bytes = 18\nbatch = 4"),
        (network::LOOPS, "loops", "primitive = \"append\"\npayload_bytes = 18\nbatch = 4"),
        (network::BYTES, "flow_bytes", "primitive = \"key-increment\""),
    ] {
        let _ = write!(
            text,
            "[[kernel.telemetry.tables]]\nname = \"{name}\"\nnumber = {number}\nmemory = \"1MiB\"\naccess_key = \"{}\"\n{more}\n",
            network::ACCESS_KEY
        );
    }
    text
}

/// A host that the controller reads.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) address: String,
    pub(super) token: PathBuf,
    pub(super) interval: Duration,
    pub(super) role: &'static str,
}

/// controller.toml. The store is of the least size that it can have.
pub(super) fn controller(dir: &Path, listen: SocketAddr, targets: &[Target]) -> String {
    let mut text = format!(
        "[http]\nlisten = \"{listen}\"\nboards = {:?}\n[store]\ndir = {:?}\nhot_file = {:?}\nhot_bytes = \"32MiB\"\nmax_bytes = \"64MiB\"\n",
        dir.join("boards"),
        dir.join("store"),
        dir.join("hot"),
    );
    for Target { name, address, token, interval, role } in targets {
        let _ = write!(
            text,
            "[[targets]]\nname = \"{name}\"\naddress = \"{address}\"\ntoken_file = {token:?}\ninterval = \"{}\"\nlabels = {{ role = \"{role}\" }}\n",
            span(*interval)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_controller::config::Config;

    #[test]
    fn the_controller_takes_it() {
        let target = Target {
            name: "demo-host",
            address: "198.18.77.2:7177".into(),
            token: "/t".into(),
            interval: Duration::from_millis(10),
            role: "demo",
        };
        let text = controller(Path::new("/d"), SocketAddr::from(([127, 0, 0, 1], 7180)), &[target]);
        let config = Config::parse(Path::new("c"), &text).unwrap();
        assert_eq!(config.targets[0].interval.map(|interval| interval.as_ns()), Some(10_000_000));
        assert!(config.store().max_bytes <= 64 << 20);
    }
}
