// SPDX-License-Identifier: Apache-2.0
//! The alerts of one rule: a state machine that is told, time by time, what the rule's expression gave.
//!
//! ```text
//!            given                 given for `hold`               not given for `keep_firing`
//! (nothing) ───────► pending ─────────────────────────► firing ────────────────────────────► inactive
//!     ▲                 │ not given                        ▲                                  │  │
//!     ├─────────────────┘                                  └── by pending, as a new alert ────┘  │
//!     └─────────────────────────────────────────────── after RESOLVED_KEPT_NS ───────────────────┘
//! ```
//!
//! An alert is its labels. The time at which it fired stays as it is until it has resolved, over restarts, too: it is
//! what an Alertmanager knows it by.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use onlooker_promql::labels::{Labels, NAME};

use crate::notice::Notice;
use crate::saved::SavedAlert;
use crate::state::State;

/// An alert that has resolved is told for so long: whoever should hear of it may be down.
pub const RESOLVED_KEPT_NS: i64 = 15 * 60 * S_NS;
/// After a restart an alert that fired goes on for so long without being given, or for two evaluations: its host has to
/// be read first.
pub const RESTORED_KEPT_NS: i64 = 30 * S_NS;
/// Whoever was down for longer begins anew: an Alertmanager has resolved by itself what fired.
pub const OUTAGE_NS: i64 = 3_600 * S_NS;
/// Alerts are told again at least so often while they fire.
pub const RESEND_NS: i64 = 60 * S_NS;
pub(crate) const S_NS: i64 = 1_000_000_000;

/// Series with all alerts that are pending or firing.
pub const ALERTS: &str = "ALERTS";
/// Series with the time since when they have been active.
pub const ALERTS_FOR_STATE: &str = "ALERTS_FOR_STATE";
/// Label with the rule's name.
pub const ALERT_NAME: &str = "alertname";
const STATE: &str = "alertstate";

/// An alert, without the labels that it is known by. Times are ns since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// How it is.
    pub state: State,
    /// What is said about it.
    pub annotations: Labels,
    /// What the expression gave last.
    pub value: f64,
    /// Since when the expression gives it.
    pub active_ns: i64,
    /// When it fired.
    pub fired_ns: Option<i64>,
    /// When it resolved.
    pub resolved_ns: Option<i64>,
    /// Since when it fires without being given.
    pub unseen_since_ns: Option<i64>,
    /// It was there before a restart, and has not been given since.
    is_restored: bool,
    sent_ns: Option<i64>,
}

/// What an expression gave, with what the rule makes of it.
#[derive(Clone, Debug)]
pub struct Instance {
    /// What the alert is known by.
    pub labels: Labels,
    /// What is said about it.
    pub annotations: Labels,
    /// The value.
    pub value: f64,
}

/// Whether what a restart must find has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// No.
    #[default]
    No,
    /// It may be written later: somebody waits longer after a restart, at worst.
    Small,
    /// It is to be written before anybody is told: who fires, and since when.
    Large,
}

/// How long alerts wait, and how many there may be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Until one that is given fires.
    pub hold_ns: i64,
    /// How long one that fired goes on when it is given no more.
    pub keep_firing_ns: i64,
    /// Most that are pending or firing; 0: any number.
    pub limit: usize,
}

/// Why an evaluation changed nothing, or ended all alerts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlertsError {
    /// Nobody could tell them apart. Nothing has changed.
    #[error("vector contains metrics with the same labelset after applying alert labels")]
    Twins,
    /// The rule has none now.
    #[error("exceeded limit of {limit} with {count} alerts")]
    Limit {
        /// What is allowed.
        limit: usize,
        /// What there would be.
        count: usize,
    },
}

/// Those of one rule.
#[derive(Clone, Debug, Default)]
pub struct Alerts {
    all: BTreeMap<Labels, Alert>,
    restored_until_ns: i64,
}

