// SPDX-License-Identifier: Apache-2.0
//! What the token for hosts may do, which every watched host has: add its own host, but not a fleet of others.
//!
//! Limits count by the address that asks, since everything else in a request is the caller's own word, and by host id,
//! so that no honest host is added twice by mistake. The operator's token has one limit only: the number of all hosts.
//! Cost: a look-up a request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onlooker_bootstrap::Id;
use onlooker_settings::units::Span;
use serde::{Deserialize, Serialize};

/// Test reads that one address may ask for at once, and one more a second.
const BURST: u32 = 30;
const EVERY: Duration = Duration::from_secs(1);
/// Test reads of one address at once; all addresses share a few places.
const MAX_RUNNING: u32 = 2;
/// So many addresses are remembered; then those that have not asked for a while are forgotten.
const SWEEP_ADDRESSES: usize = 1024;

/// `[joined]` of controller.toml: hosts that were added while the controller ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Joining {
    /// Where they are kept, with their tokens.
    pub file: PathBuf,
    /// How many there may be, by whatever token.
    pub max_hosts: usize,
    /// How many of them one address may add by the token for hosts.
    pub max_hosts_per_source: usize,
    /// Shortest interval that it may ask for by that token.
    pub min_interval: Span,
}

impl Default for Joining {
    fn default() -> Self {
        Self {
            file: "/var/lib/onlooker-controller/joined.json".into(),
            max_hosts: 10_000,
            max_hosts_per_source: 64,
            min_interval: Span::from_ms(100),
        }
    }
}

/// Where a host that was added comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// What the host says it is.
    pub host_id: Option<Id>,
    /// Who asked by the token for hosts; `None`: the operator.
    pub source: Option<IpAddr>,
}

#[derive(Debug)]
struct Asking {
    /// When all that was asked for is paid back.
    until: Instant,
    running: u32,
}

/// Who has asked for test reads lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Trials(Arc<Mutex<HashMap<IpAddr, Asking>>>);

/// A test read under way.
#[derive(Debug)]
pub struct Trial {
    trials: Trials,
    source: IpAddr,
}

impl Trials {
    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, Asking>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A test read for this source, unless it has asked for too many.
    pub(super) fn begin(&self, source: IpAddr, now: Instant) -> Option<Trial> {
        let mut all = self.lock();
        if all.len() >= SWEEP_ADDRESSES {
            all.retain(|_, asking| asking.running > 0 || asking.until > now);
        }
        let asking = all.entry(source).or_insert(Asking { until: now, running: 0 });
        let until = asking.until.max(now) + EVERY;
        if asking.running >= MAX_RUNNING || until > now + EVERY * BURST {
            return None;
        }
        asking.until = until;
        asking.running += 1;
        Some(Trial { trials: self.clone(), source })
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if let Some(asking) = self.trials.lock().get_mut(&self.source) {
            asking.running -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_ask_so_often_and_others_do_not_wait_for_it() {
        let (trials, now) = (Trials::default(), Instant::now());
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let running = [trials.begin(one, now).unwrap(), trials.begin(one, now).unwrap()];
        assert!(trials.begin(one, now).is_none() && trials.begin(two, now).is_some(), "two at a time");
        drop(running);
        let at = |after_s| now + Duration::from_secs(after_s);
        assert_eq!((0..100).filter(|_| trials.begin(one, now).is_some()).count() + 2, BURST as usize);
        assert_eq!((0..100).filter(|_| trials.begin(one, at(5)).is_some()).count(), 5);
        assert!(trials.begin(two, at(5)).is_some());
    }

    #[test]
    fn who_has_not_asked_for_a_while_is_forgotten() {
        let (trials, now) = (Trials::default(), Instant::now());
        for number in 0..10 * u32::try_from(SWEEP_ADDRESSES).unwrap() {
            drop(trials.begin(IpAddr::V4(number.into()), now + Duration::from_millis(u64::from(number) * 10)));
        }
        assert!(trials.lock().len() <= SWEEP_ADDRESSES);
    }
}
