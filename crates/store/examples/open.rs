// SPDX-License-Identifier: Apache-2.0
//! How long opening a store takes. Writes a log of so many MiB (default 1024) of rows as a fleet makes them into a temporary directory, opens it again, and says
//! how long that took: opening reads all of it. With the log in the page cache; a disk adds its own reading time.
#![allow(clippy::print_stdout, reason = "a measurement for the terminal")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use onlooker_store::{Config, Store};

const TRACKS: u64 = 720;
const COLUMNS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib: u64 = std::env::args().nth(1).map_or(Ok(1024), |text| text.parse())?;
    let dir = tempfile::tempdir()?;
    let config = Config {
        dir: dir.path().join("log"),
        hot: dir.path().join("hot"),
        hot_bytes: 64 << 20,
        tile_rows: 64,
        segment_bytes: 64 << 20,
        max_bytes: 1 << 40,
    };
    let (mut store, _) = Store::open(config.clone())?;
    let mut appenders = Vec::new();
    for number in 0..TRACKS {
        let track = store.define(&common::of_columns(&format!("host-{number}"), COLUMNS), 256)?;
        appenders.extend(store.appender(track));
    }
    let mut sequence = 0u64;
    while store.look().bytes() < mib << 20 {
        for _ in 0..64 {
            sequence += 1;
            for (number, appender) in (0u64..).zip(&mut appenders) {
                // Half a dozen bits a value, as counters have that count at some pace.
                let value = |i: usize| {
                    let mixed = (sequence ^ number << 32 ^ (i as u64) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    sequence * 1_000 + (mixed ^ mixed >> 29) % 64
                };
                appender.append(sequence * 10_000_000, &std::array::from_fn::<u64, COLUMNS, _>(value))?;
            }
        }
        store.seal(0)?;
    }
    store.seal(u64::MAX)?;
    let bytes = store.look().bytes();
    drop((appenders, store));
    let begin = Instant::now();
    let (_store, recovery) = Store::open(config)?;
    let seconds = begin.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let rate = bytes as f64 / seconds / 1e6;
    println!(
        "{} rows in {} tiles, {bytes} bytes: opened in {seconds:.2} s, {rate:.0} MB/s",
        recovery.rows, recovery.tiles
    );
    Ok(())
}