impl Alerts {
    /// All, those that have resolved among them.
    pub fn iter(&self) -> impl Iterator<Item = (&Labels, &Alert)> {
        self.all.iter()
    }

    /// Those that are pending or firing.
    pub fn active(&self) -> impl Iterator<Item = (&Labels, &Alert)> {
        self.all.iter().filter(|(_, alert)| alert.state != State::Inactive)
    }

    /// How the rule is: as the worst of its alerts.
    #[must_use]
    pub fn state(&self) -> State {
        self.all.values().map(|alert| alert.state).max().unwrap_or(State::Inactive)
    }

    /// Takes what the expression gave at `now_ns`.
    ///
    /// # Errors
    /// [`AlertsError`].
    pub fn take(&mut self, now_ns: i64, given: Vec<Instance>, terms: Terms) -> Result<Change, AlertsError> {
        let mut instances = BTreeMap::new();
        for Instance { labels, annotations, value } in given {
            if instances.insert(labels, (annotations, value)).is_some() {
                return Err(AlertsError::Twins);
            }
        }
        let mut change = Change::No;
        self.all.retain(|labels, alert| {
            let (is_kept, its_change) = match instances.remove(labels) {
                Some((annotations, value)) => (true, alert.given(now_ns, annotations, value)),
                None if alert.is_restored && now_ns < self.restored_until_ns => (true, Change::No),
                None => alert.missed(now_ns, terms.keep_firing_ns),
            };
            change = change.max(its_change);
            is_kept
        });
        for (labels, (annotations, value)) in instances {
            self.all.insert(labels, Alert::new(now_ns, annotations, value));
            change = change.max(Change::Small);
        }
        for alert in self.all.values_mut() {
            change = change.max(alert.follow(now_ns, terms.hold_ns));
        }
        let count = self.active().count();
        if terms.limit > 0 && count > terms.limit {
            self.all.clear();
            return Err(AlertsError::Limit { limit: terms.limit, count });
        }
        Ok(change)
    }

    /// What `ALERTS` and `ALERTS_FOR_STATE` are now.
    pub fn samples(&self) -> impl Iterator<Item = (Labels, f64)> {
        self.active().flat_map(|(labels, alert)| {
            let named = |name, more: Option<(&'static str, &'static str)>| {
                Labels::new(labels.iter().chain([(NAME, name)]).chain(more))
            };
            // As Prometheus has it: whole seconds.
            #[allow(clippy::cast_precision_loss)]
            let since_s = alert.active_ns.div_euclid(S_NS) as f64;
            [(named(ALERTS, Some((STATE, alert.state.name()))), 1.0), (named(ALERTS_FOR_STATE, None), since_s)]
        })
    }

    /// What is to be told now, of a rule that is evaluated every `interval_ns`.
    pub fn notices(&mut self, now_ns: i64, interval_ns: i64) -> Vec<Notice> {
        let due = self.all.iter_mut().filter(|(_, alert)| alert.is_due(now_ns));
        due.map(|(labels, alert)| {
            alert.sent_ns = Some(now_ns);
            // Two that do not arrive end nothing.
            let until_ns = now_ns.saturating_add(interval_ns.max(RESEND_NS).saturating_mul(4));
            Notice {
                labels: labels.clone(),
                annotations: alert.annotations.clone(),
                starts_ns: alert.fired_ns.unwrap_or(alert.active_ns),
                ends_ns: alert.resolved_ns.unwrap_or(until_ns),
            }
        })
        .collect()
    }

    pub(crate) fn save(&self) -> Vec<SavedAlert> {
        let saved = |(labels, alert): (&Labels, &Alert)| SavedAlert {
            labels: owned(labels),
            annotations: owned(&alert.annotations),
            state: alert.state,
            value_bits: alert.value.to_bits(),
            active_ns: alert.active_ns,
            fired_ns: alert.fired_ns,
            resolved_ns: alert.resolved_ns,
            unseen_since_ns: alert.unseen_since_ns,
        };
        self.all.iter().map(saved).collect()
    }

