// SPDX-License-Identifier: Apache-2.0
//! The rows that one machine can measure. Types that this kernel has not got are left out, loudly; the laboratory's kernels have them all.

use std::net::IpAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use onlooker_responder::{Device, Hook, Pinned, Prefix};
use onlooker_testbed::run;
use onlooker_wire::{Ethernet, Frame, Mac, Packet, Psn, Tags};

use crate::requester::{FrameSocket, UdpRequester};
use crate::support::{Ask, unlimited};
use crate::tap::Tap;
use crate::world::{
    PORT, REQUESTER_DEVICE, REQUESTER_IP4, REQUESTER_IP6, REQUESTER_MAC, RESPONDER_DEVICE, RESPONDER_IP4,
    RESPONDER_IP6, RESPONDER_MAC, World, addresses,
};

const HOOKS: [Hook; 2] = [Hook::Tc, Hook::Xdp];
/// Largest MTU that is tried.
const LARGEST_MTU: u32 = 9000;

/// What became of a device type with a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    /// Attaching was refused, and why.
    Refused(String),
    /// The largest READ answered, and the same for requests padded to the answer's size; the MTUs at which it can be attached and answers.
    Works { largest: u32, padded: u32, mtu: (u32, u32) },
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cell::Refused(why) => write!(f, "refused: {why}"),
            Cell::Works { largest: 0, padded: 0, .. } => f.write_str("attached, no answers"),
            Cell::Works { largest, padded, mtu: (least, most) } => {
                write!(f, "works to {largest} bytes, padded to {padded}, MTU {least} to {most}")
            }
        }
    }
}

/// A READ over IPv4 or IPv6 of so many bytes, padded or not: whether it is answered.
type AskOne<'a> = Box<dyn FnMut(bool, u32, bool) -> bool + 'a>;

/// A way from a requester to the device.
struct Path<'a> {
    device: &'a str,
    /// Sets the MTU of the device, of those under it and of the other end; false if one refuses.
    set_mtu: Box<dyn FnMut(u32) -> bool + 'a>,
    ask: AskOne<'a>,
}

fn reads(ask: &mut AskOne<'_>, padded: bool) -> u32 {
    let mut largest = 0;
    for bytes in [8, 32, 64, 256, 1024] {
        // The first packets may be lost to the learning of addresses and to a carrier that comes late.
        let tries = if bytes == 8 && !padded { 20 } else { 2 };
        if ![false, true].into_iter().all(|ipv6| (0..tries).any(|_| ask(ipv6, bytes, padded))) {
            break;
        }
        largest = bytes;
    }
    largest
}

pub(crate) fn set_mtu(device: &str, mtu_bytes: u32) -> bool {
    let set = Command::new("ip").args(["link", "set", device, "mtu", &mtu_bytes.to_string()]).output().unwrap();
    set.status.success()
}

/// The largest MTU from 1500 on with which `attach` succeeds.
pub(crate) fn largest_mtu(mut attach: impl FnMut(u32) -> bool) -> u32 {
    let (mut good, mut bad) = (1500, LARGEST_MTU + 1);
    if attach(LARGEST_MTU) {
        return LARGEST_MTU;
    }
    while bad - good > 1 {
        let middle = u32::midpoint(good, bad);
        if attach(middle) { good = middle } else { bad = middle }
    }
    good
}

fn measure(responder: &Pinned, hook: Hook, path: &mut Path<'_>) -> Cell {
    let device = || Device::named(path.device).unwrap();
    let attachment = match responder.attach(&device(), hook) {
        Ok(attachment) => attachment,
        Err(error) => {
            let text = error.to_string();
            return Cell::Refused(text.split_once(": ").map_or(text.clone(), |(_, why)| why.to_owned()));
        }
    };
    let (largest, padded) = (reads(&mut path.ask, false), reads(&mut path.ask, true));
    responder.detach(&attachment).unwrap();
    // Needed for an answer of 1024 bytes over IPv6; IPv6 itself wants 1280.
    let mut attaches = |mtu_bytes| {
        (path.set_mtu)(mtu_bytes) && responder.attach(&device(), hook).map(|at| responder.detach(&at).unwrap()).is_ok()
    };
    let least = if attaches(1092) { 1092 } else { 1500 };
    let most = largest_mtu(&mut attaches);
    (path.set_mtu)(1500);
    Cell::Works { largest, padded, mtu: (least, most) }
}

