// SPDX-License-Identifier: Apache-2.0
//! What a device needs to know of a kernel responder, and reading one on the strict device of [`onlooker_verbs::fake`], whose far end answers as such a responder does.

use super::*;
use crate::memory::Host;
use crate::verbs::{Port, Sleeper};
use onlooker_bootstrap::KERNEL;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Broken, Error as HostError, Fault, Limits, Requester, Session};
use onlooker_region::Block;
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};
use onlooker_verbs::fake::{Agreement, Fake, FakePair};
use onlooker_verbs::{Completed, Error as DeviceError, MAX_POLL, Status, WorkRequest};
use onlooker_wire::tcp_read;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn kernel(max_read_bytes: Option<u32>) -> Responder {
    Responder { kind: KERNEL.into(), port: 7179, max_read_bytes, roce: true, ..Responder::default() }
}

fn told(responder: Responder) -> Bootstrapped {
    crate::told(Host::new(64).answer(1), vec![responder])
}

#[test]
fn a_host_that_answers_no_devices_says_so_before_a_device_is_looked_for() {
    let connect = |responder: Responder| connect_kernel(&told(responder)).unwrap_err();
    assert!(matches!(
        connect(Responder { kind: "tcp".into(), ..kernel(None) }),
        Error::Host(HostError::NoResponder { .. })
    ));
    assert!(matches!(connect(Responder { port: 0, ..kernel(None) }), Error::Host(HostError::NoResponder { .. })));
    let away = Responder { problem: Some("no lease".into()), ..kernel(None) };
    assert!(connect(away).to_string().contains("no lease"));
    let off = connect(Responder { roce: false, ..kernel(None) });
    assert!(matches!(off, Error::Host(HostError::Problem { kind: KERNEL, .. })), "{off}");
    assert!(off.to_string().contains("`[kernel] roce = true` in the host's agent.toml"), "{off}");
    // Loopback is no device's address.
    assert!(matches!(connect(kernel(None)), Error::Device(_)));
}

#[test]
fn a_read_is_as_long_as_one_packet_and_the_responder_have_it() {
    for (answered, mtu_bytes, blocks) in [
        (None, 1024, Some(1)),
        (None, 4096, Some(1)),
        (Some(1024), 4096, Some(1)),
        (Some(8192), 1024, Some(1)),
        (Some(8192), 2048, Some(2)),
        (Some(8192), 4096, Some(4)),
        (Some(3072), 4096, Some(3)),
        (Some(8192), 512, None),
        (None, 256, None),
    ] {
        let got = max_read_blocks(&told(kernel(answered)), mtu_bytes).unwrap();
        assert_eq!(got, blocks, "{answered:?} at {mtu_bytes}");
    }
}

#[test]
fn the_other_end_is_made_of_this_ones_number_and_the_hosts_address() {
    let own =
        Endpoint { queue_pair: 0x12_3456, packet: FIRST_PACKET, gid: [9; 16], mtu_bytes: 2048, reads_answered: 3 };
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3];
    for (peer, gid) in [
        ("10.1.2.3", mapped),
        ("::ffff:10.1.2.3", mapped),
        ("fd77::1", [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ] {
        let far = far_end(&own, peer.parse().unwrap());
        let expected = Endpoint { queue_pair: 0x12_3456, packet: 0, gid, mtu_bytes: 2048, reads_answered: 16 };
        assert_eq!((far, far.check(), PATH.check()), (expected, Ok(()), Ok(())), "{peer}");
    }
}

/// The strict device, which works while it is slept on.
struct Desk(Fake);

impl Port for Desk {
    type Pair = FakePair;

    fn settings(&self, pair: &FakePair) -> Option<Settings> {
        self.0.settings(pair)
    }

    fn post(&mut self, pair: &mut FakePair, batch: &[WorkRequest]) -> Result<(), DeviceError> {
        self.0.post(pair, batch)
    }

    fn poll(&mut self, completed: &mut [Completed; MAX_POLL]) -> Result<usize, DeviceError> {
        self.0.poll(completed)
    }

    fn landed(&self, pair: &FakePair, from: (u32, u32), to: &mut [Block]) {
        self.0.landed(pair, from, to);
    }

    fn retire(&mut self, pair: FakePair) {
        self.0.retire(pair);
    }
}

impl Sleeper for Desk {
    fn arm(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn sleep(&mut self, _: Duration) -> io::Result<bool> {
        self.0.run(usize::MAX);
        Ok(true)
    }
}

const SHOP: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":9,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;

/// Reads a host once; the lengths of its READs are kept in `lengths`.
fn read_once(host: &Host, lengths: &Arc<Mutex<Vec<u32>>>) -> Result<Vec<String>, DriveError> {
    let (memory, log) = (host.memory.clone(), lengths.clone());
    let far_end = move |request: &WorkRequest| -> Result<Vec<u64>, Status> {
        log.lock().unwrap().push(request.bytes);
        let read = tcp_read::Read { va: request.va, rkey: request.rkey, length_bytes: request.bytes };
        // What is refused gets silence.
        let bytes = memory.read(&read).map_err(|_| Status::NoAnswer)?;
        Ok(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
    };
    let told = told(kernel(Some(8192)));
    let max_read_blocks = max_read_blocks(&told, 2048).unwrap().unwrap();
    let mut desk = Desk(Fake::with(64, Box::new(far_end)));
    let packets = (FIRST_PACKET, FIRST_PACKET);
    let agreement = Agreement { reads_answered: READS_ANSWERED.into(), packets, ..Agreement::default() };
    let pair = desk.0.pair(Settings { max_read_blocks, ..Settings::default() }, agreement);
    let mut requester = VerbsRequester::new(desk, pair, u32::MAX);
    let mut answer = host.answer(1);
    answer.responders.extend(told.answer.responders);
    let mut session = Session::new(&answer, Via::Kernel, requester.max_read_blocks(), Limits::default());
    read_host(&mut requester, &mut session, 1_000_000_000, || 1)?;
    let mut lines = Vec::new();
    for frame in session.frames() {
        frame.decode(|sample| lines.push(format!("{} {}", sample.field.name, sample.scaled())));
    }
    Ok(lines)
}

#[test]
fn a_host_is_read_in_packets_and_silence_ends_the_queue_pair() {
    let mut host = Host::new(64);
    host.responders = RESPONDER_TCP | RESPONDER_KERNEL;
    let shop = host.region(1, "shop", &[], SHOP);
    shop.words.set(0, 1, 42);
    let lengths = Arc::new(Mutex::new(Vec::new()));
    assert_eq!(read_once(&host, &lengths), Ok(vec!["a_total 42".to_owned()]));
    let longest = lengths.lock().unwrap().iter().copied().max();
    assert_eq!(longest, Some(2048), "the region's nine blocks, two a packet");
    // A region that has ended since the directory was read.
    host.memory.remove(shop.entry.rkey);
    let error = read_once(&host, &lengths).unwrap_err();
    assert_eq!(error, DriveError::Broken(Broken::QueuePair(Fault::NoAnswer)));
    assert!(error.to_string().contains("4791"), "{error}");
}