    /// Takes those of an earlier process that evaluated for the last time at `seen_ns`. A rule that is evaluated every
    /// `interval_ns` has until then to give them again.
    pub(crate) fn restore(&mut self, saved: Vec<SavedAlert>, seen_ns: i64, now_ns: i64, interval_ns: i64) {
        let down_ns = now_ns.saturating_sub(seen_ns).max(0);
        self.restored_until_ns = now_ns.saturating_add(RESTORED_KEPT_NS.max(interval_ns.saturating_mul(2)));
        for one in saved {
            // Nobody knows what was while nobody looked: that time does not count.
            let waited_ns = if one.state == State::Pending { down_ns } else { 0 };
            let alert = Alert {
                state: one.state,
                annotations: Labels::new(one.annotations),
                value: f64::from_bits(one.value_bits),
                active_ns: one.active_ns.saturating_add(waited_ns),
                fired_ns: one.fired_ns,
                resolved_ns: one.resolved_ns,
                unseen_since_ns: one.unseen_since_ns,
                is_restored: one.state != State::Inactive,
                sent_ns: None,
            };
            if let Entry::Vacant(place) = self.all.entry(Labels::new(one.labels)) {
                place.insert(alert);
            }
        }
    }
}

fn owned(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Alert {
    fn new(now_ns: i64, annotations: Labels, value: f64) -> Self {
        Self {
            state: State::Pending,
            annotations,
            value,
            active_ns: now_ns,
            fired_ns: None,
            resolved_ns: None,
            unseen_since_ns: None,
            is_restored: false,
            sent_ns: None,
        }
    }

    fn given(&mut self, now_ns: i64, annotations: Labels, value: f64) -> Change {
        if self.state == State::Inactive {
            *self = Self::new(now_ns, annotations, value);
            return Change::Small;
        }
        (self.annotations, self.value, self.is_restored) = (annotations, value, false);
        if self.unseen_since_ns.take().is_some() { Change::Small } else { Change::No }
    }

    /// Whether it stays.
    fn missed(&mut self, now_ns: i64, keep_firing_ns: i64) -> (bool, Change) {
        match self.state {
            State::Pending => (false, Change::Small),
            State::Inactive => {
                let is_kept = self.resolved_ns.is_some_and(|ns| now_ns.saturating_sub(ns) <= RESOLVED_KEPT_NS);
                (is_kept, if is_kept { Change::No } else { Change::Small })
            }
            State::Firing => {
                let is_news = self.unseen_since_ns.is_none();
                let since_ns = *self.unseen_since_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(since_ns) < keep_firing_ns {
                    return (true, if is_news { Change::Small } else { Change::No });
                }
                (self.state, self.resolved_ns, self.is_restored) = (State::Inactive, Some(now_ns), false);
                (true, Change::Large)
            }
        }
    }

    /// Fires, if it is time; and does no more if the rule wants it to wait for longer now.
    fn follow(&mut self, now_ns: i64, hold_ns: i64) -> Change {
        let is_over = now_ns.saturating_sub(self.active_ns) >= hold_ns;
        match self.state {
            State::Pending if is_over && !self.is_restored => {
                (self.state, self.fired_ns) = (State::Firing, Some(now_ns));
                Change::Large
            }
            // A clock that was set back changes nothing.
            State::Firing if !is_over && self.fired_ns.is_some_and(|fired_ns| fired_ns <= now_ns) => {
                self.state = State::Pending;
                (self.fired_ns, self.sent_ns, self.unseen_since_ns) = (None, None, None);
                Change::Large
            }
            _ => Change::No,
        }
    }

    fn is_due(&self, now_ns: i64) -> bool {
        let Some(sent_ns) = self.sent_ns else { return self.state != State::Pending };
        self.state != State::Pending
            && (self.resolved_ns.is_some_and(|ns| ns > sent_ns) || now_ns.saturating_sub(sent_ns) > RESEND_NS)
    }
}

#[cfg(test)]
mod tests;
