// SPDX-License-Identifier: Apache-2.0
//! What goes wrong under traffic: purges, leases that run out, MTUs and offloads that change, merged datagrams.

use std::process::Command;
use std::time::{Duration, Instant};

use onlooker_responder::{Config, Error, Exit, Hook, Pinned};
use onlooker_testbed::run;
use onlooker_wire::{Tag, Tags, Tpid};

use crate::requester::{FrameSocket, UdpRequester};
use crate::support::{RKEY, VA, exits, unlimited};
use crate::tagged::{ask, is_answer};
use crate::upgrade::WAYS;
use crate::world::{PORT, REQUESTER_DEVICE, RESPONDER_DEVICE, World, device};

#[test]
fn a_purge_under_traffic_ends_answers_and_harms_none() {
    for way in WAYS {
        let world = World::new();
        let home = world.home("test");
        let mut requester = UdpRequester::new(&world, false);
        requester.patience(Duration::from_millis(20));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let (rounds, bytes) = (6, way.read_bytes());
        let (answered, silent) = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut answered, mut silent) = (0, 0);
                while !stop.load(relaxed) {
                    // `read` checks each answer's ICRC and PSN; the memory is all zeros.
                    match requester.read_at(0, bytes) {
                        Some(answer) => {
                            assert!(answer.iter().all(|byte| *byte == 0));
                            answered += 1;
                        }
                        None => silent += 1,
                    }
                }
                (answered, silent)
            });
            for round in 0..rounds {
                let responder = world.responder(&unlimited(PORT));
                if round == 0 {
                    way.attach(&world, &responder);
                } else if way == crate::upgrade::Way::Filter {
                    responder.attach_by_filter(&device()).unwrap();
                } else {
                    responder.attach(&device(), way.hook()).unwrap();
                }
                let start = Instant::now();
                while responder.counters().unwrap().get(Exit::Answered) < 50 {
                    assert!(start.elapsed() < Duration::from_secs(60), "nothing is answered");
                    std::thread::sleep(Duration::from_millis(1));
                }
                home.purge().unwrap();
                assert!(!home.exists());
            }
            stop.store(true, relaxed);
            reader.join().unwrap()
        });
        assert!(answered >= 50 * rounds && silent >= 1, "{way:?}: {answered} answered, {silent} silent");
    }
}

#[test]
fn a_lease_that_runs_out_under_traffic_silences_at_its_instant_and_a_new_one_ends_that() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let mut requester = UdpRequester::new(&world, false);
    requester.patience(Duration::from_millis(20));
    for round in 0..3 {
        let before = responder.counters().unwrap();
        let start = Instant::now();
        responder.set_lease(Duration::from_millis(200)).unwrap();
        let (mut answered, mut last) = (0, start);
        // The first unanswered one; several, since an emulated processor may take longer than the requester waits.
        while requester.read_at(0, 1024).is_some() || start.elapsed() < Duration::from_millis(200) {
            (answered, last) = (answered + 1, Instant::now());
            assert!(start.elapsed() < Duration::from_secs(10), "round {round}: the lease does not end");
        }
        assert!(answered > 0 && last - start < Duration::from_millis(400), "round {round}: {:?}", last - start);
        for _ in 0..5 {
            assert_eq!(requester.read_at(0, 1024), None);
        }
        assert!(responder.counters().unwrap().since(&before).get(Exit::Lease) >= 6);
        responder.set_lease(Duration::from_secs(60)).unwrap();
        assert!((0..20).any(|_| requester.read_at(0, 1024).is_some()));
    }
}

fn set_mtu(world: &World, mtu_bytes: u32) {
    let set = |device: &str| run("ip", &["link", "set", device, "mtu", &mtu_bytes.to_string()]);
    world.at_requester(|| set(REQUESTER_DEVICE));
    set(RESPONDER_DEVICE);
}

/// The IP packet of an answer, over IPv6, which is the longer one: 40 + 8 + 12 + 4 bytes before the data, 4 behind.
const AROUND_DATA_IP6: u32 = 68;

#[test]
fn attaching_refuses_devices_whose_mtu_is_too_small() {
    let world = World::new();
    for max_read_bytes in [1024, 4096, 8192] {
        let home = world.home("test");
        let responder = Pinned::load(&Config { max_read_bytes, ..unlimited(PORT) }, &home).unwrap();
        for mtu_bytes in [1280, 1500, 4096, 9000] {
            set_mtu(&world, mtu_bytes);
            let needed = max_read_bytes + AROUND_DATA_IP6;
            match responder.attach(&device(), Hook::Tc) {
                Ok(attachment) => {
                    assert!(mtu_bytes >= needed);
                    responder.detach(&attachment).unwrap();
                }
                Err(Error::Mtu { mtu_bytes: told, needed_bytes, .. }) => {
                    assert!(mtu_bytes < needed);
                    assert_eq!((told, u32::try_from(needed_bytes).unwrap()), (mtu_bytes, needed));
                }
                Err(error) => panic!("{error}"),
            }
        }
        home.purge().unwrap();
    }
}

