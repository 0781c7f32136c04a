// SPDX-License-Identifier: Apache-2.0
//! READs through the stack's own tc hook.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onlooker_region::{Block, Identity, guard};
use onlooker_responder::{Exit, Hook, Prefix};

use crate::requester::UdpRequester;
use crate::support::{exits, pattern, unlimited};
use crate::world::{PORT, REQUESTER_IP4, SLAB, SLAB_BLOCKS, World, device};

#[test]
fn blocks_are_read_over_both_families_in_all_sizes() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    let attachment = responder.attach(&device(), Hook::Tc).unwrap();
    assert_eq!(responder.attachments(), [attachment]);
    let memory = responder.slab(SLAB).unwrap().map(0, SLAB_BLOCKS, true).unwrap();
    for (index, word) in memory.words().iter().enumerate() {
        word.store(pattern(index), Ordering::Relaxed);
    }
    let bytes: Vec<u8> = memory.words().iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
    let mut reads = 0;
    for ipv6 in [false, true] {
        let mut requester = UdpRequester::new(&world, ipv6);
        for (offset, length) in [(0, 8), (64, 64), (1024, 256), (5 * 1024 + 8, 1016), (63 * 1024, 1024), (0, 1024)] {
            let answer = requester.read_at(offset, length).unwrap_or_else(|| panic!("no answer: {offset}+{length}"));
            let from = usize::try_from(offset).unwrap();
            assert_eq!(answer, bytes[from..from + usize::try_from(length).unwrap()]);
            reads += 1;
        }
    }
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, reads)]);
}

#[test]
fn a_spinning_writer_is_never_read_torn() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let memory = responder.slab(SLAB).unwrap().map(0, SLAB_BLOCKS, true).unwrap();
    let (guarded, halves) = memory.words()[..256].split_at(128);
    let identity = Identity::first(7, 9);
    guard::commit(guarded, identity, 1, |_| ());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0u64;
            while !stop.load(Ordering::Relaxed) {
                value += 1;
                guard::commit(guarded, identity, value, |payload| payload.set_all(0, &[value; 124]));
                for word in halves {
                    word.store(value << 32 | value & 0xffff_ffff, Ordering::Relaxed);
                }
            }
        });
        let mut requester = UdpRequester::new(&world, false);
        let (mut accepted, mut last) = (0, 0);
        let start = Instant::now();
        while accepted < 2000 && start.elapsed() < Duration::from_secs(15) {
            let mut block = Block::default();
            block.bytes_mut().copy_from_slice(&requester.read_at(0, 1024).unwrap());
            if let Ok(block) = guard::check(&block, identity) {
                let payload = block.payload();
                assert!(payload.iter().all(|word| *word == payload[0]), "a torn block was accepted");
                assert!(payload[0] >= last, "time went backwards");
                last = payload[0];
                accepted += 1;
            }
            for word in requester.read_at(1024, 1024).unwrap().chunks(8) {
                let word = u64::from_le_bytes(word.try_into().unwrap());
                assert_eq!(word >> 32, word & 0xffff_ffff, "a word was split");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(accepted >= 100 && last > 0, "{accepted} blocks were accepted");
    });
}

#[test]
fn strangers_other_ports_and_wrong_requests_get_silence() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    let mut requester = UdpRequester::new(&world, false);
    assert!(requester.read_at(0, 1024).is_some());
    let before = responder.counters().unwrap();
    assert_eq!(requester.read_at(4, 8), None);
    assert_eq!(requester.read(0, 1, 8), None);
    responder.disallow(Prefix::host(REQUESTER_IP4.parse().unwrap())).unwrap();
    // No ICMP either: the socket would report it as an error.
    assert_eq!(requester.read_at(0, 1024), None);
    let counted = responder.counters().unwrap().since(&before);
    assert_eq!(exits(&counted), [(Exit::Source, 1), (Exit::Rkey, 1), (Exit::Profile, 1)]);
}

#[test]
fn loopback_works_through_tc() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&onlooker_responder::Device::named("lo").unwrap(), Hook::Tc).unwrap();
    for own in ["127.0.0.1", "::1"] {
        let own = own.parse().unwrap();
        responder.allow(Prefix::host(own)).unwrap();
        let mut requester = UdpRequester::between(own, (own, PORT).into());
        for length in [8, 1024] {
            assert!(requester.read_at(0, length).is_some(), "{own} {length}");
        }
    }
}

/// The device finishes checksums of what it sends in software, as `ethtool -K <device> tx off` has it.
fn switch_checksum_offload_off(device: &str) {
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let mut value = Value { command: ETHTOOL_STXCSUM, data: 0 };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: a zeroed ifreq is valid; its name is NUL-terminated and its data points at a live ethtool_value for the time of the call.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
            *to = libc::c_char::try_from(from).unwrap();
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), SIOCETHTOOL, &raw mut request)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn unfinished_checksums_of_requests_do_no_harm_where_there_are_none() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach(&device(), Hook::Tc).unwrap();
    for ipv6 in [false, true] {
        assert!(UdpRequester::new(&world, ipv6).read_at(0, 1024).is_some());
    }
    switch_checksum_offload_off(crate::world::RESPONDER_DEVICE);
    for ipv6 in [false, true] {
        assert!(UdpRequester::new(&world, ipv6).without_checksum().read_at(0, 1024).is_some(), "IPv6 {ipv6}");
        // The trap that docs/responder.md describes. If this fails the trap is gone: correct the page.
        assert_eq!(UdpRequester::new(&world, ipv6).read_at(0, 1024), None, "IPv6 {ipv6}");
    }
}
