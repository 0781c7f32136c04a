// SPDX-License-Identifier: Apache-2.0
//! Devices on top of devices: the responder goes where the address is. Types that this kernel has not got are left out, loudly; the laboratory's kernels
//! have them all.

use std::process::Command;

use onlooker_responder::{Device, Exit, Hook};
use onlooker_testbed::run;

use crate::requester::UdpRequester;
use crate::support::{exits, unlimited};
use crate::world::{
    PORT, REQUESTER_DEVICE, REQUESTER_IP4, REQUESTER_IP6, RESPONDER_DEVICE, RESPONDER_IP4, RESPONDER_IP6, World,
};

/// Makes a device with `ip link add NAME ...`; false where the kernel has no such type.
#[allow(clippy::print_stderr)]
fn add(name: &str, arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(["link", "add"]).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && (error.contains("not supported") || error.contains("Unknown device type")) {
        eprintln!("LEFT OUT: this kernel has no device type for {name}");
        return false;
    }
    assert!(output.status.success(), "{name}: {error}");
    true
}

/// Takes the addresses from one device to another.
fn move_addresses(from: &str, to: &str, addresses: [&str; 2]) {
    run("ip", &["address", "flush", "dev", from]);
    run("ip", &["link", "set", from, "up"]);
    run("ip", &["link", "set", to, "up"]);
    let [v4, v6] = addresses;
    run("ip", &["address", "add", &format!("{v4}/24"), "dev", to]);
    run("ip", &["address", "add", &format!("{v6}/64"), "dev", to, "nodad"]);
}

/// Reads over both families with the responder on `device`.
fn check(world: &World, device: &str) {
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&Device::named(device).unwrap(), Hook::Tc).unwrap();
    for ipv6 in [false, true] {
        let mut requester = UdpRequester::new(world, ipv6);
        // The first packet may be lost to the learning of addresses.
        let answer = (0..20).find_map(|_| requester.read_at(0, 1024));
        assert!(
            answer.is_some(),
            "{device}, IPv6 {ipv6}: no answer; counters {:?}",
            exits(&responder.counters().unwrap())
        );
    }
    let counted = exits(&responder.counters().unwrap());
    assert!(counted.iter().all(|(exit, _)| *exit == Exit::Answered), "{counted:?}");
}

#[test]
fn a_vlan_device() {
    let world = World::new();
    if add("vlan", &["link", RESPONDER_DEVICE, "name", "tagged1", "type", "vlan", "id", "5"]) {
        move_addresses(RESPONDER_DEVICE, "tagged1", [RESPONDER_IP4, RESPONDER_IP6]);
        world.at_requester(|| {
            assert!(add("vlan", &["link", REQUESTER_DEVICE, "name", "tagged2", "type", "vlan", "id", "5"]));
            move_addresses(REQUESTER_DEVICE, "tagged2", [REQUESTER_IP4, REQUESTER_IP6]);
        });
        check(&world, "tagged1");
    }
}

#[test]
fn a_bridge_with_an_address() {
    let world = World::new();
    if add("bridge", &["bridge1", "type", "bridge"]) {
        run("ip", &["link", "set", RESPONDER_DEVICE, "master", "bridge1"]);
        move_addresses(RESPONDER_DEVICE, "bridge1", [RESPONDER_IP4, RESPONDER_IP6]);
        check(&world, "bridge1");
    }
}

#[test]
fn a_macvlan_device() {
    let world = World::new();
    if add("macvlan", &["link", RESPONDER_DEVICE, "name", "mac1", "type", "macvlan", "mode", "bridge"]) {
        move_addresses(RESPONDER_DEVICE, "mac1", [RESPONDER_IP4, RESPONDER_IP6]);
        check(&world, "mac1");
    }
}

#[test]
fn a_bond() {
    let world = World::new();
    if add("bond", &["bond1", "type", "bond", "mode", "active-backup"]) {
        run("ip", &["link", "set", RESPONDER_DEVICE, "down"]);
        run("ip", &["link", "set", RESPONDER_DEVICE, "master", "bond1"]);
        move_addresses(RESPONDER_DEVICE, "bond1", [RESPONDER_IP4, RESPONDER_IP6]);
        check(&world, "bond1");
    }
}

#[test]
fn a_device_without_ethernet_headers_is_refused() {
    let world = World::new();
    if !std::path::Path::new("/dev/net/tun").exists() {
        run("modprobe", &["tun"]);
    }
    run("ip", &["tuntap", "add", "dev", "tunnel1", "mode", "tun"]);
    let responder = world.responder(&unlimited(PORT));
    let error = responder.attach(&Device::named("tunnel1").unwrap(), Hook::Tc).unwrap_err();
    assert!(matches!(error, onlooker_responder::Error::NotEthernet { hardware_type: 65534, .. }), "{error}");
    assert_eq!(responder.attachments(), []);
}