/// A frame that asks, and the PSN by which its answer is known; `padded`: behind its IP packet to the size of the answer.
fn frame(ipv6: bool, bytes: u32, padded: bool) -> (Vec<u8>, Psn) {
    static PSN: AtomicU32 = AtomicU32::new(0);
    let (source, destination): (IpAddr, IpAddr) = addresses(ipv6);
    let base = if ipv6 { Ask::v6() } else { Ask::v4() };
    let ethernet = Ethernet { destination: Mac(RESPONDER_MAC), source: Mac(REQUESTER_MAC), tags: Tags::None };
    let mut ask = Ask { ethernet, source, destination, port: PORT, ..base }.at(0, bytes);
    ask.request.psn = Psn::wrapping(PSN.fetch_add(1, Ordering::Relaxed));
    let mut frame = ask.frame();
    // An answer has 4 bytes of AETH and the data where the request has 16 of RETH.
    let answer_bytes = frame.len() - 16 + 4 + usize::try_from(bytes).unwrap();
    if padded && answer_bytes > frame.len() {
        frame.resize(answer_bytes, 0);
    }
    (frame, ask.request.psn)
}

fn is_answer(frame: &[u8], psn: Psn, bytes: u32) -> bool {
    Frame::parse(frame).is_ok_and(|frame| match frame.packet {
        Packet::ReadAnswer(answer) => answer.psn == psn && answer.payload.len() == usize::try_from(bytes).unwrap(),
        _ => false,
    })
}

fn ip(arguments: &[&str]) {
    run("ip", arguments);
}

/// Makes a device with `ip link add`; false where the kernel has no such type.
fn add(arguments: &[&str]) -> bool {
    let output = Command::new("ip").args(["link", "add"]).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() || error.contains("not supported") || error.contains("Unknown device type"),
        "{arguments:?}: {error}"
    );
    output.status.success()
}

/// Takes the responder's addresses and MAC from its veth to a device on top of it.
fn move_addresses(to: &str) {
    let mac = RESPONDER_MAC.map(|byte| format!("{byte:02x}")).join(":");
    ip(&["address", "flush", "dev", RESPONDER_DEVICE]);
    ip(&["link", "set", RESPONDER_DEVICE, "up"]);
    // A macvlan is its own station.
    if to != "mac1" {
        ip(&["link", "set", to, "address", &mac]);
    }
    ip(&["link", "set", to, "up"]);
    ip(&["address", "add", &format!("{RESPONDER_IP4}/24"), "dev", to]);
    ip(&["address", "add", &format!("{RESPONDER_IP6}/64"), "dev", to, "nodad"]);
}

/// By UDP sockets and packet sockets over the veth pair.
fn over_veth<'a>(world: &'a World, xdp_peer: bool, passing: &'a Pinned) -> AskOne<'a> {
    if xdp_peer {
        // veth takes frames from XDP only if its peer has a program too: one that passes everything on.
        let attach = || passing.attach(&Device::named(REQUESTER_DEVICE).unwrap(), Hook::Xdp).map(drop);
        world.at_requester(attach).unwrap();
        passing.set_own_addresses(&[]).unwrap();
    }
    let frames = FrameSocket::new(world);
    Box::new(move |ipv6, bytes, padded| {
        if padded {
            let (frame, psn) = frame(ipv6, bytes, true);
            frames.send(&frame);
            return frames.receive(|answer| is_answer(answer, psn, bytes)).is_some();
        }
        let mut requester = UdpRequester::new(world, ipv6);
        requester.patience(std::time::Duration::from_millis(300));
        requester.read_at(0, bytes).is_some()
    })
}

/// A device on top of the veth, or the veth itself; `None` where the kernel has no such type.
fn stacked(name: &str, hook: Hook) -> Option<Cell> {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    let passing = Pinned::load(&unlimited(PORT), &world.home("passing")).unwrap();
    let (device, there) = match name {
        "veth" => (RESPONDER_DEVICE, true),
        "VLAN device" => ("vlan1", add(&["link", RESPONDER_DEVICE, "name", "vlan1", "type", "vlan", "id", "5"])),
        "macvlan" => ("mac1", add(&["link", RESPONDER_DEVICE, "name", "mac1", "type", "macvlan", "mode", "bridge"])),
        "bridge" | "port of a bridge" => ("bridge1", add(&["bridge1", "type", "bridge"])),
        "bond" | "port of a bond" => {
            ("bond1", add(&["bond1", "type", "bond", "mode", "active-backup", "miimon", "100"]))
        }
        _ => panic!("{name}"),
    };
    if !there {
        return None;
    }
    match device {
        "bridge1" => ip(&["link", "set", RESPONDER_DEVICE, "master", device]),
        "bond1" => {
            ip(&["link", "set", RESPONDER_DEVICE, "down"]);
            ip(&["link", "set", RESPONDER_DEVICE, "master", device]);
        }
        _ => {}
    }
    if device != RESPONDER_DEVICE {
        move_addresses(device);
    }
    world.at_requester(|| {
        if device == "vlan1" {
            assert!(add(&["link", REQUESTER_DEVICE, "name", "vlan2", "type", "vlan", "id", "5"]));
            ip(&["address", "flush", "dev", REQUESTER_DEVICE]);
            ip(&["link", "set", "vlan2", "up"]);
            ip(&["address", "add", &format!("{REQUESTER_IP4}/24"), "dev", "vlan2"]);
            ip(&["address", "add", &format!("{REQUESTER_IP6}/64"), "dev", "vlan2", "nodad"]);
        }
    });
    let on = if name.starts_with("port") { RESPONDER_DEVICE } else { device };
    let mut ask = over_veth(&world, hook == Hook::Xdp, &passing);
    if device == "vlan1" || device == "mac1" {
        // Packet sockets would have to add the tag, or learn the other MAC: UDP tells enough.
        let mut plain = ask;
        ask = Box::new(move |ipv6, bytes, padded| !padded && plain(ipv6, bytes, false));
    }
    let set_mtu = Box::new(|mtu| {
        // First what is under it, which must not be smaller.
        world.at_requester(|| set_mtu(REQUESTER_DEVICE, mtu)) && set_mtu(RESPONDER_DEVICE, mtu) && set_mtu(device, mtu)
    });
    Some(measure(&responder, hook, &mut Path { device: on, set_mtu, ask }))
}

