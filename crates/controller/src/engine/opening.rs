// SPDX-License-Identifier: Apache-2.0
//! Devices of this machine that are being opened, and who waits for that. Decisions only; times are given.
//!
//! Opening one is a call into a driver, which may take as long as it likes. Hosts wait for it for [`PATIENCE_NS`] and
//! are read another way then, as are those that come later; the call goes on, and the device is used when it is there.
//! There is one call an address: a driver that hangs has one thread.

use std::collections::HashMap;
use std::net::IpAddr;

/// How long hosts wait for a device, ns: cards take tens of milliseconds.
const PATIENCE_NS: u64 = 3_000_000_000;

struct Opening<W> {
    until_ns: u64,
    /// Nobody waits any more.
    is_late: bool,
    waiting: Vec<W>,
}

/// What to do with who needs a device.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<W> {
    /// Open it.
    Open,
    /// Nothing: it is being opened.
    Wait,
    /// It takes too long: go without.
    Without(W),
}

/// Those under way.
pub(super) struct Openings<W>(HashMap<IpAddr, Opening<W>>);

impl<W> Openings<W> {
    pub(super) fn new() -> Self {
        Self(HashMap::new())
    }

    /// Somebody waits for the device that has an address.
    pub(super) fn wait(&mut self, local: IpAddr, who: W, now_ns: u64) -> Next<W> {
        match self.0.get_mut(&local) {
            None => {
                self.begin(local, now_ns);
                if let Some(opening) = self.0.get_mut(&local) {
                    opening.waiting.push(who);
                }
                Next::Open
            }
            Some(opening) if opening.is_late => Next::Without(who),
            Some(opening) => {
                opening.waiting.push(who);
                Next::Wait
            }
        }
    }

    /// It is opened for nobody yet. False: it is under way.
    pub(super) fn begin(&mut self, local: IpAddr, now_ns: u64) -> bool {
        let is_new = !self.0.contains_key(&local);
        let until_ns = now_ns.saturating_add(PATIENCE_NS);
        self.0.entry(local).or_insert_with(|| Opening { until_ns, is_late: false, waiting: Vec::new() });
        is_new
    }

    /// Whether it is under way.
    pub(super) fn is_under_way(&self, local: IpAddr) -> bool {
        self.0.contains_key(&local)
    }

    /// The call has returned: who still waits.
    pub(super) fn end(&mut self, local: IpAddr) -> Vec<W> {
        self.0.remove(&local).map(|opening| opening.waiting).unwrap_or_default()
    }

    /// Who has waited for too long, by the device's address. Each address comes once.
    pub(super) fn expire(&mut self, now_ns: u64) -> Vec<(IpAddr, Vec<W>)> {
        let late = self.0.iter_mut().filter(|(_, opening)| !opening.is_late && opening.until_ns <= now_ns);
        late.map(|(local, opening)| {
            opening.is_late = true;
            (*local, std::mem::take(&mut opening.waiting))
        })
        .collect()
    }

    /// When [`Openings::expire`] has something to do.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.0.values().filter(|opening| !opening.is_late).map(|opening| opening.until_ns).min()
    }
}

/// What is said of a device that is not there in time.
pub(super) fn too_late(local: IpAddr) -> String {
    format!(
        "RDMA device of {local}: opening it takes longer than {} s: its driver may hang (see `dmesg` here); it is used as soon as it is open",
        PATIENCE_NS / 1_000_000_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_device_whose_opening_hangs_holds_nobody() {
        let mut openings = Openings::new();
        assert_eq!(openings.wait(LOCAL, 'a', 0), Next::Open);
        assert_eq!(openings.wait(LOCAL, 'b', 5), Next::Wait);
        assert_eq!(openings.wait(OTHER, 'c', 9), Next::Open);
        assert_eq!(openings.next_ns(), Some(PATIENCE_NS));
        assert!(openings.expire(PATIENCE_NS - 1).is_empty());
        assert_eq!(openings.expire(PATIENCE_NS), [(LOCAL, vec!['a', 'b'])]);
        // Those that come later do not wait at all, and there is no second call.
        assert_eq!(openings.wait(LOCAL, 'd', PATIENCE_NS), Next::Without('d'));
        assert!(openings.is_under_way(LOCAL) && !openings.begin(LOCAL, PATIENCE_NS));
        assert!(openings.expire(PATIENCE_NS + 1).is_empty(), "each once");
        // It returns after all: the next one to need it finds it, or has it opened again.
        assert!(openings.end(LOCAL).is_empty() && !openings.is_under_way(LOCAL));
        assert_eq!(openings.wait(LOCAL, 'e', 2 * PATIENCE_NS), Next::Open);
        assert_eq!((openings.end(LOCAL), openings.end(OTHER)), (vec!['e'], vec!['c']));
        assert_eq!(openings.next_ns(), None);
    }
}
