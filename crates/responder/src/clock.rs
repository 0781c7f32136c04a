// SPDX-License-Identifier: Apache-2.0
//! The host's clocks, in ns.

use rustix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME, the clock of leases and blocks.
#[must_use]
pub fn boot_time_ns() -> u64 {
    clock_ns(ClockId::Boottime)
}

/// CLOCK_REALTIME, since 1970.
#[must_use]
pub fn wall_time_ns() -> u64 {
    clock_ns(ClockId::Realtime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, ns) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_goes_on() {
        let (first, second) = (boot_time_ns(), boot_time_ns());
        assert!(first > 0 && second >= first && wall_time_ns() > 1_600_000_000_000_000_000);
    }
}
