// SPDX-License-Identifier: Apache-2.0
//! A network namespace that plays a watched host, joined to the test's own by a veth pair. It has a name, by which processes
//! enter it. What one test does in its own threads needs none: [`crate::World`].

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use crate::run;

/// A namespace, and a BPF file system for it. Needs root.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    outside_device: String,
    outside: Ipv4Addr,
    inside: Ipv4Addr,
    bpffs: TempDir,
}

impl Namespace {
    /// Makes one. Its device is `eth0`.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        // 198.18.0.0/15 is for tests (RFC 2544): 32768 networks of four addresses, by process and number.
        let network = 0xC612_0000 | (((pid.wrapping_mul(32) + number) & 0x7FFF) << 2);
        let (outside, inside) = (Ipv4Addr::from(network + 1), Ipv4Addr::from(network + 2));
        let (name, outside_device) = (format!("onlk-test-{pid}-{number}"), format!("olkt{:x}", network >> 2 & 0x7FFF));
        let namespace = Self { name, outside_device, outside, inside, bpffs: tempfile::tempdir().unwrap() };
        let Self { name, outside_device, .. } = &namespace;
        ip(&["netns", "add", name]);
        ip(&["link", "add", outside_device, "type", "veth", "peer", "name", "eth0", "netns", name]);
        ip(&["addr", "add", &format!("{outside}/30"), "dev", outside_device]);
        ip(&["link", "set", outside_device, "up"]);
        for arguments in [["link", "set", "lo", "up"], ["link", "set", "eth0", "up"]] {
            ip(&[&["-n", name], arguments.as_slice()].concat());
        }
        ip(&["-n", name, "addr", "add", &format!("{inside}/30"), "dev", "eth0"]);
        run("mount", &["-t", "bpf", "bpf", namespace.bpffs().to_str().unwrap()]);
        namespace
    }

    /// A command that will run in it.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        // `ip netns exec` would hide the BPF file system.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg("--").arg(program);
        command
    }

    /// Its name for `ip netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Device of the veth pair that is outside.
    #[must_use]
    pub fn outside_device(&self) -> &str {
        &self.outside_device
    }

    /// Address of the test's end.
    #[must_use]
    pub fn outside(&self) -> Ipv4Addr {
        self.outside
    }

    /// Address of the namespace's end.
    #[must_use]
    pub fn inside(&self) -> Ipv4Addr {
        self.inside
    }

    /// A BPF file system of its own.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        self.bpffs.path()
    }

    /// Takes the link down or up.
    pub fn link(&self, is_up: bool) {
        ip(&["link", "set", &self.outside_device, if is_up { "up" } else { "down" }]);
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.bpffs.path()).status();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        // Goes with its peer, but not at once; the next one may want the name.
        let _ = Command::new("ip").args(["link", "del", &self.outside_device]).output();
    }
}

fn ip(arguments: &[&str]) {
    run("ip", arguments);
}
