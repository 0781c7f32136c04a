// SPDX-License-Identifier: Apache-2.0
//! A region of 128 blocks whose words tell their place, for the laboratory: `lab/lab-table` has it READ in every way, and every word compared
//! (crates/transport/examples/lab_reads.rs, which knows the same rule). Says `published` and stays until it is killed.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for the console")]

use onlooker_sdk::{Elements, Metric, Region};
use std::error::Error;
use std::time::Duration;

/// 128 blocks of 127 values: the largest READ of the table.
const VALUES: u32 = 128 * 127;
/// Value number n, from 1, is n times this: odd, so that no two are alike, and no byte of it stays 0 for long.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    let mut region = Region::builder("lab_words");
    let words = region.gauges::<u64>(Metric::new("lab_word").help("Tells its place"), Elements::new("place", VALUES));
    let region = region.open()?;
    let words = region.get(words);
    for (place, number) in (0..words.len()).zip(1u64..) {
        words.get(place).ok_or("an array ends before its length")?.set(number.wrapping_mul(FACTOR));
    }
    if !onlooker_sdk::wait(PATIENCE) {
        let status = onlooker_sdk::status();
        return Err(format!("not published within {PATIENCE:?}: is the agent running? {status:?}").into());
    }
    println!("published");
    loop {
        std::thread::park();
    }
}