#[test]
fn answers_beyond_an_mtu_that_was_lowered_are_dropped_and_counted() {
    for max_read_bytes in [1024, 8192] {
        let world = World::new();
        set_mtu(&world, 9000);
        let responder = world.responder(&Config { max_read_bytes, ..unlimited(PORT) });
        responder.attach(&device(), Hook::Tc).unwrap();
        for mtu_bytes in [9000, 4096, 1500, 1280] {
            set_mtu(&world, mtu_bytes);
            let mut requester = UdpRequester::new(&world, false);
            requester.patience(Duration::from_millis(100));
            for length in [8, 1024, 2048, 4096, 8192].into_iter().filter(|length| *length <= max_read_bytes) {
                // Over IPv4: 20 bytes less.
                let fits = length + AROUND_DATA_IP6 - 20 <= mtu_bytes;
                let before = responder.counters().unwrap();
                let answer = (0..20).find_map(|_| requester.read_at(0, length)).map(|answer| answer.len());
                assert_eq!(answer.is_some(), fits, "{length} bytes at {mtu_bytes}");
                assert_eq!(answer.unwrap_or_default(), if fits { usize::try_from(length).unwrap() } else { 0 });
                let counted = exits(&responder.counters().unwrap().since(&before));
                let exit = if fits { Exit::Answered } else { Exit::Mtu };
                assert!(counted.len() == 1 && counted[0].0 == exit, "{counted:?}: {length} bytes at {mtu_bytes}");
            }
        }
    }
}

#[test]
fn the_longest_answer_that_fits_is_sent_and_a_tag_does_not_count() {
    let world = World::new();
    let responder = world.responder(&Config { max_read_bytes: 2048, ..unlimited(PORT) });
    set_mtu(&world, 2048 + AROUND_DATA_IP6);
    responder.attach(&device(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    let tag = |tpid, tci| Tag { tpid, tci };
    for (mtu_bytes, exit) in [(2048 + AROUND_DATA_IP6, Exit::Answered), (2047 + AROUND_DATA_IP6, Exit::Mtu)] {
        set_mtu(&world, mtu_bytes);
        for tags in [Tags::None, Tags::One(tag(Tpid::Customer, 7 << 13))] {
            let before = responder.counters().unwrap();
            frames.send(&ask(true, tags).at(0, 2048).frame());
            assert_eq!(frames.receive(is_answer).is_some(), exit == Exit::Answered, "{tags:?}");
            assert_eq!(exits(&responder.counters().unwrap().since(&before)), [(exit, 1)], "{tags:?}");
        }
    }
}

/// Switches an offload; false, loudly, where there is no ethtool.
#[allow(clippy::print_stderr)]
fn offload(device: &str, feature: &str, on: bool) -> bool {
    let state = if on { "on" } else { "off" };
    match Command::new("ethtool").args(["-K", device, feature, state]).output() {
        Ok(output) => {
            assert!(output.status.success(), "{feature} {state}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            eprintln!("LEFT OUT: offloads of {device}: ethtool: {error}");
            false
        }
    }
}

const FEATURES: [&str; 5] = ["tx", "sg", "gso", "gro", "rx-udp-gro-forwarding"];

#[test]
fn offloads_change_nothing_for_requesters_without_udp_checksums() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let mut asked = 0;
    for on in [false, true] {
        for feature in FEATURES {
            let ends = || {
                [offload(RESPONDER_DEVICE, feature, on), world.at_requester(|| offload(REQUESTER_DEVICE, feature, on))]
            };
            if ends() != [true, true] {
                return;
            }
            for ipv6 in [false, true] {
                let mut requester = UdpRequester::new(&world, ipv6).without_checksum();
                for length in [8, 256, 1024] {
                    assert!(requester.read_at(0, length).is_some(), "{feature} {on}, IPv6 {ipv6}, {length}");
                    asked += 1;
                }
            }
        }
    }
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, asked)]);
}

