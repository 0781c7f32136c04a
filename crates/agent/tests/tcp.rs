// SPDX-License-Identifier: Apache-2.0
//! READs over TCP against a real agent: what is not exactly a region is refused with a reason, and no peer can hold the agent up.

mod common;

use common::reader::{connect, connect_from};
use common::{Bystander, Place};
use onlooker_agent_lib::units::Span;
use onlooker_testbed::until;
use onlooker_wire::tcp_read::{self, Read as Wanted, Refusal};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

#[test]
fn only_what_is_exactly_a_region_is_served() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let client = agent.client();
    let (first, second) = (client.publish("first", 1), client.publish("second", 2));
    let mut reader = agent.reader();
    let (a, b) = (reader.region("first").unwrap(), reader.region("second").unwrap());
    assert!(a.va % (2 << 20) == 0 && b.va % (2 << 20) == 0 && a.rkey != b.rkey);
    first.set(1);
    second.set(2);
    let mut ask = |va, rkey, length| reader.read(va, rkey, length).map(|bytes| bytes[8]);
    assert_eq!((ask(a.va, a.rkey, 1024), ask(b.va, b.rkey, 1024)), (Ok(1), Ok(2)));
    for (va, rkey, length, refusal) in [
        (a.va, b.rkey, 1024, Refusal::Access),
        (a.va, a.rkey ^ 1, 1024, Refusal::Access),
        (a.va, 0, 1024, Refusal::Access),
        (a.va + 1024, a.rkey, 1024, Refusal::Access),
        (a.va - 1024, a.rkey, 2048, Refusal::Access),
        // Straddling: the range of `first` is a page, but the region ends after a block.
        (a.va, a.rkey, 2048, Refusal::Access),
        (b.va, b.rkey, 65_536, Refusal::Access),
        (0, b.rkey, 1024, Refusal::Access),
        (u64::MAX - 1023, b.rkey, 1024, Refusal::Access),
        (b.va + 512, b.rkey, 1024, Refusal::InvalidRequest),
        (b.va, b.rkey, 1, Refusal::InvalidRequest),
    ] {
        assert_eq!(ask(va, rkey, length), Err(refusal), "{va} {rkey} {length}");
    }
    let good = Wanted { va: b.va, rkey: b.rkey, length_bytes: 1024 };
    let bad = Wanted { rkey: !b.rkey, ..good };
    let outcomes = reader.reads(&[bad, good, bad, good]);
    assert_eq!(
        outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [false, true, false, true],
        "each READ has its own status"
    );
    // Lengths that the reader's own encoder refuses.
    let mut stream = connect(agent.tcp);
    for (id, length) in [(1u32, 0u32), (2, 65_537), (3, u32::MAX)] {
        let mut request =
            [&id.to_le_bytes()[..], &1u32.to_le_bytes(), &b.va.to_le_bytes(), &b.rkey.to_le_bytes()].concat();
        request.extend(length.to_le_bytes());
        stream.write_all(&request).unwrap();
        let mut answer = [0; 16];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[..4], answer[8], &answer[12..]), (&id.to_le_bytes()[..], 2, &[0; 4][..]));
    }
    bystander.check();
    assert_eq!(bystander.counter("tcp_reads_refused_total{reason=access}"), 11);
    assert_eq!(bystander.counter("tcp_reads_refused_total{reason=invalid_request}"), 5);
    assert!(bystander.counter("tcp_reads_total") > 3);
}

#[test]
fn a_stream_that_is_no_tcp_read_is_closed() {
    let place = Place::new(|_| ());
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &[0xff; 64]] {
        let mut stream = connect(agent.tcp);
        stream.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    let mut stream = connect(agent.tcp);
    stream.write_all(&[1, 0, 0]).unwrap();
    drop(stream);
    until("four are counted", || {
        (bystander.counter("tcp_connections_closed_total{reason=protocol}") == 4).then_some(())
    });
    bystander.check();
}

#[test]
fn sources_that_are_not_allowed_are_closed_unread() {
    let place = Place::new(|config| config.tcp.allow = vec!["127.0.0.2/32".parse().unwrap()]);
    let agent = place.start();
    let mut stream = connect(agent.tcp);
    let _ = stream.write_all(&[0; 8]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty());
    // From an allowed address the same agent answers, and has counted.
    let mut allowed = connect_from([127, 0, 0, 2], agent.tcp);
    let mut request = [0; 64];
    let length = tcp_read::encode_request(1, &[Wanted { va: 0, rkey: 0, length_bytes: 1024 }], &mut request).unwrap();
    allowed.write_all(&request[..length]).unwrap();
    let mut answer = [0; 16];
    allowed.read_exact(&mut answer).unwrap();
    assert_eq!(answer[8], Refusal::Access as u8);
}

#[test]
fn connections_and_rates_are_limited() {
    let place = Place::new(|config| {
        config.tcp.max_connections = 2;
        config.tcp.max_reads_per_s = 2000;
    });
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    bystander.check();
    let second = agent.reader();
    let mut third = connect(agent.tcp);
    assert_eq!(third.read(&mut [0; 8]).unwrap_or(0), 0, "closed");
    assert_eq!(bystander.counter("tcp_connections_refused_total{reason=busy}"), 1);
    drop(second);
    let mut reader = until("a place", || (bystander.counter("tcp_connections") == 1).then(|| agent.reader()));
    let (va, rkey) = (reader.control_va, reader.control_rkey);
    let many = [Wanted { va, rkey, length_bytes: 1024 }; 256];
    let begin = Instant::now();
    let (mut served, mut refused) = (0, 0);
    while begin.elapsed() < Duration::from_millis(1500) {
        for outcome in reader.reads(&many) {
            match outcome {
                Ok(_) => served += 1,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::Overloaded);
                    refused += 1;
                }
            }
        }
    }
    let most = 2000.0 * (begin.elapsed().as_secs_f64() + 1.0);
    assert!(f64::from(served) <= most && served >= 2000 && refused > 0, "{served} {refused}");
    // Later, not never. The bystander shares the source and its bucket.
    drop(reader);
    std::thread::sleep(Duration::from_millis(1100));
    assert!(bystander.counter("tcp_reads_refused_total{reason=overloaded}") > 0);
    bystander.check();
}

