// SPDX-License-Identifier: Apache-2.0
//! Counts without pause, by the Rust SDK, until it is told to stop; then says how many it was and how often its region moved. For tests: what a reader finds must be
//! exactly that.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for a test")]

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use onlooker_sdk::{Metric, Region};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Region::builder("count");
    let counter = builder.counter(Metric::new("count_total"));
    let region = builder.open()?;
    let counter = region.get(counter);
    if !onlooker_sdk::wait(Duration::from_secs(20)) {
        return Err(format!("not published: {:?}", onlooker_sdk::status()).into());
    }
    println!("published");
    let stopped = AtomicBool::new(false);
    let count: u64 = std::thread::scope(|scope| {
        let work = || {
            let mut count = 0u64;
            while !stopped.load(Relaxed) {
                for _ in 0..100 {
                    counter.inc();
                    count += 1;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            count
        };
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        stopped.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    let status = onlooker_sdk::status();
    println!("{count} {} {}", status.switches, status.connections);
    // Until the reader has read.
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    Ok(())
}
