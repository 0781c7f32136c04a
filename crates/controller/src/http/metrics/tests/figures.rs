// SPDX-License-Identifier: Apache-2.0
//! What a scrape of ten thousand hosts costs: `cargo test --release -p onlooker-controller --lib -- --ignored
//! --nocapture metrics_of_ten_thousand`.
#![allow(clippy::print_stdout, clippy::cast_precision_loss)] // figures

use super::super::sheet::Draft;
use super::*;
use crate::config::Http;
use crate::fleet::Values;
use crate::http::Limits;
use http_body::Body as _;
use onlooker_series::template::LabelSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Instant;

const HOSTS: u32 = 10_000;
/// Of these the copy is measured: as many as fit the memory of a test.
const REAL: usize = 300;
const REGIONS: u32 = 28;
const FIELDS: usize = 25;

/// As many series as an agent's host has, in as many regions: most of them whole numbers, some scaled, some of an
/// array.
fn host() -> Memory {
    let mut host = Memory::new(256);
    for region in 0..REGIONS {
        let mut fields: Vec<String> = (0..FIELDS - 8)
            .map(|at| field(&format!("node_netstat_Of{region}_Some{at}Length"), "counter", at))
            .collect();
        let time = format!(
            r#"{{"name":"node_region{region}_seconds_total","metric":"counter","type":"u64","slot":80,"scale":1e-9,"help":"Time.","labels":{{"mode":"idle"}},"array":{{"label":"cpu","count":8,"stride":1}}}}"#
        );
        fields.push(time);
        let region = host.region(2 + region, &format!("node_{region}"), &[], &schema(&fields.join(",")));
        for at in 1..96 {
            region.words.set(0, at, 1_234_567 * at as u64 * at as u64 * at as u64);
        }
    }
    host
}

fn each(began: Instant, count: usize) -> f64 {
    began.elapsed().as_nanos() as f64 / count as f64
}

#[test]
#[ignore = "measures: cargo test --release -p onlooker-controller --lib ten_thousand -- --ignored --nocapture"]
fn metrics_of_ten_thousand() {
    let (mut world, host) = (World::new(), host());
    (0..REAL).for_each(|number| world.read(&format!("host-{number:05}"), &host));
    let hosts = world.fleet.hosts();
    let mut values = Values::default();
    for what in ["first", "again", "and again"] {
        let began = Instant::now();
        let mut longest = 0.0f64;
        for host in hosts.iter() {
            let began = Instant::now();
            host.snapshot(|_| true, &mut values);
            longest = longest.max(each(began, 1));
        }
        println!("copy, {what}: {:.0} ns a host, {longest:.0} ns at most", each(began, REAL));
    }
    let began = Instant::now();
    (0..100).for_each(|_| drop(hosts[0].figures()));
    println!("figures: {:.0} ns a host", each(began, 100));

    let plan = hosts[0].values(&mut values);
    let series: usize = plan.entities.iter().map(|planned| planned.shown().count()).sum();
    let began = Instant::now();
    let (mut draft, mut one) = (Draft::default(), (*plan).clone());
    for number in 0..HOSTS {
        let name = format!("host-{number:05}.example.org");
        one.labels = LabelSet::new([("instance", name.as_str())]);
        draft.add(number, &one, &values, None);
    }
    let count = series * HOSTS as usize;
    println!("turned round: {:.1} ns a series of {series} of {HOSTS} hosts", each(began, count));
    let began = Instant::now();
    let sheet = draft.settled(&[], Own::default(), Format::Text);
    println!("settled in {:?}, {:.0} MiB", began.elapsed(), sheet.bytes() as f64 / f64::from(1 << 20));
    for is_packed in [false, true] {
        let mut size = 0;
        let mut take = |piece: axum::body::Bytes| {
            size += piece.len();
            Ok(())
        };
        let began = Instant::now();
        let mut writer = Writer::new(is_packed, &mut take);
        sheet.write(&mut writer).unwrap();
        writer.finish().unwrap();
        let (ns, seconds) = (each(began, count), began.elapsed().as_secs_f64());
        let how = if is_packed { " and packed" } else { "" };
        println!("written{how}: {ns:.1} ns a series, {size} bytes in {seconds:.2} s");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let began = Instant::now();
    let size = runtime.block_on(taken(sheet));
    println!("taken from a stream: {:.1} ns a series, {size} bytes", each(began, count));
}

/// Takes an answer as a connection does, but for the connection.
async fn taken(sheet: Sheet) -> usize {
    let limits = Limits::new(&Http::default(), 1024);
    let (peer, headers) = (SocketAddr::from(([127, 0, 0, 1], 1)), HeaderMap::new());
    let asked = Asked { limits: &limits, queue: &limits.metrics, peer, headers: &headers };
    let bytes = sheet.bytes();
    let mut body = streamed(asked, TEXT, move || (sheet, bytes), Sheet::write).await.unwrap().into_body();
    let mut size = 0;
    while let Some(piece) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        size += piece.unwrap().into_data().unwrap().len();
    }
    size
}
