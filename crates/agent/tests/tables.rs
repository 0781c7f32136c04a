// SPDX-License-Identifier: Apache-2.0
//! Tables of a real agent: the BPF iterator on loopback in a namespace, read by the soft requester. Needs root.
#![allow(clippy::float_cmp, reason = "counts")]

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use common::Place;
use common::world::{KernelReader, Series, World};
use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::units::Span;
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};
use onlooker_testbed::until;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

fn connections(rows: u32) -> impl FnOnce(&mut Config) {
    move |config| {
        config.connections.enabled = true;
        (config.connections.rows, config.connections.ports) = (rows, 4);
        config.connections.interval = Span::from_ms(100);
        // Only what is looked for here.
        (config.kernel.groups, config.kernel.sample) = (Vec::new(), Span::from_ns(0));
    }
}

fn place(world: &World, rows: u32) -> Place {
    world.place(&["lo"], connections(rows))
}

/// The values of one metric by its labels.
fn rows<'a>(series: &'a [Series], name: &str) -> Vec<(&'a BTreeMap<String, String>, f64)> {
    series.iter().filter(|one| one.name == name).map(|one| (&one.labels, one.value)).collect()
}

fn value(series: &[Series], name: &str, label: (&str, &str)) -> Option<f64> {
    let found = rows(series, name);
    found.iter().find(|(labels, _)| labels.get(label.0).is_some_and(|value| value == label.1)).map(|(_, value)| *value)
}

/// A connection from a port of our choice.
fn connect_from(local: u16, remote: u16) -> Option<TcpStream> {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let own = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::sockopt::set_socket_reuseaddr(&own, true).expect("sets");
    bind(&own, &address(local)).expect("binds");
    // Refused as long as an earlier one of the same tuple has not quite ended.
    connect(&own, &address(remote)).ok()?;
    Some(own.into())
}

#[test]
fn connections_are_read_one_sidedly_with_what_ports_have_of_them() {
    let Some(world) = World::new() else { return };
    let place = place(&world, 64);
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("an address").port();
    let mut clients: Vec<TcpStream> = (0..5)
        .map(|at| {
            let mut client = connect_from(30_000 + at, port).expect("connects");
            client.write_all(&[7; 1000]).expect("writes");
            client
        })
        .collect();
    let mut servers: Vec<TcpStream> = (0..5).map(|_| listener.accept().expect("accepts").0).collect();
    servers.iter_mut().for_each(|server| server.read_exact(&mut [0; 1000]).expect("reads"));
    let text = port.to_string();
    let seen = until("five connections, with all that they sent", || {
        let series = reader.series();
        let received: f64 = rows(&series, "onlooker_tcp_connection_received_bytes_total")
            .iter()
            .filter(|(labels, _)| labels["local_port"] == text)
            .map(|(_, value)| value)
            .sum();
        // Two regions, and a sample may come between reading the one and the other.
        let of_port = value(&series, "onlooker_tcp_port_received_bytes_total", ("port", &text));
        (received == 5000.0 && of_port == Some(5000.0)).then_some(series)
    });
    let near = value(&seen, "onlooker_tcp_connection_acked_bytes_total", ("local_port", "30000"));
    assert_eq!(near, Some(1001.0), "the SYN counts, too");
    assert!(value(&seen, "onlooker_tcp_connection_rtt_seconds", ("local_port", "30000")).expect("a row") > 0.0);
    assert_eq!(value(&seen, "onlooker_tcp_port_accept_queue", ("port", &text)), Some(0.0));
    let established = rows(&seen, "onlooker_tcp_port_connections")
        .into_iter()
        .find(|(labels, _)| labels["port"] == text && labels["state"] == "established");
    assert_eq!(established.map(|(_, value)| value), Some(5.0));
    // Both responders serve the same memory.
    for region in ["tcp_connections", "tcp_ports"] {
        let entry = reader.region(region).expect("a region").entry;
        assert_eq!(entry.responders, RESPONDER_KERNEL | RESPONDER_TCP, "{region}");
    }
    // The same tuple again: the new one's bytes are not the old one's.
    servers.clear();
    clients.clear();
    let _again = until("the tuple is free", || connect_from(30_000, port));
    until("the tuple with another connection", || {
        let series = reader.series();
        let acked = value(&series, "onlooker_tcp_connection_acked_bytes_total", ("local_port", "30000"))?;
        (acked == 1.0).then_some(())
    });
}

#[test]
fn a_full_table_counts_and_another_agent_begins_anew() {
    let Some(world) = World::new() else { return };
    let place = place(&world, 6);
    let mut agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let _clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).expect("connects")).collect();
    let wait_until_full = |reader: &mut KernelReader| {
        // Both ends of twenty, less six; a sample may come while they connect.
        until("a full table that counts what has no row", || {
            let series = reader.series();
            let of_table = ("table", "tcp_connections");
            let missing = value(&series, "onlooker_table_rows_missing", of_table)?;
            let rows = value(&series, "onlooker_table_rows", of_table)?;
            (rows == 6.0 && missing >= 34.0).then_some(())
        });
    };
    wait_until_full(&mut reader);
    let before = reader.region("tcp_connections").expect("a region").entry;
    agent.kill();
    assert_eq!(reader.region("tcp_connections").expect("readable without an agent").entry, before);
    let agent = place.start();
    let mut reader = KernelReader::connect(&agent);
    wait_until_full(&mut reader);
    let all = reader.regions();
    let tables: Vec<_> = all.iter().filter(|region| region.entry.name == "tcp_connections").collect();
    assert_eq!(tables.len(), 1);
    assert_ne!(tables[0].entry.identity, before.identity);
    drop(agent);
    let purged = place.command(&["purge"]).output().expect("runs");
    assert!(purged.status.success(), "{purged:?}");
    assert!(!world.home().exists(), "the iterator's pins went, too");
}
