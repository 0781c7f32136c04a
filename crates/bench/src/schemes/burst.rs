// SPDX-License-Identifier: Apache-2.0
//! Work that comes and goes: processes on the watched core that compute and sleep for random times.

use crate::children::{Running, start};
use crate::load::itself;
use crate::machine::{WATCHED_CORE, now_ns, sleep_ns};
use crate::victim::statistics::Random;
use crate::world::World;
use anyhow::{Result, bail};

/// How long one computes at most, and sleeps at most: 2 and 4 ms on average.
const MOST_NS: (usize, usize) = (4_000_000, 8_000_000);
const LEAST_NS: u64 = 100_000;
const LIFE_NS: u64 = 1_800_000_000_000;

/// What the watched core has to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Processes that compute and sleep.
    pub(super) bursts: u32,
    /// Processes that only compute.
    pub(super) hogs: u32,
}

impl Work {
    pub(super) fn name(self) -> String {
        if self.hogs == 0 {
            format!("bursts{}", self.bursts)
        } else {
            format!("bursts{}_hogs{}", self.bursts, self.hogs)
        }
    }

    pub(super) fn title(self) -> String {
        let Self { bursts, hogs } = self;
        if hogs == 0 { format!("{bursts} bursty processes") } else { format!("{bursts} bursty processes, {hogs} hogs") }
    }

    pub(super) fn start(self, world: &World) -> Result<Vec<Running>> {
        let bursts = (1..=self.bursts).map(|seed| itself(&["burst", &seed.to_string()]));
        let hogs = (0..self.hogs).map(|_| itself(&["hog"]));
        bursts.chain(hogs).map(|command| start(&mut command?, WATCHED_CORE, Some(world.watched()))).collect()
    }
}

/// The program `burst`: until it is killed.
pub(crate) fn burst(seed: &str) -> Result<bool> {
    let mut random = Random(seed.parse::<u64>()?.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let end_ns = now_ns() + LIFE_NS;
    while now_ns() < end_ns {
        let until_ns = now_ns() + LEAST_NS + random.below(MOST_NS.0) as u64;
        while now_ns() < until_ns {
            std::hint::spin_loop();
        }
        sleep_ns(LEAST_NS + random.below(MOST_NS.1) as u64);
    }
    bail!("nobody ended this process")
}