#[test]
fn one_source_cannot_take_all_places() {
    let place = Place::new(|config| config.tcp.max_connections_per_source = 3);
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let _held = [agent.reader(), agent.reader()].map(|mut reader| {
        reader.refresh();
        reader
    });
    let mut fourth = connect(agent.tcp);
    assert_eq!(fourth.read(&mut [0; 8]).unwrap_or(0), 0, "closed");
    assert_eq!(bystander.counter("tcp_connections_refused_total{reason=source_busy}"), 1);
    assert_eq!(connect_from([127, 0, 0, 2], agent.tcp).peer_addr().unwrap(), agent.tcp);
    until("another source has a place", || (bystander.counter("tcp_connections_accepted_total") == 4).then_some(()));
    bystander.check();
}

#[test]
fn slow_and_silent_peers_are_let_go() {
    let place = Place::new(|config| config.tcp.idle_timeout = Span::from_s(1));
    let agent = place.start();
    let mut bystander = Bystander::new(&agent);
    let silent = connect(agent.tcp);
    // Drips a byte of a request every 100 ms: no single gap is long, the whole is.
    let mut drip = connect(agent.tcp);
    let begin = Instant::now();
    let mut request = [0; tcp_read::LONGEST_REQUEST_BYTES];
    let reads = [Wanted { va: 0, rkey: 0, length_bytes: 1024 }; 256];
    let length = tcp_read::encode_request(1, &reads, &mut request).unwrap();
    let mut silent_gone = false;
    for byte in &request[..length] {
        if drip.write_all(std::slice::from_ref(byte)).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        bystander.check();
        silent_gone |= begin.elapsed() > Duration::from_secs(2)
            && bystander.counter("tcp_connections_closed_total{reason=idle}") == 1;
        if bystander.counter("tcp_connections_closed_total{reason=slow}") > 0 {
            break;
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    assert!(silent_gone);
    drop(silent);
    // Asks for much and takes nothing.
    let mut reader = agent.reader();
    let (va, rkey) = (reader.control_va, reader.control_rkey);
    reader.refresh();
    let mut greedy = connect(agent.tcp);
    let reads = [Wanted { va, rkey, length_bytes: 65_536 }; 256];
    let length = tcp_read::encode_request(1, &reads, &mut request).unwrap();
    greedy.write_all(&request[..length]).unwrap();
    until("it is let go", || {
        bystander.check();
        (bystander.counter("tcp_connections_closed_total{reason=slow}") == 2).then_some(())
    });
}

#[test]
fn kernel_metrics_are_sampled_while_somebody_reads() {
    let place = Place::new(|config| config.sampled.interval = Span::from_ms(50));
    let agent = place.start();
    let mut reader = agent.reader();
    let cpu = reader.values("node_cpu");
    assert!(cpu["node_cpu_seconds_total{mode=idle,cpu=0}"] > 0.0 && cpu["node_boot_time_seconds{}"] > 1.6e9, "{cpu:?}");
    assert!(reader.values("node_load").contains_key("node_load1{}"));
    assert!(reader.values("node_memory")["node_memory_MemTotal_bytes{}"] > 1e8);
    assert!(reader.values("node_network").contains_key("node_network_receive_bytes_total{device=lo}"));
    assert!(reader.region("node_cpu").unwrap().labels.is_empty(), "node_exporter's labels and no others");
    let first = reader.counter("samples_total");
    until("more samples", || (reader.counter("samples_total") > first + 3).then_some(()));
    let last = reader.counter("samples_total");
    drop(reader);
    std::thread::sleep(Duration::from_millis(500));
    let mut reader = agent.reader();
    let samples = reader.counter("samples_total") - last;
    assert!(samples <= 4, "{samples} samples while nobody read");
    assert_eq!(reader.counter("sample_errors_total"), 0);
}

#[test]
fn who_has_no_key_gets_nothing_sampled() {
    let place = Place::new(|config| config.sampled.interval = Span::from_ms(20));
    let agent = place.start();
    let _silent = connect(agent.tcp);
    let mut guessing = connect(agent.tcp);
    let mut request = [0; 64];
    let length = tcp_read::encode_request(1, &[Wanted { va: 0, rkey: 7, length_bytes: 1024 }], &mut request).unwrap();
    for _ in 0..10 {
        guessing.write_all(&request[..length]).unwrap();
        guessing.read_exact(&mut [0; 16]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
    }
    // The reader's own first READ takes the first sample, and is answered with it.
    let mut reader = agent.reader();
    let counters = reader.values("onlooker_agent");
    let (samples, took_s) =
        (counters["onlooker_agent_samples_total{}"], counters["onlooker_agent_sample_seconds_total{}"]);
    assert!((1.0..8.0).contains(&samples) && took_s > 0.0, "{samples} samples");
}
