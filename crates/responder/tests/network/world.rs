// SPDX-License-Identifier: Apache-2.0
//! Two network namespaces and a BPF file system of one test.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use onlooker_responder::{Config, Device, Home, Kind, Pinned, Prefix, Region};
use onlooker_testbed::{Network, run};

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
    requester: Network,
    own: onlooker_testbed::World,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { own: onlooker_testbed::World::new(), requester: Network::new() };
        world.connect();
        world
    }

    /// The veth pair between both namespaces, with addresses.
    pub(crate) fn connect(&self) {
        self.requester.add_veth(RESPONDER_DEVICE, REQUESTER_DEVICE);
        bring_up(RESPONDER_DEVICE, RESPONDER_MAC, [RESPONDER_IP4, RESPONDER_IP6]);
        self.at_requester(|| bring_up(REQUESTER_DEVICE, REQUESTER_MAC, [REQUESTER_IP4, REQUESTER_IP6]));
    }

    /// Runs something in the requester's namespace. Sockets made there stay there.
    pub(crate) fn at_requester<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        self.requester.enter(action)
    }

    pub(crate) fn bpffs(&self) -> &Path {
        self.own.bpffs()
    }

    pub(crate) fn home(&self, name: &str) -> Home {
        Home::new(self.bpffs(), name).unwrap()
    }

    /// A pinned responder with a slab and a region over all of it, that answers the requester once it is attached.
    pub(crate) fn responder(&self, config: &Config) -> Pinned {
        responder(&self.home("test"), config)
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
    onlooker_testbed::bring_up(device, &[&format!("{v4}/24"), &format!("{v6}/64")]);
}

/// What `ip` and `tc` show of programs on the responder's device.
pub(crate) fn programs_shown() -> String {
    let mut shown = run("ip", &["-details", "link", "show", "dev", RESPONDER_DEVICE]);
    shown.push_str(&run("tc", &["qdisc", "show", "dev", RESPONDER_DEVICE]));
    shown
}
