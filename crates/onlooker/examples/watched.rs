// SPDX-License-Identifier: Apache-2.0
//! A program to be watched: publishes a few metrics through memory, then waits until its standard input ends.
//!
//! Run it beside an agent, then `onlooker read localhost 'shop_*'`. The end-to-end tests do just that.

use onlooker_sdk::{Elements, Metric, Region};
use std::io::Read;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut shop = Region::builder("shop");
    let requests = shop.counter(Metric::new("shop_requests_total").help("Requests served."));
    let jobs = shop.counters(Metric::new("shop_jobs_total"), Elements::new("worker", 2));
    let latency = shop.histogram(Metric::new("shop_latency_seconds").unit("seconds").scale(1e-9), 3, 40);
    let shop = shop.open()?;

    shop.get(requests).add(u64::MAX);
    shop.get(jobs).get(1).ok_or("two workers")?.add(5);
    for latency_ns in [1_000, 2_000, 3_000_000] {
        shop.get(latency).record(latency_ns);
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