fn loopback(hook: Hook) -> Cell {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    let ask: AskOne<'_> = Box::new(|ipv6, bytes, padded| {
        let own: IpAddr = if ipv6 { "::1" } else { "127.0.0.1" }.parse().unwrap();
        responder.allow(Prefix::host(own)).unwrap();
        !padded && UdpRequester::between(own, (own, PORT).into()).read_at(0, bytes).is_some()
    });
    measure(&responder, hook, &mut Path { device: "lo", set_mtu: Box::new(|mtu| set_mtu("lo", mtu)), ask })
}

fn tap(hook: Hook) -> Cell {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    let mut tap = Tap::new("tap1");
    ip(&["address", "flush", "dev", RESPONDER_DEVICE]);
    let mac = RESPONDER_MAC.map(|byte| format!("{byte:02x}")).join(":");
    ip(&["link", "set", "tap1", "address", &mac, "up"]);
    ip(&["address", "add", &format!("{RESPONDER_IP4}/24"), "dev", "tap1"]);
    ip(&["address", "add", &format!("{RESPONDER_IP6}/64"), "dev", "tap1", "nodad"]);
    let ask: AskOne<'_> = Box::new(move |ipv6, bytes, padded| {
        let (frame, psn) = frame(ipv6, bytes, padded);
        tap.ask(&frame, |answer| is_answer(answer, psn, bytes)).is_some()
    });
    measure(&responder, hook, &mut Path { device: "tap1", set_mtu: Box::new(|mtu| set_mtu("tap1", mtu)), ask })
}

/// Expected of a cell: answers at least so long, or a refusal that says so.
enum Expected {
    Reads { plain: u32, padded: u32 },
    Refused(&'static str),
}

#[allow(clippy::print_stdout)]
#[test]
fn each_device_type_works_or_is_refused_as_the_page_says() {
    use Expected::{Reads, Refused};
    const DRIVER: &str = "use tc";
    let all = || Reads { plain: 1024, padded: 1024 };
    let sockets = || Reads { plain: 1024, padded: 0 };
    // How far a frame on veth and tap can grow in XDP depends on the kernel and on the length that it has; padded there is no limit.
    let small = || Reads { plain: 8, padded: 1024 };
    let rows = [
        ("loopback", sockets(), Refused(DRIVER)),
        ("veth", all(), small()),
        ("tap", all(), small()),
        ("bridge", all(), Refused(DRIVER)),
        ("port of a bridge", all(), small()),
        ("VLAN device", sockets(), Refused(DRIVER)),
        ("macvlan", sockets(), Refused(DRIVER)),
        ("bond", all(), small()),
        ("port of a bond", all(), small()),
    ];
    let mut wrong = Vec::new();
    for (name, tc, xdp) in rows {
        for (hook, expected) in HOOKS.into_iter().zip([tc, xdp]) {
            let cell = match name {
                "loopback" => Some(loopback(hook)),
                "tap" => Some(tap(hook)),
                _ => stacked(name, hook),
            };
            let Some(cell) = cell else {
                println!("DEVICE | {name} | {hook} | LEFT OUT: this kernel has no such type");
                continue;
            };
            println!("DEVICE | {name} | {hook} | {cell}");
            let good = match (&cell, expected) {
                (Cell::Works { largest, padded, .. }, Reads { plain, padded: least }) => {
                    *largest >= plain && *padded >= least
                }
                (Cell::Refused(why), Refused(words)) => why.contains(words),
                _ => false,
            };
            if !good {
                wrong.push(format!("{name}, {hook}: {cell}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
