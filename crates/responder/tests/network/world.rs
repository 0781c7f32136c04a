// SPDX-License-Identifier: Apache-2.0
//! Two network namespaces and a BPF file system of one test. All of it belongs to the test's thread and its children: it is gone when they are, however
//! they end. Nothing has a name outside.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onlooker_responder::{Config, Device, Home, Kind, Pinned, Prefix, Region};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::support::{RKEY, VA};

pub(crate) const RESPONDER_IP4: &str = "10.77.1.1";
pub(crate) const REQUESTER_IP4: &str = "10.77.1.2";
pub(crate) const RESPONDER_IP6: &str = "fd77:1::1";
pub(crate) const REQUESTER_IP6: &str = "fd77:1::2";
pub(crate) const RESPONDER_MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
pub(crate) const REQUESTER_MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 2];
/// Devices of responder and requester.
pub(crate) const RESPONDER_DEVICE: &str = "ve1";
pub(crate) const REQUESTER_DEVICE: &str = "ve2";
pub(crate) const PORT: u16 = 4792;
pub(crate) const SLAB: u32 = 0;
pub(crate) const SLAB_BLOCKS: u32 = 64;

/// The world of a test: its thread is in the responder's namespace.
pub(crate) struct World {
    requester: OwnedFd,
    bpffs: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let flags = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
        // SAFETY: no file descriptor table is unshared, so every descriptor stays valid; only this thread's namespaces change.
        unsafe { unshare_unsafe(flags) }.expect("the tests need root (CAP_SYS_ADMIN)");
        run("mount", &["--make-rprivate", "/"]);
        let bpffs = tempfile::tempdir().unwrap();
        run("mount", &["-t", "bpf", "bpf", bpffs.path().to_str().unwrap()]);
        let requester = std::thread::spawn(|| {
            // SAFETY: as above, and the thread ends after opening a file.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            OwnedFd::from(std::fs::File::open("/proc/thread-self/ns/net").unwrap())
        });
        let world = Self { requester: requester.join().unwrap(), bpffs };
        world.connect();
        world
    }

    /// The veth pair between both namespaces, with addresses.
    pub(crate) fn connect(&self) {
        let peer = format!("/proc/{}/fd/{}", std::process::id(), self.requester.as_raw_fd());
        run("ip", &["link", "set", "lo", "up"]);
        run("ip", &["link", "add", RESPONDER_DEVICE, "type", "veth", "peer", "name", REQUESTER_DEVICE]);
        run("ip", &["link", "set", REQUESTER_DEVICE, "netns", &peer]);
        bring_up(RESPONDER_DEVICE, RESPONDER_MAC, [RESPONDER_IP4, RESPONDER_IP6]);
        self.at_requester(|| bring_up(REQUESTER_DEVICE, REQUESTER_MAC, [REQUESTER_IP4, REQUESTER_IP6]));
    }

    /// Runs something in the requester's namespace. Sockets made there stay there.
    pub(crate) fn at_requester<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let namespace = self.requester.as_fd();
        std::thread::scope(|scope| {
            let entered = scope.spawn(move || {
                move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).unwrap();
                action()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(crate) fn bpffs(&self) -> &Path {
        self.bpffs.path()
    }

    pub(crate) fn home(&self, name: &str) -> Home {
        Home::new(self.bpffs(), name).unwrap()
    }

    /// A pinned responder with a slab and a region over all of it, that answers the requester once it is attached.
    pub(crate) fn responder(&self, config: &Config) -> Pinned {
        responder(&self.home("test"), config)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The directory under the mount would be busy; both go with the namespace if this fails.
        let _ = Command::new("umount").arg(self.bpffs.path()).status();
    }
}

/// [`World::responder`], for a process that has only inherited the world.
pub(crate) fn responder(home: &Home, config: &Config) -> Pinned {
    let pinned = Pinned::load(config, home).unwrap_or_else(|error| panic!("{error}"));
    pinned.create_slab(SLAB, SLAB_BLOCKS).unwrap();
    let region = Region { va: VA, blocks: SLAB_BLOCKS, kind: Kind::Memory { slab: SLAB, first_block: 0 } };
    pinned.add_region(RKEY, &region).unwrap();
    for source in [REQUESTER_IP4, REQUESTER_IP6] {
        pinned.allow(Prefix::host(source.parse().unwrap())).unwrap();
    }
    pinned.set_lease(Duration::from_secs(600)).unwrap();
    pinned
}

pub(crate) fn device() -> Device {
    Device::named(RESPONDER_DEVICE).unwrap()
}

pub(crate) fn addresses(ipv6: bool) -> (IpAddr, IpAddr) {
    let (requester, responder) = if ipv6 { (REQUESTER_IP6, RESPONDER_IP6) } else { (REQUESTER_IP4, RESPONDER_IP4) };
    (requester.parse().unwrap(), responder.parse().unwrap())
}

fn bring_up(device: &str, mac: [u8; 6], [v4, v6]: [&str; 2]) {
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    run("ip", &["link", "set", device, "address", &mac]);
    run("ip", &["address", "add", &format!("{v4}/24"), "dev", device]);
    run("ip", &["address", "add", &format!("{v6}/64"), "dev", device, "nodad"]);
    run("ip", &["link", "set", device, "up"]);
}

/// Runs a command in the caller's namespaces; returns what it printed.
pub(crate) fn run(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output().unwrap_or_else(|error| panic!("{command}: {error}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// What `ip` and `tc` show of programs on the responder's device.
pub(crate) fn programs_shown() -> String {
    let mut shown = run("ip", &["-details", "link", "show", "dev", RESPONDER_DEVICE]);
    shown.push_str(&run("tc", &["qdisc", "show", "dev", RESPONDER_DEVICE]));
    shown
}
