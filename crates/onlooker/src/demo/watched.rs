// SPDX-License-Identifier: Apache-2.0
//! The watched host: a network namespace joined by a veth pair, and a BPF file system for the responder's pins.

use super::DemoError;
use super::place::{Place, ip};
use rustix::mount::{MountFlags, mount};
use std::fs;
use std::path::PathBuf;

/// What could be had.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// Path of the network namespace.
    pub(super) net: Option<PathBuf>,
    /// Mount point of the BPF file system.
    pub(super) bpffs: Option<PathBuf>,
    /// What is missing, and why.
    pub(super) missing: Vec<String>,
}

impl Watched {
    /// Makes what this user may make.
    pub(super) fn make(place: &mut Place) -> Result<Self, DemoError> {
        if !rustix::process::geteuid().is_root() {
            let missing = "not root: no network namespace and no BPF responder (they need CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON)";
            return Ok(Self { missing: vec![missing.into()], ..Self::default() });
        }
        let (namespace, device) = (place.namespace(), place.device());
        place.note(|state| (state.namespace, state.device) = (Some(namespace), Some(device)))?;
        if let Err(why) = join(place) {
            place.remove_network();
            place.note(|_| {})?;
            return Ok(Self { missing: vec![format!("no network namespace: {why}")], ..Self::default() });
        }
        let mut watched = Self { net: Some(place.namespace_path()), ..Self::default() };
        let dir = place.path("bpf");
        fs::create_dir(&dir).map_err(|source| DemoError::System { operation: "make", object: dir.clone(), source })?;
        place.note(|state| state.bpffs = Some(dir.clone()))?;
        match mount("bpf", &dir, "bpf", MountFlags::empty(), None) {
            Ok(()) => watched.bpffs = Some(dir),
            Err(error) => watched.missing.push(format!("no BPF responder: mounting a BPF file system: {error}")),
        }
        Ok(watched)
    }
}

fn join(place: &Place) -> Result<(), String> {
    let (namespace, device) = (place.namespace(), place.device());
    let (outside, inside) = place.addresses();
    let (outside, inside) = (format!("{outside}/30"), format!("{inside}/30"));
    for line in [
        &["netns", "add", &namespace][..],
        &["link", "add", &device, "type", "veth", "peer", "name", "eth0", "netns", &namespace],
        &["addr", "add", &outside, "dev", &device],
        &["link", "set", &device, "up"],
        &["-n", &namespace, "addr", "add", &inside, "dev", "eth0"],
        &["-n", &namespace, "link", "set", "eth0", "up"],
        &["-n", &namespace, "link", "set", "lo", "up"],
    ] {
        ip(line)?;
    }
    Ok(())
}
