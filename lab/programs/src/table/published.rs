// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab words`: a region of 128 blocks whose words tell their place; `lab/lab-table` has it READ in every way,
//! and every word compared. Says `published` and stays until it is killed.

use std::time::Duration;

use onlooker_region::limits::PLAIN_SLOTS;
use onlooker_sdk::{Elements, Metric, Region};

use crate::common::{FACTOR, Result};

pub(super) const REGION: &str = "lab_words";
/// The largest READ of the table.
pub(super) const BLOCKS: u32 = 128;
const VALUES: u32 = BLOCKS * 127;
const _: () = assert!(VALUES as usize == BLOCKS as usize * PLAIN_SLOTS);
const PATIENCE: Duration = Duration::from_secs(30);

/// Value number n, from 1: no two are alike, and no byte of it stays 0 for long.
pub(super) fn value(number: u64) -> u64 {
    number.wrapping_mul(FACTOR)
}

pub(crate) fn run() -> Result<()> {
    let mut region = Region::builder(REGION);
    let words = region.gauges::<u64>(Metric::new("lab_word").help("Tells its place"), Elements::new("place", VALUES));
    let region = region.open()?;
    let words = region.get(words);
    for (place, number) in (0..words.len()).zip(1u64..) {
        words.get(place).ok_or("an array ends before its length")?.set(value(number));
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
