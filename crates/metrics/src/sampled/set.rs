// SPDX-License-Identifier: Apache-2.0
//! Groups that are sampled together, each as often as it is worth.

use onlooker_responder::clock::boot_time_ns;

use super::draft::{Draft, Sampled};
use super::scrape::Scrapes;
use super::{Covered, DeviceKey, Loss, NodeError};
use crate::groups::Group;
use crate::procfs::LINE_BYTES;

/// A group is sampled when it is due within this part of its interval, so that those of several intervals share a wake-up.
const SLACK_PART: u64 = 8;
/// A region is not made anew more often than this, whatever comes and goes.
const CALM_NS: u64 = 5_000_000_000;

/// The groups.
pub struct Set {
    groups: Vec<Sampled>,
    changed: Vec<Group>,
    scrapes: Scrapes,
    buffer: Box<[u8; LINE_BYTES]>,
}

impl Default for Set {
    fn default() -> Self {
        Self { groups: Vec::new(), changed: Vec::new(), scrapes: Scrapes::default(), buffer: Box::new([0; LINE_BYTES]) }
    }
}

impl Set {
    /// All that a group has on this host, or what is left of it beside `computed` metrics, under another name; `None` where
    /// nothing is left.
    ///
    /// # Errors
    /// [`NodeError`].
    pub fn draft(
        &mut self,
        group: Group,
        interval_ns: u64,
        computed: Option<&Covered>,
    ) -> Result<Option<Draft>, NodeError> {
        Draft::new(group, interval_ns, computed, &mut self.scrapes)
    }

    /// Puts a group in, in place of what there was of it, which is returned.
    pub fn put(&mut self, sampled: Sampled) -> Option<Sampled> {
        match self.groups.iter_mut().find(|other| other.group == sampled.group) {
            Some(other) => Some(std::mem::replace(other, sampled)),
            None => {
                self.groups.push(sampled);
                None
            }
        }
    }

    /// Takes a group out.
    pub fn remove(&mut self, group: Group) -> Option<Sampled> {
        let at = self.groups.iter().position(|other| other.group == group)?;
        Some(self.groups.remove(at))
    }

    /// Its groups.
    #[must_use]
    pub fn groups(&self) -> &[Sampled] {
        &self.groups
    }

    /// Samples one group, now.
    pub fn sample_one(&mut self, group: Group, computed: Option<&[DeviceKey]>) -> Loss {
        let Self { groups, scrapes, buffer, .. } = self;
        let found = groups.iter_mut().find(|sampled| sampled.group == group);
        found.map(|sampled| sampled.sample(buffer, computed, scrapes)).unwrap_or_default()
    }

    /// Samples what is due.
    pub fn sample(&mut self, now_ns: u64, computed: Option<&[DeviceKey]>) -> Loss {
        let Self { groups, changed, scrapes, buffer } = self;
        let mut all = Loss::default();
        for sampled in groups {
            let age_ns = now_ns.saturating_sub(sampled.sampled_ns);
            if sampled.sampled_ns != 0 && age_ns < sampled.interval_ns - sampled.interval_ns / SLACK_PART {
                continue;
            }
            let loss = sampled.sample(buffer, computed, scrapes);
            all.failed += loss.failed;
            all.rows_dropped += loss.rows_dropped;
            let is_old = boot_time_ns().saturating_sub(sampled.made_ns) >= CALM_NS;
            if loss.changed && is_old && !changed.contains(&sampled.group) {
                changed.push(sampled.group);
            }
        }
        all.changed = !changed.is_empty();
        all
    }

    /// Groups whose regions have to be made anew, since there are other series now. Asked for once.
    pub fn take_changed(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.changed)
    }

    /// Whether every group's last sample is younger than its interval.
    #[must_use]
    pub fn is_fresh(&self, now_ns: u64) -> bool {
        let is_fresh = |sampled: &Sampled| {
            sampled.sampled_ns != 0 && now_ns.saturating_sub(sampled.sampled_ns) < sampled.interval_ns
        };
        self.groups.iter().all(is_fresh)
    }
}
