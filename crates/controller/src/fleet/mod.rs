// SPDX-License-Identifier: Apache-2.0
//! All hosts as they are now: written by the processing thread, read by whoever shows them.
//!
//! A host's lock is held for one reading or one look; nobody waits for a disk or a network under it, and who shows a
//! host looks by a `snapshot` and formats afterwards. Who lists all hosts takes a list that is there already: the
//! fleet's own lock is held to find one host, to enter or to leave.

mod changes;
mod entities;
#[cfg(test)]
pub(crate) mod fixture;
mod quota;
mod recent;
mod rows;
mod sink;
mod snapshot;
mod source;
mod utc;
mod vitals;
#[cfg(test)]
mod vouched;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use onlooker_checks::Rules;
use onlooker_reader::clock::{Moment, Relation, steady_ns};
use onlooker_reader::{Counters, Pair};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::Acquisition;
use onlooker_targets::Target;
use tokio::sync::watch;

use crate::sink::State;
use changes::Changes;
pub(crate) use changes::Since;
pub use entities::{Entities, Entity};
pub use quota::{Excess, Ledger, Limit, Over, Quota, Whose};
pub use recent::Recent;
pub use sink::{Clock, FleetSink};
use snapshot::PlanCell;
pub(crate) use snapshot::{Figures, Plan, Planned, RegionFigures, Values};
pub use vitals::{INTERVAL as VITALS_INTERVAL, Shown as ShownVitals};
pub(crate) use vitals::{RESOURCES, Sampler, Vital};

/// Hosts by name.
#[derive(Default)]
pub struct Fleet {
    hosts: RwLock<BTreeMap<String, Arc<Host>>>,
    /// The same as a list; none since the last has come or gone.
    list: Mutex<Option<Arc<[Arc<Host>]>>>,
    changes: Changes,
    quota: Quota,
    rules: Arc<Rules>,
}

impl Fleet {
    /// No hosts yet, and room for so much of each.
    #[must_use]
    pub fn within(quota: Quota) -> Self {
        Self { quota, ..Self::default() }
    }

    /// Samples are judged by these rules.
    #[must_use]
    pub fn judged_by(self, rules: Rules) -> Self {
        Self { rules: rules.into(), ..self }
    }

    /// What each host may cost.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// All hosts, by name.
    #[must_use]
    pub fn hosts(&self) -> Arc<[Arc<Host>]> {
        let mut list = self.list();
        let all = || self.hosts.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        list.get_or_insert_with(all).clone()
    }

    fn list(&self) -> MutexGuard<'_, Option<Arc<[Arc<Host>]>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which hosts have changed since a number that was given before; 0 was never.
    pub(crate) fn since(&self, number: u64) -> Since {
        self.changes.since(number, &self.hosts(), steady_ns())
    }

    /// One host.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<Arc<Host>> {
        self.hosts.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The host of a target; a new one where the target has changed.
    pub(crate) fn enter(&self, target: &Arc<Target>) -> Arc<Host> {
        if let Some(known) = self.host(&target.name).filter(|host| Arc::ptr_eq(&host.target, target)) {
            return known;
        }
        let host = Arc::new(Host::new(target.clone(), self.quota, self.rules.clone()));
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        let before = hosts.insert(target.name.clone(), host.clone());
        drop(hosts);
        // After the hosts' lock, which `hosts` takes within this one.
        *self.list() = None;
        if let Some(before) = before {
            before.tell();
        }
        host
    }

    /// Takes a host out.
    pub fn leave(&self, name: &str) {
        let left = self.hosts.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        *self.list() = None;
        if let Some(host) = left {
            host.tell();
        }
    }
}

/// A host.
pub struct Host {
    /// What it was entered as.
    pub target: Arc<Target>,
    /// Labels of all its series.
    pub(crate) labels: BTreeMap<String, String>,
    shown: Mutex<Shown>,
    /// What its values are called, for who looks at all of them.
    plan: PlanCell,
    /// Number of the last reading, and of state changes: whoever waits for news waits for this.
    news: watch::Sender<u64>,
}

impl Host {
    fn new(target: Arc<Target>, quota: Quota, rules: Arc<Rules>) -> Self {
        let mut labels = target.labels.clone();
        labels.insert("instance".into(), target.name.clone());
        let shown = Mutex::new(Shown::new(Entities::within(quota).judged_by(rules)));
        Self { target, labels, shown, plan: PlanCell::default(), news: watch::Sender::new(0) }
    }

    /// What is known of it.
    pub fn look(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits for news.
    pub(crate) fn tell(&self) {
        self.news.send_modify(|number| *number += 1);
    }

    /// Tells of each reading and change of state, and of its end: whoever waits looks then whether the fleet still has
    /// this host.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

/// A region as the last reading had it.
#[derive(Clone, Debug)]
pub struct Region {
    /// Its directory entry.
    pub entry: Arc<RegionEntry>,
    /// How its values get there.
    pub acquisition: Vec<Acquisition>,
    /// Why the last reading had nothing of it, or not all.
    pub problem: Option<String>,
}

/// A gap that is worth showing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownGap {
    /// UTC, ns.
    pub from_ns: u64,
    /// UTC, ns.
    pub to_ns: u64,
    /// Why.
    pub reason: &'static str,
}

/// What is known of a host.
pub struct Shown {
    /// How it goes.
    pub state: State,
    /// Since when, UTC ns.
    pub since_ns: u64,
    /// Values.
    pub entities: Entities,
    /// Regions of the last reading.
    pub regions: Vec<Region>,
    /// The host's clock against ours, as well as it is known.
    pub relation: Option<Relation>,
    /// Readings that succeeded.
    pub cycles: u64,
    /// Readings that began more than an interval late, or not at all.
    pub late: u64,
    /// Due times without a reading, by reason.
    pub gaps: BTreeMap<&'static str, u64>,
    /// The last gap.
    pub last_gap: Option<ShownGap>,
    /// From the due time to the end of the reading.
    pub latency: Recent,
    /// From the due time to its beginning.
    pub lateness: Recent,
    /// What the session has counted, as of a moment ago.
    pub reads: Counters,
    /// Requests that were lost and sent again since the host was connected.
    pub repeated: u64,
    /// When the last reading began and ended, the controller's steady clock.
    pub read_from_ns: Option<u64>,
    /// Its end.
    pub read_at_ns: Option<u64>,
    /// Time of the newest values, UTC ns, as readings bring them; none: [`Shown::newest_ns`] looks for it.
    pub newest_ns: Option<u64>,
}

impl Shown {
    fn new(entities: Entities) -> Self {
        Self {
            state: State::Connecting,
            since_ns: Moment::now().utc_ns,
            entities,
            regions: Vec::new(),
            relation: None,
            cycles: 0,
            late: 0,
            gaps: BTreeMap::new(),
            last_gap: None,
            latency: Recent::default(),
            lateness: Recent::default(),
            reads: Counters::default(),
            repeated: 0,
            read_from_ns: None,
            read_at_ns: None,
            newest_ns: None,
        }
    }

    /// Who asks and who answers.
    #[must_use]
    pub fn pair(&self) -> Option<Pair> {
        match self.state {
            State::Reading(pair) => Some(pair),
            _ => None,
        }
    }

    /// Bound of the error of its times in UTC, ns.
    #[must_use]
    pub fn clock_error_ns(&self) -> Option<u64> {
        self.relation.map(|relation| relation.error_ns(steady_ns()))
    }
}
