// SPDX-License-Identifier: Apache-2.0
//! The iterator and the tracepoint of TCP connections on real sockets in a namespace of their own. Needs root and the kernel's BTF.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};

use onlooker_metrics::connections::{Connections, ESTABLISHED, LISTEN, Record, TIME_WAIT, install, remove};
use onlooker_responder::home::Home;
use onlooker_testbed::World;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

fn installed(world: &World, short_lived: bool) -> (Home, Connections) {
    let home = Home::new(world.bpffs(), "test").expect("a BPF file system");
    install(&home, short_lived).unwrap_or_else(|error| panic!("{error}"));
    let connections = Connections::new(&home);
    (home, connections)
}

/// A connection from a port of our choice.
fn connect_from(local: u16, remote: u16) -> TcpStream {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let own = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::sockopt::set_socket_reuseaddr(&own, true).expect("sets");
    bind(&own, &address(local)).expect("binds");
    connect(&own, &address(remote)).expect("connects");
    own.into()
}

fn all(connections: &mut Connections) -> Vec<Record> {
    let mut all = Vec::new();
    let count = connections.each(|record| all.push(*record)).expect("runs");
    assert_eq!(count, all.len() as u64);
    all
}

fn between(all: &[Record], local: u16, remote: u16) -> Record {
    let found: Vec<&Record> =
        all.iter().filter(|record| (record.local_port, record.remote_port) == (local, remote)).collect();
    assert_eq!(found.len(), 1, "{local} to {remote}: {all:?}");
    *found[0]
}

fn port(address: std::io::Result<std::net::SocketAddr>) -> u16 {
    address.expect("an address").port()
}

#[test]
fn sockets_are_as_they_are() {
    let world = World::new();
    let (_, mut connections) = installed(&world, false);
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(address).expect("listens");
        let mut client = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        let server_port = port(listener.local_addr());
        let listening = between(&all(&mut connections), server_port, 0);
        assert_eq!((listening.state, listening.receive_queue), (LISTEN, 1), "one waits to be accepted");
        assert!(listening.send_queue >= 1, "and so many may: {listening:?}");
        let (mut server, _) = listener.accept().expect("accepts");
        client.write_all(&[7; 1000]).expect("writes");
        server.read_exact(&mut [0; 400]).expect("reads");
        let all = all(&mut connections);
        let near = between(&all, port(client.local_addr()), server_port);
        let far = between(&all, server_port, port(client.local_addr()));
        let expected: Ipv6Addr = match client.local_addr().expect("an address").ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        assert_eq!((near.local, near.remote, near.state), (expected, expected, ESTABLISHED));
        assert_eq!((near.bytes_acked, far.bytes_received), (1001, 1000), "the SYN counts for one as RFC 4898 has it");
        assert_eq!((near.send_queue, far.receive_queue), (0, 600));
        assert!(near.srtt_us > 0 && near.congestion_window > 0 && near.segments_sent > 1, "{near:?}");
        assert_ne!(near.cookie, far.cookie);
        drop(client);
    }
}

#[test]
fn a_tuple_that_is_used_again_has_another_cookie() {
    let world = World::new();
    let (_, mut connections) = installed(&world, false);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let server_port = port(listener.local_addr());
    let mut cookies = BTreeMap::new();
    for round in 0..2 {
        let client = connect_from(30_000, server_port);
        let (server, _) = listener.accept().expect("accepts");
        let now = between(&all(&mut connections), 30_000, server_port);
        assert_eq!(now.state, ESTABLISHED);
        cookies.insert(now.cookie, round);
        // The server ends first and waits: the client's port is free at once.
        drop(server);
        drop(client);
        let waits = between(&all(&mut connections), server_port, 30_000);
        assert_eq!(waits.state, TIME_WAIT, "{waits:?}");
    }
    assert_eq!(cookies.len(), 2);
}

#[test]
fn connections_that_end_leave_a_last_record() {
    let world = World::new();
    let (home, mut connections) = installed(&world, true);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let server_port = port(listener.local_addr());
    for _ in 0..100 {
        let mut client = TcpStream::connect(("127.0.0.1", server_port)).expect("connects");
        let (server, _) = listener.accept().expect("accepts");
        client.write_all(&[7; 500]).expect("writes");
        drop(client);
        drop(server);
    }
    // Nobody listens there: no connection.
    drop(listener);
    TcpStream::connect(("127.0.0.1", server_port)).expect_err("refused");
    let mut ended = Vec::new();
    let told = connections.each_ended(|record| ended.push(*record)).expect("reads");
    assert_eq!((told.seen, told.dropped, ended.len()), (200, 0, 200));
    let sent: u64 =
        ended.iter().filter(|record| record.remote_port == server_port).map(|record| record.bytes_acked).sum();
    assert!((50_000..51_000).contains(&sent), "{sent}");
    let mut again = 0;
    connections.each_ended(|_| again += 1).expect("reads");
    assert_eq!(again, 0, "each is told once");
    install(&home, true).unwrap_or_else(|error| panic!("{error}"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let client = TcpStream::connect(("127.0.0.1", port(listener.local_addr()))).expect("connects");
    drop(listener.accept().expect("accepts"));
    drop(client);
    let told = connections.each_ended(|_| again += 1).expect("reads");
    assert_eq!((told.seen, again), (2, 2), "a loader that came later has put other maps there");
    remove(&home).expect("removes");
    assert!(Connections::new(&home).each(|_| ()).is_err(), "nothing is left to be run");
    assert!(!home.path().join("connections").exists());
}
