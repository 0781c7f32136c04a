// SPDX-License-Identifier: Apache-2.0
//! Which hosts a list shows otherwise than it did: for pages that ask again and again and must not get the whole fleet
//! each time.
//!
//! A number grows whenever a host comes, goes, is another target's, or is otherwise in what an operator acts upon: its
//! state with the reason and who reads it, exceeded quotas, at once; the count of its gaps, which grows with each due
//! time of a dead host, at most every [`GAPS_NS`]. Figures that change with every reading are no changes: whoever shows
//! them asks for the hosts that it shows. Nobody tells of changes: they are found by a look at all hosts, at most every
//! [`LOOK_NS`], when somebody asks, whoever it is. So readings pay nothing, and ten pages as much as one. Cost: 0.1
//! us a host and look, 150 bytes a host.
//!
//! Numbers begin with the time of the start, us: one of an earlier controller is not of this one's, as long as there
//! are fewer than a million changes a second.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use onlooker_reader::clock::Moment;
use onlooker_targets::Target;

use super::{Host, Limit, Whose};
use crate::sink::State;

/// Least time between two looks.
const LOOK_NS: u64 = 500_000_000;
/// Gaps of a host that go on are a change again after so long.
const GAPS_NS: u64 = 5_000_000_000;
/// Hosts that have gone and are remembered: whoever asks from before that gets the whole list.
const MAX_GONE: usize = 4096;

/// What has changed since a number.
pub(crate) struct Since {
    /// To ask with the next time.
    pub(crate) number: u64,
    /// Hosts that have changed; none: whatever was known is to be forgotten, and all hosts are to be shown.
    pub(crate) hosts: Option<Vec<Arc<Host>>>,
    /// Names of hosts that have gone.
    pub(crate) gone: Vec<String>,
}

/// What is known of all hosts.
pub(super) struct Changes(Mutex<Seen>);

impl Default for Changes {
    fn default() -> Self {
        Self(Mutex::new(Seen::new(Moment::now().utc_ns / 1_000)))
    }
}

impl Changes {
    /// What has changed since a number; `hosts` are those that there are now, `now_ns` is any steady clock.
    pub(super) fn since(&self, number: u64, hosts: &Arc<[Arc<Host>]>, now_ns: u64) -> Since {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.look(hosts, now_ns);
        seen.since(number)
    }
}

/// A host as it was when it last changed.
struct One {
    target: Arc<Target>,
    host: Weak<Host>,
    state: State,
    /// Since when: a state that comes back before anybody looks is another one, which somebody may have been told.
    since_ns: u64,
    over: Vec<(Whose, Limit)>,
    gaps: u64,
    /// Number of its last change, and when that was seen.
    changed: u64,
    changed_ns: u64,
}

struct Seen {
    /// Who asks from before this gets the whole.
    first: u64,
    number: u64,
    looked_ns: Option<u64>,
    /// The list of the last look: another one has other hosts.
    list: Option<Weak<[Arc<Host>]>>,
    hosts: Vec<One>,
    /// With the number of their going.
    gone: VecDeque<(u64, String)>,
}

impl Seen {
    fn new(first: u64) -> Self {
        Self { first, number: first, looked_ns: None, list: None, hosts: Vec::new(), gone: VecDeque::new() }
    }

    fn look(&mut self, hosts: &Arc<[Arc<Host>]>, now_ns: u64) {
        let is_same = self.list.as_ref().is_some_and(|list| std::ptr::eq(list.as_ptr(), Arc::as_ptr(hosts)));
        let is_soon = self.looked_ns.is_some_and(|looked_ns| now_ns.saturating_sub(looked_ns) < LOOK_NS);
        if is_same && is_soon {
            return;
        }
        self.looked_ns = Some(now_ns);
        let next = self.number + 1;
        if !is_same {
            self.list = Some(Arc::downgrade(hosts));
            self.sort(hosts, next, now_ns);
        }
        for (one, host) in self.hosts.iter_mut().zip(hosts.iter()) {
            if one.differs(host, now_ns) {
                (one.changed, one.changed_ns) = (next, now_ns);
            }
        }
        let is_other = self.hosts.iter().any(|one| one.changed == next);
        if is_other || self.gone.back().is_some_and(|(number, _)| *number == next) {
            self.number = next;
        }
    }

    /// Takes another list of hosts.
    fn sort(&mut self, hosts: &[Arc<Host>], next: u64, now_ns: u64) {
        let known = std::mem::take(&mut self.hosts).into_iter().map(|one| (one.target.name.clone(), one));
        let mut known: HashMap<String, One> = known.collect();
        let of = |host: &Arc<Host>| {
            let name = &host.target.name;
            let one = known.remove(name).filter(|one| Arc::ptr_eq(&one.target, &host.target));
            one.unwrap_or_else(|| One {
                target: host.target.clone(),
                host: Arc::downgrade(host),
                state: State::Connecting,
                since_ns: 0,
                over: Vec::new(),
                gaps: 0,
                changed: next,
                changed_ns: now_ns,
            })
        };
        self.hosts = hosts.iter().map(of).collect();
        self.gone.extend(known.into_keys().map(|name| (next, name)));
        while self.gone.len() > MAX_GONE {
            if let Some((number, _)) = self.gone.pop_front() {
                // From before it, or between it and others of the same number.
                self.first = number;
            }
        }
    }

    fn since(&self, number: u64) -> Since {
        // What is newer than all that there is is another controller's.
        if number < self.first || number > self.number {
            return Since { number: self.number, hosts: None, gone: Vec::new() };
        }
        let changed = self.hosts.iter().filter(|one| one.changed > number);
        let is_there = |name: &str| self.hosts.binary_search_by(|one| one.target.name.as_str().cmp(name)).is_ok();
        let gone = self.gone.iter().filter(|(gone, name)| *gone > number && !is_there(name));
        Since {
            number: self.number,
            hosts: Some(changed.filter_map(|one| one.host.upgrade()).collect()),
            gone: gone.map(|(_, name)| name.clone()).collect(),
        }
    }
}

impl One {
    /// Whether the host is otherwise than it was, which it is no longer then.
    fn differs(&mut self, host: &Host, now_ns: u64) -> bool {
        let shown = host.look();
        let gaps = shown.gaps.values().sum::<u64>();
        let over = || shown.entities.ledger().over(false).map(|(whose, limit, _)| (whose, limit));
        let is_later = now_ns.saturating_sub(self.changed_ns) >= GAPS_NS || self.gaps == 0;
        let is_same_state = (shown.since_ns, &shown.state) == (self.since_ns, &self.state);
        let is_same = is_same_state && over().eq(self.over.iter().copied());
        if is_same && (gaps == self.gaps || !is_later) {
            return false;
        }
        self.since_ns = shown.since_ns;
        self.state.clone_from(&shown.state);
        self.over = over().collect();
        self.gaps = gaps;
        true
    }
}

#[cfg(test)]
mod tests;
