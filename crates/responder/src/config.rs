// SPDX-License-Identifier: Apache-2.0
//! What a responder is told before it is loaded. Read-only data of the programs: it takes part in their verification and cannot change afterwards.

use onlooker_wire::ROCE_PORT;
use onlooker_wire::profile::DEFAULT_MAX_READ_BYTES;

use crate::error::{Error, Result};
use crate::intf::{BLOCK_BYTES, CONFIG_BYTES, MAX_READ_BYTES};

/// A sustained rate and what may exceed it for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests per second, sustained.
    pub per_second: u32,
    /// Requests that may come at once after a pause.
    pub burst: u32,
}

/// Configuration of a responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// UDP port that the responder owns on its devices.
    pub port: u16,
    /// Largest READ, bytes: a multiple of 1024, at most 8192. The answer to it must fit the devices' MTU.
    pub max_read_bytes: u32,
    /// Differentiated services code point of answers, 0 to 63.
    pub dscp: u8,
    /// Budget of each source address; `None`: unlimited.
    pub source_rate: Option<Rate>,
    /// Budget of all sources together, on each processor; `None`: unlimited. In READs of one block of memory, each taken for 500 ns: longer READs count once a
    /// block, computed ones as often as 500 ns fit into their time.
    pub cpu_rate: Option<Rate>,
    /// Answers RDMA devices on RoCEv2's own port, 4791, too. That port is not owned: what is no READ of this responder's regions goes on to the stack.
    pub roce: bool,
    /// For measurements only: neither check nor write ICRCs. No requester accepts such answers.
    #[doc(hidden)]
    pub skip_icrc: bool,
}

impl Config {
    /// One-packet READs of one block, and budgets that a controller reading every 10 ms does not come near: 100,000 a second from each source, 400,000 a
    /// second on each processor, which at 1024 bytes is a fifth of one.
    #[must_use]
    pub const fn new(port: u16) -> Self {
        Self {
            port,
            max_read_bytes: DEFAULT_MAX_READ_BYTES,
            dscp: 0,
            source_rate: Some(Rate { per_second: 100_000, burst: 10_000 }),
            cpu_rate: Some(Rate { per_second: 400_000, burst: 40_000 }),
            roce: false,
            skip_icrc: false,
        }
    }

    /// # Errors
    /// [`Error::Limit`].
    pub(crate) fn check(&self) -> Result<()> {
        let limit = |what, value: u64, limits: &str| Err(Error::Limit { what, value, limits: limits.to_owned() });
        if self.port == 0 {
            return limit("port", 0, "1 to 65535");
        }
        if self.roce && self.port == ROCE_PORT {
            // Answers could go back to the port that they came from, or to RoCEv2's, not to both.
            return limit("port", self.port.into(), "any but 4791 where RDMA devices are answered there, too");
        }
        if self.max_read_bytes == 0
            || !self.max_read_bytes.is_multiple_of(BLOCK_BYTES)
            || self.max_read_bytes > MAX_READ_BYTES
        {
            return limit("max_read_bytes", self.max_read_bytes.into(), "a multiple of 1024 from 1024 to 8192");
        }
        if self.dscp > 63 {
            return limit("dscp", self.dscp.into(), "0 to 63");
        }
        for rate in [self.source_rate, self.cpu_rate].into_iter().flatten() {
            if rate.per_second == 0 || rate.per_second > NS_PER_SECOND {
                return limit(
                    "rate per second",
                    rate.per_second.into(),
                    "1 to 1,000,000,000; leave it out for no limit",
                );
            }
            if rate.burst == 0 {
                return limit("burst", 0, "at least 1: a request that may come at once");
            }
        }
        Ok(())
    }

    /// `struct onlooker_config` of `bpf/intf.h`; for the bench, which loads the programs in an object of its own.
    #[doc(hidden)]
    #[must_use]
    pub fn to_bytes(self) -> [u8; 48] {
        let (source_interval, source_burst) = intervals(self.source_rate);
        let (cpu_interval, cpu_burst) = intervals(self.cpu_rate);
        let mut bytes = [0; CONFIG_BYTES];
        for (index, word) in [source_interval, source_burst, cpu_interval, cpu_burst].into_iter().enumerate() {
            bytes[8 * index..8 * index + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[32..36].copy_from_slice(&self.max_read_bytes.to_le_bytes());
        bytes[36..38].copy_from_slice(&self.port.to_le_bytes());
        bytes[38] = self.dscp;
        bytes[39] = u8::from(self.skip_icrc);
        bytes[40] = u8::from(self.roce);
        bytes
    }

    /// The reverse of [`Config::to_bytes`]; rates may differ by their rounding to nanoseconds.
    pub(crate) fn from_bytes(bytes: &[u8; CONFIG_BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        Self {
            port: u16::from_le_bytes([bytes[36], bytes[37]]),
            max_read_bytes: u32::from_le_bytes(std::array::from_fn(|index| bytes[32 + index])),
            dscp: bytes[38],
            source_rate: rate(word(0), word(8)),
            cpu_rate: rate(word(16), word(24)),
            roce: bytes[40] != 0,
            skip_icrc: bytes[39] != 0,
        }
    }
}

const NS_PER_SECOND: u32 = 1_000_000_000;

/// Interval between requests, and how far ahead of it requests may run: `burst` at once means `burst - 1` intervals. Interval 0: no limit.
fn intervals(rate: Option<Rate>) -> (u64, u64) {
    rate.map_or((0, 0), |rate| {
        let interval_ns = u64::from(NS_PER_SECOND / rate.per_second);
        (interval_ns, interval_ns * u64::from(rate.burst - 1))
    })
}

fn rate(interval_ns: u64, burst_ns: u64) -> Option<Rate> {
    let burst = burst_ns.checked_div(interval_ns)?.checked_add(1)?;
    let per_second = u64::from(NS_PER_SECOND) / interval_ns;
    Some(Rate { per_second: u32::try_from(per_second).ok()?, burst: u32::try_from(burst).unwrap_or(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_survives_its_bytes() {
        for roce in [false, true] {
            let config = Config { dscp: 46, max_read_bytes: 4096, cpu_rate: None, roce, ..Config::new(4792) };
            config.check().unwrap();
            assert_eq!(Config::from_bytes(&config.to_bytes()), config);
        }
    }

    #[test]
    fn what_the_programs_could_not_do_is_refused() {
        let good = Config::new(4792);
        let rate = |per_second, burst| Some(Rate { per_second, burst });
        for bad in [
            Config { port: 0, ..good },
            Config { port: 4791, roce: true, ..good },
            Config { max_read_bytes: 512, ..good },
            Config { max_read_bytes: 1500, ..good },
            Config { max_read_bytes: 9216, ..good },
            Config { dscp: 64, ..good },
            Config { source_rate: rate(0, 1), ..good },
            Config { cpu_rate: rate(1, 0), ..good },
            Config { cpu_rate: rate(u32::MAX, 1), ..good },
        ] {
            assert!(matches!(bad.check(), Err(Error::Limit { .. })), "{bad:?}");
        }
    }
}