/// Segmentation offload of the sender: on veth its datagrams arrive as one packet, and none of them can be answered. Without, each is one.
#[test]
fn datagrams_that_arrive_merged_are_counted_as_aggregated() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    for ipv6 in [false, true] {
        let mut requester = UdpRequester::new(&world, ipv6);
        requester.patience(Duration::from_millis(100));
        let before = responder.counters().unwrap();
        requester.send_segmented(VA, RKEY, 1024, 5);
        assert_eq!(requester.answers(), 0);
        assert_eq!(exits(&responder.counters().unwrap().since(&before)), [(Exit::Aggregated, 1)], "IPv6 {ipv6}");
        assert!(requester.read_at(0, 1024).is_some());
    }
    let off = || offload(REQUESTER_DEVICE, "tx-udp-segmentation", false);
    if !world.at_requester(off) {
        return;
    }
    // The kernel numbers the segments' IP headers, over IPv4: but for the first they are no longer what the ICRC covers.
    for (ipv6, expected) in [(false, vec![(Exit::Answered, 1), (Exit::Icrc, 4)]), (true, vec![(Exit::Answered, 5)])] {
        let mut requester = UdpRequester::new(&world, ipv6);
        requester.patience(Duration::from_millis(100));
        let before = responder.counters().unwrap();
        requester.send_segmented(VA, RKEY, 1024, 5);
        assert_eq!(requester.answers(), usize::try_from(expected[0].1).unwrap());
        assert_eq!(exits(&responder.counters().unwrap().since(&before)), expected, "IPv6 {ipv6}");
    }
}

/// Receive offload that merges datagrams for forwarding: what was sent one by one arrives merged. The page says to switch it off.
#[test]
fn receive_offload_for_forwarding_merges_requests_and_without_it_they_stay_apart() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    // The sender's kernel cuts one call into datagrams and hands them over together: so receive offload sees them in one poll.
    if !world.at_requester(|| offload(REQUESTER_DEVICE, "tx-udp-segmentation", false)) {
        return;
    }
    for forwarding in [false, true, false] {
        assert!(
            offload(RESPONDER_DEVICE, "gro", true) && offload(RESPONDER_DEVICE, "rx-udp-gro-forwarding", forwarding)
        );
        let mut requester = UdpRequester::new(&world, true);
        requester.patience(Duration::from_millis(200));
        let before = responder.counters().unwrap();
        requester.send_segmented(VA, RKEY, 8, 16);
        let answers = requester.answers();
        let counted = responder.counters().unwrap().since(&before);
        if forwarding {
            assert!(counted.get(Exit::Aggregated) >= 1 && answers < 16, "{answers} answers, {:?}", exits(&counted));
        } else {
            assert_eq!((answers, exits(&counted)), (16, vec![(Exit::Answered, 16)]));
        }
    }
}

/// One wrong thing at a time, on a real device: silence, and the exit that names it.
#[test]
fn each_wrong_thing_gets_silence_and_its_count() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let frames = FrameSocket::new(&world);
    for ipv6 in [false, true] {
        let good = ask(ipv6, Tags::None);
        let mut stranger = good.clone();
        stranger.source = if ipv6 { "fd77:1::66" } else { "10.77.1.66" }.parse().unwrap();
        let mut port = good.clone();
        port.port = PORT + 1;
        let mut host = good.clone();
        host.destination = if ipv6 { "fd77:1::77" } else { "10.77.1.77" }.parse().unwrap();
        let end = u64::from(crate::world::SLAB_BLOCKS) * 1024;
        for (name, asked, exit) in [
            ("source", stranger, Some(Exit::Source)),
            ("rkey", good.clone().rkey(RKEY ^ 1), Some(Exit::Rkey)),
            ("range", good.clone().at(end, 1024), Some(Exit::Range)),
            ("across the end", good.clone().at(end - 1024, 2048), Some(Exit::Range)),
            ("alignment", good.clone().at(4, 8), Some(Exit::Profile)),
            ("length", good.clone().at(0, 2048), Some(Exit::Profile)),
            ("port", port, None),
            ("host", host, None),
        ] {
            let before = responder.counters().unwrap();
            frames.send(&asked.frame());
            let sent = good.clone().at(0, 8);
            // A good one behind it: so that its silence is not only slowness.
            frames.send(&sent.frame());
            let answer = frames.receive(is_answer).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(answer.len(), sent.frame().len() - 16 + 4 + 8, "{name}");
            let expected: Vec<_> =
                [Some((Exit::Answered, 1)), exit.map(|exit| (exit, 1))].into_iter().flatten().collect();
            assert_eq!(exits(&responder.counters().unwrap().since(&before)), expected, "{name}, IPv6 {ipv6}");
        }
    }
}
