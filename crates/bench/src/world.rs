// SPDX-License-Identifier: Apache-2.0
//! The watched machine on this one: a network namespace whose packets are received on the watched core.
//!
//! ```text
//! asking namespace (this process)                     watched namespace
//!   ask  10.78.1.2 ─────────── veth ──────────── web  10.78.1.1    receive side on core 1 by rps_cpus: tc, TCP
//!   asx  10.78.2.2 ── veth ── bridge ── veth ─── wex  10.78.2.1    for native XDP: see below
//! ```
//!
//! On a veth pair the receiver's softirq work is done by the sender, in its own system call; `rps_cpus` gives it to another core, as a card's interrupt
//! would. Native XDP runs before that, where the sender's core polls the device. So its link goes through a bridge in a third namespace, whose near port has
//! the `rps_cpus`: the bridge forwards on the watched core, and that core polls the device with the program.
//!
//! Answers are received on the asking core in the same way. All of it belongs to this process: nothing has a name outside, and it is gone with it.

use anyhow::{Context, Result, ensure};
use onlooker_testbed::Network;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::process::Command;

pub(crate) const ASKING: &str = "10.78.1.2";
pub(crate) const WATCHED: &str = "10.78.1.1";
pub(crate) const ASKING_XDP: &str = "10.78.2.2";
pub(crate) const WATCHED_XDP: &str = "10.78.2.1";
pub(crate) const WATCHED_DEVICE: &str = "web";
pub(crate) const WATCHED_XDP_DEVICE: &str = "wex";
pub(crate) const ASKING_XDP_DEVICE: &str = "asx";
/// The bridge's port towards the watched namespace; it needs an XDP program so that veth takes frames from XDP.
pub(crate) const BRIDGE_XDP_DEVICE: &str = "brw";
pub(crate) const ASKING_XDP_MAC: [u8; 6] = [2, 0, 0, 0, 0x78, 2];
pub(crate) const WATCHED_XDP_MAC: [u8; 6] = [2, 0, 0, 0, 0x78, 1];

#[derive(Debug)]
pub(crate) struct World {
    watched: Network,
    bridge: Network,
    own: onlooker_testbed::World,
    sysfs: tempfile::TempDir,
}

impl World {
    /// Moves the calling thread, which must be the only one, and makes the rest.
    pub(crate) fn new() -> Result<Self> {
        let own = onlooker_testbed::World::try_new().map_err(anyhow::Error::msg).context("a world (needs root)")?;
        let world = Self { watched: Network::new(), bridge: Network::new(), own, sysfs: tempfile::tempdir()? };
        world.connect()?;
        Ok(world)
    }

    fn connect(&self) -> Result<()> {
        self.watched.add_veth("ask", WATCHED_DEVICE);
        self.bridge.add_veth(ASKING_XDP_DEVICE, "bra");
        bring_up("ask", Some(ASKING), None)?;
        bring_up(ASKING_XDP_DEVICE, Some(ASKING_XDP), Some(ASKING_XDP_MAC))?;
        self.on_bridge(|| {
            self.watched.add_veth(BRIDGE_XDP_DEVICE, WATCHED_XDP_DEVICE);
            run("ip", &["link", "add", "bridge", "type", "bridge"])?;
            for device in ["bra", BRIDGE_XDP_DEVICE, "bridge"] {
                if device != "bridge" {
                    run("ip", &["link", "set", device, "master", "bridge"])?;
                }
                bring_up(device, None, None)?;
            }
            // A firewall on the bridge, where the kernel has it, would trim padding behind the IP packet.
            let firewall = "/proc/sys/net/bridge/bridge-nf-call-iptables";
            if fs::exists(firewall)? {
                fs::write(firewall, "0").context(firewall)?;
            }
            self.receive_on("bra", crate::machine::WATCHED_CORE)
        })?;
        self.on_watched(|| {
            run("ip", &["link", "set", "lo", "up"])?;
            bring_up(WATCHED_DEVICE, Some(WATCHED), None)?;
            bring_up(WATCHED_XDP_DEVICE, Some(WATCHED_XDP), Some(WATCHED_XDP_MAC))?;
            self.receive_on(WATCHED_DEVICE, crate::machine::WATCHED_CORE)
        })?;
        self.receive_on("ask", crate::machine::ASKING_CORE)?;
        self.receive_on(ASKING_XDP_DEVICE, crate::machine::ASKING_CORE)
    }

    /// `rps_cpus` of a device of the caller's namespace. sysfs shows the namespace that mounted it, so each gets a mount of its own.
    pub(crate) fn receive_on(&self, device: &str, core: usize) -> Result<()> {
        let sysfs = self.sysfs.path();
        run("mount", &["-t", "sysfs", "sysfs", &sysfs.to_string_lossy()])?;
        let path = sysfs.join(format!("class/net/{device}/queues/rx-0/rps_cpus"));
        let written = fs::write(&path, format!("{:x}", 1u32 << core)).with_context(|| path.display().to_string());
        run("umount", &[&sysfs.to_string_lossy()])?;
        written
    }

    /// Longer packets between the asking and the watched namespace than Ethernet has.
    pub(crate) fn raise_mtu(&self) -> Result<()> {
        self.on_watched(|| run("ip", &["link", "set", WATCHED_DEVICE, "mtu", "9000"]))?;
        run("ip", &["link", "set", "ask", "mtu", "9000"])
    }

    /// The watched namespace, for further devices.
    pub(crate) fn network(&self) -> &Network {
        &self.watched
    }

    pub(crate) fn watched(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }

    pub(crate) fn bpffs(&self) -> &Path {
        self.own.bpffs()
    }

    /// Runs something in the watched namespace. Sockets made there stay there; programs do not: see [`crate::children::start`].
    pub(crate) fn on_watched<T: Send>(&self, action: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.watched.enter(action)
    }

    /// The same in the bridge's namespace.
    pub(crate) fn on_bridge<T: Send>(&self, action: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.bridge.enter(action)
    }
}

pub(crate) fn bring_up(device: &str, address: Option<&str>, mac: Option<[u8; 6]>) -> Result<()> {
    // Router solicitations and the like would be packets that nobody asked for.
    let ipv6 = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    if fs::exists(&ipv6)? {
        fs::write(&ipv6, "1")?;
    }
    if let Some(mac) = mac {
        let text = mac.map(|byte| format!("{byte:02x}")).join(":");
        run("ip", &["link", "set", device, "address", &text])?;
    }
    if let Some(address) = address {
        run("ip", &["address", "add", &format!("{address}/24"), "dev", device])?;
    }
    run("ip", &["link", "set", device, "up"])
}

/// Runs a command in the caller's namespaces.
pub(crate) fn run(command: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(command).args(arguments).output().with_context(|| format!("starting {command}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command} {}: {error}", arguments.join(" "));
    Ok(())
}
