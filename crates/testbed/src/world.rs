// SPDX-License-Identifier: Apache-2.0
//! Namespaces of one test, without a name outside. They belong to the test's thread, to the threads and processes that
//! it starts later, and to the values here: when all of these are gone, so are they, however the test ends. Needs root.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use crate::run;

/// A network namespace and a mount namespace of the calling thread, and a BPF file system in them.
#[derive(Debug)]
pub struct World {
    bpffs: TempDir,
}

impl World {
    /// Moves the calling thread. Loopback is up.
    #[must_use]
    pub fn new() -> Self {
        Self::try_new().unwrap_or_else(|reason| panic!("{reason}: the tests need root and a kernel with BPF"))
    }

    /// As [`World::new`], where a test may be skipped.
    ///
    /// # Errors
    /// What this process may not do, or this kernel has not got.
    pub fn try_new() -> Result<Self, String> {
        let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS;
        unshare(flags).map_err(|errno| format!("no namespaces ({errno})"))?;
        // Mounts of here stay here.
        run("mount", &["--make-rprivate", "/"]);
        run("ip", &["link", "set", "lo", "up"]);
        let bpffs = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(bpffs.path()).status().unwrap();
        if mounted.success() { Ok(Self { bpffs }) } else { Err("no BPF file system".to_owned()) }
    }

    /// Its BPF file system.
    #[must_use]
    pub fn bpffs(&self) -> &Path {
        self.bpffs.path()
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The directory under the mount would be busy. Lazily: a test that fails may have files of it open.
        let _ = Command::new("umount").arg("-l").arg(self.bpffs.path()).status();
    }
}

/// Moves the calling thread into a network namespace of its own. Loopback is up.
pub fn own_network() {
    unshare_network();
    run("ip", &["link", "set", "lo", "up"]);
}

fn unshare_network() {
    unshare(CloneFlags::CLONE_NEWNET).expect("the tests need root (CAP_SYS_ADMIN)");
}

/// A network namespace beside the caller's: where a veth pair's other end is. Its loopback is down.
#[derive(Debug)]
pub struct Network(OwnedFd);

impl Network {
    /// Makes one. The calling thread stays where it is.
    #[must_use]
    pub fn new() -> Self {
        let made = thread::spawn(|| {
            unshare_network();
            OwnedFd::from(File::open("/proc/thread-self/ns/net").unwrap())
        });
        Self(made.join().unwrap())
    }

    /// Adds a veth pair: `here` in the caller's namespace, `there` in this one. Both are down.
    pub fn add_veth(&self, here: &str, there: &str) {
        self.add_veth_with_queues(here, there, 1);
    }

    /// The same with so many queues each way.
    pub fn add_veth_with_queues(&self, here: &str, there: &str, queues: u32) {
        let network = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        let queues = queues.to_string();
        let queues = ["numtxqueues", &queues, "numrxqueues", &queues];
        let mut arguments = vec!["link", "add", here];
        arguments.extend(queues);
        arguments.extend(["type", "veth", "peer", "name", there]);
        arguments.extend(queues);
        arguments.extend(["netns", &network]);
        run("ip", &arguments);
    }

    /// Runs something in it. Sockets made there stay there, and so do processes.
    pub fn enter<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let network = self.0.as_fd();
        thread::scope(|scope| {
            let entered = scope.spawn(move || {
                move_into_link_name_space(network, Some(LinkNameSpaceType::Network)).unwrap();
                action()
            });
            entered.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl AsFd for Network {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

/// Gives a device of the caller's namespace these addresses, each with its length, and brings it up.
pub fn bring_up(device: &str, addresses: &[&str]) {
    for &address in addresses {
        // An IPv6 address would be tentative for a second.
        let at_once: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        run("ip", &[&["address", "add", address, "dev", device][..], at_once].concat());
    }
    run("ip", &["link", "set", device, "up"]);
}
