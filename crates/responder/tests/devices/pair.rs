// SPDX-License-Identifier: Apache-2.0
//! Two machines on a wire: `LAB_ROLE` a has the responder, b asks it. What b wants of a goes over TCP, a line each way. Without the laboratory both are here,
//! over a veth pair.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use onlooker_responder::{Attachment, Config, Device, Home, Hook, Pinned, Prefix};

use crate::requester::UdpRequester;
use crate::support::unlimited;
use crate::table::{largest_mtu, set_mtu};
use crate::world::{
    PORT, REQUESTER_DEVICE, REQUESTER_IP4, REQUESTER_IP6, RESPONDER_DEVICE, RESPONDER_IP4, RESPONDER_IP6, World,
    responder,
};

const CONTROL_PORT: u16 = 7778;
const PATIENCE: Duration = Duration::from_secs(120);

/// One end of the wire.
struct End {
    device: String,
    own: [IpAddr; 2],
    peer: [IpAddr; 2],
}

fn hook(name: &str) -> Hook {
    if name == "xdp" { Hook::Xdp } else { Hook::Tc }
}

/// The responder's end: `attach HOOK MTU MAX_READ_BYTES`, `largest HOOK`, `bye`.
fn serve(end: &End, bpffs: &Path) {
    let (stream, _) = TcpListener::bind((end.own[0], CONTROL_PORT)).unwrap().accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    let mut attached: Option<(Pinned, Attachment)> = None;
    while let Some(Ok(line)) = lines.next() {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some((pinned, attachment)) = attached.take() {
            pinned.detach(&attachment).unwrap();
            pinned.home().purge().unwrap();
        }
        let start = |max_read_bytes: u32| {
            let pinned = responder(&Home::new(bpffs, "pair").unwrap(), &Config { max_read_bytes, ..unlimited(PORT) });
            for peer in end.peer {
                pinned.allow(Prefix::host(peer)).unwrap();
            }
            pinned
        };
        let answer = match words[..] {
            ["attach", _, mtu, _] if !set_mtu(&end.device, mtu.parse().unwrap()) => {
                "refused: the device takes no such MTU".to_owned()
            }
            ["attach", name, _, max_read_bytes] => {
                let pinned = start(max_read_bytes.parse().unwrap());
                match pinned.attach(&Device::named(&end.device).unwrap(), hook(name)) {
                    Ok(attachment) => {
                        attached = Some((pinned, attachment));
                        "attached".to_owned()
                    }
                    Err(error) => {
                        pinned.home().purge().unwrap();
                        format!("refused: {error}")
                    }
                }
            }
            ["largest", name] => {
                let pinned = start(1024);
                let most = largest_mtu(|mtu| {
                    let device = set_mtu(&end.device, mtu).then(|| Device::named(&end.device).unwrap());
                    device.is_some_and(|device| {
                        pinned.attach(&device, hook(name)).map(|at| pinned.detach(&at).unwrap()).is_ok()
                    })
                });
                assert!(set_mtu(&end.device, 1500));
                pinned.home().purge().unwrap();
                most.to_string()
            }
            ["bye"] => break,
            _ => panic!("{line}"),
        };
        writeln!(stream, "{answer}").unwrap();
    }
}

/// The requester's end: prints a row a hook, and panics where something is not as expected.
#[allow(clippy::print_stdout)]
fn ask(end: &End, name: &str) {
    let start = Instant::now();
    let stream = loop {
        match TcpStream::connect((end.peer[0], CONTROL_PORT)) {
            Ok(stream) => break stream,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    let mut tell = |line: String| {
        writeln!(stream, "{line}").unwrap();
        lines.next().unwrap().unwrap()
    };
    for hook in ["tc", "xdp"] {
        let mut told = Vec::new();
        for (mtu, max_read_bytes) in [(1280, 1024), (1500, 1024), (3000, 2048), (9000, 8192)] {
            // Where it is refused here (a veth whose other end has XDP), it is refused there, too, or answers do not come.
            set_mtu(&end.device, mtu);
            let answer = tell(format!("attach {hook} {mtu} {max_read_bytes}"));
            let mut largest = 0;
            let lengths = [8, 64, 256, 1024, 2048, 4096, 8192];
            for length in lengths.into_iter().filter(|length| answer == "attached" && *length <= max_read_bytes) {
                let good = (0..2).all(|family| {
                    let mut requester = UdpRequester::between(end.own[family], (end.peer[family], PORT).into());
                    // The device may be starting again after XDP was attached.
                    (0..6).any(|_| requester.read_at(0, length).is_some())
                });
                if !good {
                    break;
                }
                largest = length;
            }
            told.push((mtu, largest, answer));
        }
        let most = tell(format!("largest {hook}"));
        println!("DEVICE | {name} | {hook} | attaches to MTU {most}; MTU, largest READ: {told:?}");
        let works = told.iter().any(|(mtu, largest, _)| {
            *mtu == 1500 && *largest >= if name == "veth" && hook == "xdp" { 8 } else { 1024 }
        });
        println!("VERDICT {hook} {}", u32::from(works));
        assert!(works, "{told:?}");
    }
    writeln!(stream, "bye").unwrap();
}

#[test]
fn two_machines_on_a_wire() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    let role = variable("LAB_ROLE");
    if role == "a" || role == "b" {
        let addresses = |names: [&str; 2]| names.map(|name| variable(name).parse().unwrap());
        let end = End {
            device: variable("LAB_NIC"),
            own: addresses(["LAB_IP4", "LAB_IP6"]),
            peer: addresses(["LAB_PEER_IP4", "LAB_PEER_IP6"]),
        };
        if role == "a" {
            serve(&end, Path::new("/sys/fs/bpf"));
        } else {
            ask(&end, "virtio-net");
        }
        return;
    }
    let world = World::new();
    let own = [RESPONDER_IP4, RESPONDER_IP6].map(|own| own.parse().unwrap());
    let peer = [REQUESTER_IP4, REQUESTER_IP6].map(|own| own.parse().unwrap());
    // veth takes frames from XDP only if its peer has a program too: one that passes everything on.
    let passing = Pinned::load(&unlimited(PORT), &world.home("passing")).unwrap();
    world.at_requester(|| passing.attach(&Device::named(REQUESTER_DEVICE).unwrap(), Hook::Xdp).map(drop)).unwrap();
    passing.set_own_addresses(&[]).unwrap();
    let bpffs = world.bpffs().to_owned();
    std::thread::scope(|scope| {
        let requester = scope.spawn(|| {
            world.at_requester(|| {
                ask(&End { device: REQUESTER_DEVICE.to_owned(), own: peer, peer: own }, "veth");
            });
        });
        serve(&End { device: RESPONDER_DEVICE.to_owned(), own, peer }, &bpffs);
        requester.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
