// SPDX-License-Identifier: Apache-2.0
//! Reading can be taken back: after `token --renew`, and after an address has left `allow`, whoever has read before reads nothing, by the very packets that were answered before.
//! Programs' regions stay what they are. The kernel responder's part needs root.
#![allow(clippy::float_cmp, reason = "counts")]

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use common::reader::bootstrap;
use common::world::{KernelReader, World};
use common::{Agent, Place, Program};
use onlooker_agent_lib::units::Span;
use onlooker_region::control::RegionEntry;
use onlooker_testbed::{run, uninterrupted, until};
use onlooker_wire::{Envelope, Packet, Part, Psn, Qpn, ReadAnswer, ReadRequest};
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, set_ip_mtu_discover};

/// READs of the kernel responder as they stand on the wire: no session, nothing that learns.
struct Raw {
    socket: UdpSocket,
    responder: SocketAddr,
    to: Envelope,
    from: Envelope,
    psn: u32,
}

impl Raw {
    fn new(own: &str, responder: &str, port: u16) -> Self {
        let own: IpAddr = own.parse().unwrap();
        let responder = SocketAddr::new(responder.parse().unwrap(), port);
        let socket = UdpSocket::bind((own, 0)).unwrap();
        // So, and not connected, it has the IP identification 0, which the ICRC covers.
        set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let own = socket.local_addr().unwrap();
        let (to, from) = (Envelope::socket(own, responder).unwrap(), Envelope::socket(responder, own).unwrap());
        Self { socket, responder, to, from, psn: 0 }
    }

    /// The block at an address, if it is answered.
    fn read(&mut self, va: u64, rkey: u32) -> Option<Vec<u8>> {
        self.psn += 1;
        let psn = Psn::wrapping(self.psn);
        let request = ReadRequest { destination: Qpn::wrapping(0x77), psn, va, rkey, length_bytes: 1024 };
        let mut datagram = [0; 64];
        let length = Packet::from(request).write_datagram(&self.to, &mut datagram).unwrap();
        self.socket.send_to(&datagram[..length], self.responder).unwrap();
        let mut buffer = [0; 2048];
        while let Ok(length) = uninterrupted(|| self.socket.recv(&mut buffer)) {
            let answer = Packet::parse_datagram(&self.from, &buffer[..length]).unwrap();
            if let Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), psn: answered, payload, .. }) = answer
                && answered == psn
            {
                return Some(payload.to_vec());
            }
        }
        None
    }
}

type Keys = Vec<(String, u64, u32)>;

/// Names of what is answered.
fn answered(keys: &Keys, mut read: impl FnMut(u64, u32) -> bool) -> Vec<&str> {
    keys.iter().filter(|(_, va, rkey)| read(*va, *rkey)).map(|(name, ..)| name.as_str()).collect()
}

fn names(keys: &Keys) -> Vec<&str> {
    keys.iter().map(|(name, ..)| name.as_str()).collect()
}

/// A sampled group whose series have changed meanwhile gets a region of its own, and its old one answers no more.
fn assert_lasting_answer(keys: &Keys, read: impl FnMut(u64, u32) -> bool) {
    let lasting: Keys = keys.iter().filter(|(name, ..)| !name.ends_with("_sampled")).cloned().collect();
    assert_eq!(answered(&lasting, read), names(&lasting));
}

fn port(place: &Place) -> u16 {
    place.config.kernel.port
}

fn renew(place: &Place) -> (String, String) {
    let output = place.command(&["token", "--renew"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim().to_owned();
    (text(output.stdout), text(output.stderr))
}

/// A region's entry but for where it is.
fn same(entry: &RegionEntry) -> RegionEntry {
    RegionEntry { va: 0, rkey: 0, ..entry.clone() }
}

#[test]
fn a_renewed_token_ends_reading_over_tcp() {
    let place = Place::new(|config| config.bootstrap.tls = true);
    let mut agent = place.start();
    let client = agent.client();
    let region = client.publish("shop", 7);
    let mut old = agent.reader();
    let mut keys: Keys = old.regions().into_iter().map(|region| (region.name, region.va, region.rkey)).collect();
    keys.push(("control".into(), old.control_va, old.control_rkey));
    assert_eq!(answered(&keys, |va, rkey| old.read(va, rkey, 1024).is_ok()), names(&keys));
    let before = old.region("shop").unwrap();

    agent.token = renew(&place).0;
    // At once: the command has waited for it. The connection that has read before is there still.
    assert!(answered(&keys, |va, rkey| old.read(va, rkey, 1024).is_ok()).is_empty());

    region.set(8);
    let mut new = agent.reader();
    assert_eq!(new.values("shop")["test_value{}"], 8.0);
    let after = new.region("shop").unwrap();
    assert_eq!(same(&after), same(&before));
    assert_eq!(new.regions().len() + 1, keys.len());
    assert_eq!(new.counter("regions"), 1);
    let another = client.publish("late", 3);
    assert_eq!(new.values("late")["test_value{}"], 3.0);
    assert!(another.id > region.id);
    drop(agent.terminate());
    let agent = place.start();
    assert!(!agent.log.contains("new keys"), "{}", agent.log);
}

#[test]
fn a_renewed_token_ends_reading_over_the_kernel_responder() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |config| config.limits.grace = Span::from_s(60));
    let mut agent = place.start();
    let client = agent.client();
    let region = client.publish("shop", 5);
    let mut program = Program::start(&agent, "counting");
    program.tell("create");
    program.tell("publish");
    let (keys, before) = keys_of(&agent);
    let mut raw = Raw::new("127.0.0.1", "127.0.0.1", port(&place));
    assert_lasting_answer(&keys, |va, rkey| raw.read(va, rkey).is_some());
    assert!(before.iter().any(|entry| entry.name == "node_load"), "computed ones, too: {before:?}");

    agent.token = renew(&place).0;
    assert_eq!(answered(&keys, |va, rkey| raw.read(va, rkey).is_some()), [""; 0]);

    region.set(6);
    program.tell("set 11");
    let mut reader = KernelReader::connect(&agent);
    assert_eq!((reader.value("shop"), reader.value_of("counting", "program_value")), (6.0, 11.0));
    let (new_keys, after) = keys_of(&agent);
    let lasting = |all: &[RegionEntry]| -> Vec<_> {
        all.iter().filter(|entry| !entry.name.ends_with("_sampled")).map(same).collect()
    };
    assert_eq!(lasting(&after), lasting(&before));
    let named = |all: &[RegionEntry]| all.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    assert_eq!(named(&after), named(&before));
    assert_eq!(agent.reader().values("shop")["test_value{}"], 6.0, "over TCP, too");

    // The ledger has the new keys: they survive an agent, and the old ones stay void.
    agent.kill();
    let agent = place.start();
    assert!(!agent.log.contains("new keys"), "{}", agent.log);
    assert_eq!(reader.value("shop"), 6.0);
    assert!(agent.client().create("shop", 1).resumed);
    assert_lasting_answer(&new_keys, |va, rkey| raw.read(va, rkey).is_some());
    assert_eq!(answered(&keys, |va, rkey| raw.read(va, rkey).is_some()), [""; 0]);
}

