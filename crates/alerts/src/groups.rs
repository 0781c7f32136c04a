// SPDX-License-Identifier: Apache-2.0
//! All groups: whose turn it is, and what outlives a restart or a new configuration.

use std::collections::BTreeSet;

use onlooker_promql::labels::Labels;
use onlooker_promql::source::STALE;
use onlooker_rules as rules;

use crate::alert::OUTAGE_NS;
use crate::group::{Context, Group, Outcome, World};
use crate::saved::{RuleKey, Saved, SavedRule};

/// All of them, in the order of their files.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
    context: Context,
    /// When what is known was true, ns since 1970.
    seen_ns: i64,
    /// Series of groups that are gone: their end is still to be recorded.
    ended: Vec<Labels>,
}

/// What came back after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Alerts that go on.
    pub alerts: usize,
    /// Alerts of rules that are gone, and all of them after too long a time.
    pub forgotten: usize,
}

impl Groups {
    /// Of what files have. `interval_ns` is that of groups that say none.
    #[must_use]
    pub fn new(groups: Vec<rules::Group>, interval_ns: i64, context: Context, now_ns: i64) -> Self {
        let groups = groups.into_iter().map(|group| Group::new(group, interval_ns, now_ns)).collect();
        Self { groups, context, seen_ns: 0, ended: Vec::new() }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Group] {
        &self.groups
    }

    /// When the next one is due, ns since 1970; `None`: there is none.
    #[must_use]
    pub fn next_ns(&self) -> Option<i64> {
        self.groups.iter().map(Group::next_ns).min()
    }

    /// Evaluates the group that has waited longest, if one is due: its place, and what it gave.
    pub fn evaluate(&mut self, now_ns: i64, world: &mut dyn World) -> Option<(usize, Outcome)> {
        if !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            // Whoever has none of them has nothing to end.
            let _ = world.record(now_ns, ended.into_iter().map(|labels| (labels, STALE.into())).collect());
        }
        let (at, group) = self.groups.iter_mut().enumerate().min_by_key(|(_, group)| group.next_ns())?;
        let outcome = group.evaluate(now_ns, &self.context, world)?;
        self.seen_ns = now_ns;
        Some((at, outcome))
    }

    /// What a restart must find.
    #[must_use]
    pub fn save(&self) -> Saved {
        let rules = self.groups.iter().flat_map(|group| group.keys().zip(&group.rules));
        let rules = rules.map(|(rule, own)| SavedRule { rule, alerts: own.alerts.save() });
        Saved { seen_ns: self.seen_ns, rules: rules.filter(|rule| !rule.alerts.is_empty()).collect() }
    }

    /// Takes what an earlier process left, before the first evaluation.
    pub fn restore(&mut self, saved: Saved, now_ns: i64) -> Restored {
        let mut restored = Restored::default();
        let mut left: Vec<SavedRule> = saved.rules;
        if now_ns.saturating_sub(saved.seen_ns) <= OUTAGE_NS {
            for group in &mut self.groups {
                let interval_ns = group.interval_ns;
                let keys: Vec<RuleKey> = group.keys().collect();
                for (key, rule) in keys.into_iter().zip(&mut group.rules) {
                    let Some(at) = left.iter().position(|saved| saved.rule == key) else { continue };
                    let alerts = left.remove(at).alerts;
                    restored.alerts += alerts.len();
                    rule.alerts.restore(alerts, saved.seen_ns, now_ns, interval_ns);
                }
            }
        }
        self.seen_ns = now_ns;
        restored.forgotten = left.iter().map(|rule| rule.alerts.len()).sum();
        restored
    }

    /// Takes over from the configuration before: alerts of the same rules go on as if nothing had happened.
    pub fn adopt(&mut self, mut old: Self) {
        self.seen_ns = old.seen_ns;
        for group in &mut self.groups {
            let same = |other: &&mut Group| (&other.file, &other.name) == (&group.file, &group.name);
            if let Some(other) = old.groups.iter_mut().find(same) {
                group.adopt(other);
            }
        }
        let kept: BTreeSet<&Labels> = self.groups.iter().flat_map(Group::series).collect();
        let gone = old.groups.iter().flat_map(Group::series).filter(|labels| !kept.contains(labels));
        self.ended = old.ended.iter().chain(gone).cloned().collect();
    }
}

#[cfg(test)]
mod tests;
