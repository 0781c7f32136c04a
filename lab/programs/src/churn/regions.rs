// SPDX-License-Identifier: Apache-2.0
//! `onlooker-lab regions REGIONS_PER_S SECONDS`: registers and removes regions of one class, each of which lives for 50
//! ms at least, for [`super`] to read.
//!
//! No region ends before it is published, and few are open at once, so that an agent that is slower than asked for
//! makes this program slower, and what it prints is what was reached: `REGIONS <opened> <published> <given up> <ms>`.

use onlooker_sdk::Region;
use rustix::time::{ClockId, clock_gettime};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::common::{FACTOR, Result};

/// A region's life, at least.
const LIFE: Duration = Duration::from_millis(50);
/// Regions at once: five times what a thousand a second need.
const MAX_OPEN: usize = 256;
/// After so long a region is not waited for any more: the agent has refused it.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(500);
pub(super) const REGION: &str = "lab_region";
/// When a region was made, its number, and a word made of both.
pub(super) const FIELDS: [&str; 3] = ["lab_born_ns", "lab_number", "lab_check"];

pub(super) fn check_of(born_ns: u64, number: u64) -> u64 {
    (born_ns ^ number).wrapping_mul(FACTOR)
}

struct Live {
    region: Region,
    begin: Instant,
}

fn boot_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A region that says when it was made, in one commit with its number and a word made of both.
fn open(number: u64) -> Result<Live> {
    let (born_ns, begin) = (boot_ns(), Instant::now());
    let mut region = Region::builder(REGION);
    region.instance(&number.to_string());
    let (group, [born, own, check]) = region.guarded(|group| FIELDS.map(|field| group.gauge::<u64>(field)));
    let region = region.open()?;
    region.get(group).commit(|values| {
        values.set(born, born_ns);
        values.set(own, number);
        values.set(check, check_of(born_ns, number));
    });
    Ok(Live { region, begin })
}

pub(crate) fn run(regions_per_s: u64, seconds: u64) -> Result<()> {
    let (begin, run) = (Instant::now(), Duration::from_secs(seconds));
    let (mut opened, mut published, mut given_up) = (0u64, 0, 0u64);
    let mut live: VecDeque<Live> = VecDeque::with_capacity(MAX_OPEN);
    while begin.elapsed() < run {
        while let Some(Live { region, begin }) = live.front() {
            let is_late = begin.elapsed() >= PATIENCE;
            if begin.elapsed() < LIFE || !(region.is_published() || is_late) {
                break;
            }
            let is_published = region.is_published();
            published += usize::from(is_published);
            given_up += u64::from(!is_published);
            live.pop_front();
        }
        let due = begin.elapsed().as_millis() * u128::from(regions_per_s) / 1000;
        while u128::from(opened) < due && live.len() < MAX_OPEN {
            live.push_back(open(opened)?);
            opened += 1;
        }
        std::thread::sleep(PAUSE);
    }
    let took = begin.elapsed();
    published += live.iter().filter(|live| live.region.is_published()).count();
    println!("REGIONS {opened} {published} {given_up} {}", took.as_millis());
    let status = onlooker_sdk::status();
    println!("SDK: {} errors, the last one: {:?}", status.errors, status.error);
    Ok(())
}