/// Addresses and keys of all that is served by the kernel responder, the control region too; and its regions by name.
fn keys_of(agent: &Agent) -> (Keys, Vec<RegionEntry>) {
    let told = bootstrap(agent.bootstrap, &agent.token);
    let number = |key: &str| told["control"][key].as_u64().unwrap();
    let control = ("control".to_owned(), number("va"), u32::try_from(number("rkey")).unwrap());
    let mut reader = KernelReader::connect(agent);
    let mut entries = until("what is computed", || {
        let entries: Vec<RegionEntry> = reader.try_regions().ok()?.into_iter().map(|seen| seen.entry).collect();
        // The last of those that come together.
        entries.iter().any(|entry| entry.name == "node_scrape_sampled").then_some(entries)
    });
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let keys = entries.iter().map(|entry| (entry.name.clone(), entry.va, entry.rkey)).chain([control]);
    (keys.collect(), entries)
}

#[test]
fn a_token_that_is_renewed_without_an_agent_ends_reading_too() {
    let Some(world) = World::new() else { return };
    let place = world.place(&["lo"], |config| config.limits.grace = Span::from_s(60));
    let mut agent = place.start();
    let client = agent.client();
    let region = client.publish("shop", 5);
    let (keys, _) = keys_of(&agent);
    let mut raw = Raw::new("127.0.0.1", "127.0.0.1", port(&place));
    agent.kill();
    // Nobody needs an agent for that.
    assert_lasting_answer(&keys, |va, rkey| raw.read(va, rkey).is_some());

    let (_, said) = renew(&place);
    assert!(said.contains("silent until"), "{said}");
    assert_eq!(answered(&keys, |va, rkey| raw.read(va, rkey).is_some()), [""; 0]);

    region.set(6);
    let agent = place.start();
    assert!(agent.log.contains("new keys"), "{}", agent.log);
    assert_eq!(answered(&keys, |va, rkey| raw.read(va, rkey).is_some()), [""; 0]);
    assert_eq!(KernelReader::connect(&agent).value("shop"), 6.0, "programs' regions go on");
    let again = agent.client().create("shop", 1);
    assert!(again.resumed);
    assert_eq!((again.id, again.get()), (region.id, 6));
}

#[test]
fn an_address_that_has_left_allow_reads_nothing_after_a_restart() {
    let Some(world) = World::new() else { return };
    run("ip", &["address", "add", "198.18.9.1/32", "dev", "lo"]);
    run("ip", &["address", "add", "198.18.9.2/32", "dev", "lo"]);
    let mut place = world.place(&["lo"], |config| {
        config.kernel.allow = ["127.0.0.0/8", "198.18.9.2/32"].map(|prefix| prefix.parse().unwrap()).into();
        config.limits.grace = Span::from_s(60);
    });
    let mut agent = place.start();
    let client = agent.client();
    let _region = client.publish("shop", 5);
    let (keys, _) = keys_of(&agent);
    let mut raw = Raw::new("198.18.9.2", "198.18.9.1", port(&place));
    assert_lasting_answer(&keys, |va, rkey| raw.read(va, rkey).is_some());
    place.config.kernel.allow.truncate(1);
    place.write();
    drop(agent.terminate());
    let agent = place.start();
    assert_eq!(answered(&keys, |va, rkey| raw.read(va, rkey).is_some()), [""; 0]);
    assert_eq!(KernelReader::connect(&agent).value("shop"), 5.0, "others read on");
}
