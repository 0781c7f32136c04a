// SPDX-License-Identifier: Apache-2.0
//! Many open pages: all are served, the readings do not wait for them, and what they take is given back.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use onlooker_testbed::{Agent, Controller, PATIENCE, get, json, uninterrupted, until, until_within};

const PAGES: usize = 200;
const SERIES: usize = 50;
const EVERY: Duration = Duration::from_millis(100);
const OPEN: Duration = Duration::from_secs(6);
/// A row every `EVERY` would be 60 in that time; other tests run beside.
const LEAST_ROWS: usize = 10;

fn open(address: SocketAddr, query: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/onlooker/v1/live?host=a&{query} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Rows of a stream until `end`, and until there are some.
fn rows(stream: TcpStream, end: Instant) -> usize {
    let mut rows = 0;
    for line in BufReader::new(stream).lines() {
        let line = line.expect("a line in time");
        rows += usize::from(line == "event: row");
        if Instant::now() >= end && rows >= LEAST_ROWS {
            break;
        }
    }
    rows
}

/// Sockets that the controller has open; files of its store come and go.
fn sockets(controller: &Controller) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", controller.process().pid())).unwrap();
    // One that is closed meanwhile has no target any more.
    let targets = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// CPU time, s, and resident memory, MiB.
fn usage(controller: &Controller) -> (f64, f64) {
    let pid = controller.process().pid();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (ticks / 100.0, kib / 1024.0)
}

/// Series that are acquired anew within `EVERY`, four times on end: tables and groups that are sampled seldom give no rows, and their regions may come first.
fn series(address: SocketAddr) -> Vec<String> {
    let times = || {
        let listed = json(address, "/api/onlooker/v1/hosts/a/series?limit=10000");
        let times = listed["series"].as_array().unwrap().iter().filter(|series| series["type"] != "histogram");
        times.map(|series| (series["series"].as_str().unwrap().to_owned(), series["time_ms"].to_string())).collect()
    };
    let mut moving: Vec<(String, String)> = times();
    for _ in 0..4 {
        thread::sleep(EVERY);
        let now: HashMap<String, String> = times().into_iter().collect();
        moving.retain_mut(|(text, time)| now.get(text).is_some_and(|now| *now != std::mem::replace(time, now.clone())));
    }
    moving.into_iter().map(|(text, _)| text).collect()
}

fn query(series: &[String], count: usize) -> String {
    let encode = |text: &String| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    series.iter().cycle().take(count).map(|text| format!("series={}&", encode(text))).collect()
}

#[test]
fn two_hundred_pages_and_one_that_does_not_read() {
    let _quiet = crate::quiet();
    let agent = Agent::start();
    let controller = Controller::start("", &format!("{}interval = \"20ms\"\n", agent.target("a")));
    let address = controller.address();
    until("a reading", || {
        json(address, "/api/onlooker/v1/hosts")["hosts"][0]["cycles"].as_u64().filter(|cycles| *cycles > 0)
    });
    let series = until("series", || Some(series(address)).filter(|series| series.len() >= SERIES));
    let url = query(&series, SERIES) + &format!("every_ms={}", EVERY.as_millis());
    let host = || json(address, "/api/onlooker/v1/hosts/a");
    let count = |host: &serde_json::Value, key: &str| host[key].as_u64().unwrap();
    let idle = sockets(&controller);

    // Alone, then with all pages.
    let (alone, before) = (host(), usage(&controller));
    thread::sleep(OPEN);
    let (quiet, between) = (host(), usage(&controller));
    let end = Instant::now() + OPEN;
    let pages: Vec<_> = (0..PAGES)
        .map(|_| {
            let stream = open(address, &url);
            thread::Builder::new().stack_size(256 << 10).spawn(move || rows(stream, end)).unwrap()
        })
        .collect();
    let got: Vec<usize> = pages.into_iter().map(|page| page.join().unwrap()).collect();
    let (busy, after) = (host(), usage(&controller));
    let least = *got.iter().min().unwrap();
    let cycles = (count(&quiet, "cycles") - count(&alone, "cycles"), count(&busy, "cycles") - count(&quiet, "cycles"));
    let late = (count(&quiet, "late") - count(&alone, "late"), count(&busy, "late") - count(&quiet, "late"));
    println!(
        "{PAGES} pages of {SERIES} series: {} rows, at least {least} a page; CPU {:.2} s, {:.2} s without; memory {:.1} MiB, {:.1} MiB without; \
         readings {} with, {} without; late {} and {}",
        got.iter().sum::<usize>(),
        after.0 - between.0,
        between.0 - before.0,
        after.1,
        between.1,
        cycles.1,
        cycles.0,
        late.1,
        late.0,
    );
    assert!(least >= LEAST_ROWS, "{got:?}");
    assert!(after.1 - between.1 < 64.0, "memory");
    assert!(cycles.1 * 2 > cycles.0, "readings are made as without pages: {cycles:?}");

    until("all that the pages took is given back", || (sockets(&controller) <= idle + 1).then_some(()));
    slow(&controller, &series);
    until("the slow page's descriptor", || (sockets(&controller) <= idle + 1).then_some(()));
}

/// A page that does not read for a while: the kernel's buffers fill, rows are lost, counted, and others come once it reads. One that does not read any more is ended.
fn slow(controller: &Controller, series: &[String]) {
    let short: Vec<String> =
        series.iter().filter(|text| text.starts_with("node_memory_MemFree_bytes{")).cloned().collect();
    let page = open(controller.address(), &(query(&short, 1_000) + "every_ms=10"));
    page.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (_, before) = usage(controller);
    let mut page = BufReader::new(page);
    let mut text = Vec::new();
    // The kernel's buffers fill first, which takes longer on a busy machine.
    for wait in [4, 8, 16, 32] {
        thread::sleep(Duration::from_secs(wait));
        let (_, waiting) = usage(controller);
        assert!(waiting - before < 32.0, "{before} MiB, then {waiting} MiB");
        let mut piece = [0; 65536];
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            match uninterrupted(|| page.read(&mut piece)) {
                Ok(0) => panic!("the stream ended"),
                Ok(count) => text.extend_from_slice(&piece[..count]),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                    break;
                }
            }
        }
        let read = String::from_utf8_lossy(&text);
        if let Some((_, behind)) = read.split_once("event: skipped\ndata: {\"rows\":") {
            let rows: u64 = behind.split('}').next().unwrap().parse().unwrap();
            assert!(rows > 0 && behind.contains("event: row"), "{rows} rows skipped, and no more came");
            println!("a page that read nothing for {wait} s lost {rows} rows; memory {:.1} MiB more", waiting - before);
            let ended = "onlooker_controller_http_refusals_total{reason=\"stalled\"} 1";
            // Its buffers fill again first, and 20 s later it has stalled.
            until_within(2 * PATIENCE, "its end", || {
                get(controller.address(), "/metrics").contains(ended).then_some(())
            });
            return;
        }
    }
    panic!("{} bytes and no row was lost", text.len());
}
