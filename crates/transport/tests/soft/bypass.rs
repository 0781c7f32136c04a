// SPDX-License-Identifier: Apache-2.0
//! The soft requester past the kernel's UDP, by AF_XDP on real devices (needs root).

use super::*;
use onlooker_testbed::until;
use onlooker_transport::soft::bypass;

/// A requester with one flow, which goes by AF_XDP as far as it can.
struct Reader {
    socket: Socket,
    flow: onlooker_transport::soft::FlowId,
    into: Vec<Block>,
}

impl Reader {
    fn new(local: &str, peer: SocketAddr, max_read_bytes: u32) -> Self {
        let mut socket = Socket::bind(SocketAddr::new(local.parse().unwrap(), 0), Config::default()).unwrap();
        socket.open_bypass().unwrap();
        let flow = FlowConfig { max_read_bytes, ..FlowConfig::default() };
        let flow = socket.add_flow(peer, flow).unwrap();
        Self { socket, flow, into: vec![Block::default(); BLOCKS] }
    }

    /// READs all of the memory once; returns how many requests were sent, and how many of them by AF_XDP.
    fn read(&mut self, blocks: u32) -> (u64, u64) {
        let before = *self.socket.exchange().totals();
        self.into.fill(Block::default());
        let reads = reads(BLOCKS / blocks as usize, blocks, steady_ns() + 30 * SECOND_NS);
        // A veth pair has room for 256 frames before an XDP program.
        for reads in reads.chunks(64) {
            let completions = complete(&mut self.socket.requester(self.flow), reads, &mut self.into);
            assert!(completions.iter().all(|end| end.outcome == Outcome::Done), "{completions:?}");
        }
        all_done(&[], &self.into, 0);
        let after = self.socket.exchange().totals();
        (after.sent - before.sent, after.bypassed - before.bypassed)
    }

    /// READs until most requests go by AF_XDP. Where the machine has much to do some are late, are taken for lost, and
    /// repeated by the socket, as is the rest of what waits then.
    fn reads_past_udp(&mut self) {
        until("requests past UDP", || {
            let (sent, bypassed) = self.read(1);
            (bypassed > sent / 2).then_some(())
        });
    }
}

#[test]
fn reads_go_past_udp_from_the_second_on_and_other_traffic_does_not() {
    let (_world, network) = (World::new(), Network::new());
    network.add_veth("near", "far");
    bring_up("near", &["10.9.0.1/24", "fd00:9::1/64"]);
    network.enter(|| bring_up("far", &["10.9.0.2/24", "fd00:9::2/64"]));
    let memory = memory(0);
    for (local, own) in [("10.9.0.1", "10.9.0.2"), ("fd00:9::1", "fd00:9::2")] {
        let peer = network.enter(|| responder(&memory, own.parse().unwrap(), 0, Box::new(honest)));
        let mut reader = Reader::new(local, peer, 1024);
        reader.read(1);
        reader.reads_past_udp();

        let near = UdpSocket::bind((local, 0)).unwrap();
        network.enter(|| UdpSocket::bind((own, 0)).unwrap().send_to(b"hello", near.local_addr().unwrap()).unwrap());
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(near.recv(&mut buffer).unwrap(), 5);
    }
}

#[test]
fn a_neighbour_with_another_address_is_found_again() {
    let (_world, network) = (World::new(), Network::new());
    network.add_veth("near", "far");
    bring_up("near", &["10.9.0.1/24"]);
    network.enter(|| bring_up("far", &["10.9.0.2/24"]));
    let peer = network.enter(|| responder(&memory(0), "10.9.0.2".parse().unwrap(), 0, Box::new(honest)));
    let mut reader = Reader::new("10.9.0.1", peer, 1024);
    reader.read(1);
    network.enter(|| {
        run("ip", &["link", "set", "far", "address", "02:00:00:00:09:09"]);
    });
    // As an announcement of the neighbour would.
    run("ip", &["neighbour", "flush", "dev", "near"]);
    let before = reader.socket.exchange().totals().repeated;
    reader.read(1);
    assert!(reader.socket.exchange().totals().repeated > before, "what went to the old address was lost");
    reader.reads_past_udp();
}

#[test]
fn what_no_frame_holds_goes_by_the_socket() {
    let (_world, network) = (World::new(), Network::new());
    network.add_veth("near", "far");
    for (device, is_near) in [("near", true), ("far", false)] {
        // No driver's XDP at this MTU: the stack runs the program.
        let set = || run("ip", &["link", "set", device, "mtu", "9000"]);
        if is_near {
            set()
        } else {
            network.enter(set)
        };
    }
    bring_up("near", &["10.9.0.1/24"]);
    network.enter(|| bring_up("far", &["10.9.0.2/24"]));
    let peer = network.enter(|| responder(&memory(0), "10.9.0.2".parse().unwrap(), 0, Box::new(honest)));
    let mut reader = Reader::new("10.9.0.1", peer, 8192);
    reader.read(8);
    assert_eq!(reader.read(8).1, 0);
    drop(reader);

    let mut reader = Reader::new("10.9.0.1", peer, 1024);
    reader.read(1);
    reader.reads_past_udp();
    drop(reader);
    // Its program has gone with it.
    let mut socket = Socket::bind("10.9.0.1:0".parse().unwrap(), Config::default()).unwrap();
    assert_eq!(socket.open_bypass().unwrap().description(), "AF_XDP on near (generic, copied)");
}

#[test]
fn a_way_that_leads_nowhere_is_left_and_a_device_has_one_program() {
    // The stack lets nothing onto loopback that comes to 127.0.0.1 without a route of its own.
    let _world = World::new();
    let peer = responder(&memory(0), localhost(false), 0, Box::new(honest));
    let mut reader = Reader::new("127.0.0.1", peer, 1024);
    reader.read(1);
    let (sent, bypassed) = reader.read(1);
    assert!(bypassed < sent / 4, "{bypassed} of {sent}");
    assert!(reader.socket.exchange().totals().bypassed > 0, "it was tried");

    let mut other = Socket::bind(SocketAddr::new(localhost(false), 0), Config::default()).unwrap();
    assert!(matches!(other.open_bypass(), Err(bypass::Error::Taken { device }) if device == "lo"));
}
