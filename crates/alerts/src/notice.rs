// SPDX-License-Identifier: Apache-2.0
//! What Alertmanagers are told, and what waits for being told. No I/O.

use std::collections::{BTreeMap, HashMap, VecDeque};

use onlooker_promql::labels::Labels;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Alerts of one request.
pub const BATCH: usize = 64;
/// Alerts that wait for one Alertmanager at most.
pub const QUEUE: usize = 10_000;

/// One alert, as it is at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// What it is known by.
    pub labels: Labels,
    /// What is said about it.
    pub annotations: Labels,
    /// When it fired, ns since 1970.
    pub starts_ns: i64,
    /// When it resolved, or until when it is to be believed, ns since 1970.
    pub ends_ns: i64,
}

/// What is the same in all notices of a rule.
#[derive(Clone, Debug, Default)]
pub struct Sender {
    /// Labels that alerts get which have none of that name.
    pub external_labels: BTreeMap<String, String>,
    /// Where people find the rule's expression.
    pub generator_url: String,
}

impl Notice {
    /// As Alertmanager's API v2 wants it (`postableAlert`).
    #[must_use]
    pub fn json(&self, sender: &Sender) -> Value {
        let mut labels = sender.external_labels.clone();
        labels.extend(self.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        let annotations: BTreeMap<&str, &str> = self.annotations.iter().collect();
        json!({
            "labels": labels, "annotations": annotations, "startsAt": rfc3339(self.starts_ns),
            "endsAt": rfc3339(self.ends_ns), "generatorURL": sender.generator_url,
        })
    }
}

/// A time as JSON has it, in UTC.
#[must_use]
pub fn rfc3339(ns: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(ns.into()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    // Years of i64 ns have four digits.
    time.format(&Rfc3339).unwrap_or_default()
}

/// What waits for one Alertmanager, in order. Of one alert the newest notice waits, where the first did.
#[derive(Debug)]
pub struct Queue {
    most: usize,
    order: VecDeque<Labels>,
    waiting: HashMap<Labels, Value>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(QUEUE)
    }
}

impl Queue {
    /// One that holds so many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most, order: VecDeque::new(), waiting: HashMap::new() }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds notices with their JSON; says how many of those that waited longest had to go.
    pub fn push(&mut self, notices: impl IntoIterator<Item = (Labels, Value)>) -> usize {
        for (labels, json) in notices {
            if self.waiting.insert(labels.clone(), json).is_none() {
                self.order.push_back(labels);
            }
        }
        let over = self.order.len().saturating_sub(self.most);
        for labels in self.order.drain(..over) {
            self.waiting.remove(&labels);
        }
        over
    }

    /// Takes the next ones.
    pub fn batch(&mut self) -> Vec<(Labels, Value)> {
        let count = self.order.len().min(BATCH);
        let taken = self.order.drain(..count);
        taken.filter_map(|labels| self.waiting.remove_entry(&labels)).collect()
    }

    /// Puts back what could not be told, before all others; says how many had to go.
    pub fn put_back(&mut self, batch: Vec<(Labels, Value)>) -> usize {
        for (labels, json) in batch.into_iter().rev() {
            // There is a newer one: it has its own place.
            if !self.waiting.contains_key(&labels) {
                self.waiting.insert(labels.clone(), json);
                self.order.push_front(labels);
            }
        }
        self.push([])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(name: &str) -> Labels {
        Labels::new([("alertname", name)])
    }

    fn named(batch: &[(Labels, Value)]) -> Vec<(&str, &str)> {
        batch.iter().map(|(labels, json)| (labels.get("alertname"), json.as_str().unwrap())).collect()
    }

    #[test]
    fn a_notice_is_what_alertmanager_expects() {
        let notice = Notice {
            labels: labels("Down"),
            annotations: Labels::new([("summary", "it is down")]),
            starts_ns: 1_795_300_000_123_456_789,
            ends_ns: 1_795_300_240_000_000_000,
        };
        let sender = Sender {
            external_labels: [("site", "a"), ("alertname", "no")].map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
            generator_url: "http://x/graph".into(),
        };
        assert_eq!(
            notice.json(&sender),
            json!({
                "labels": {"alertname": "Down", "site": "a"}, "annotations": {"summary": "it is down"},
                "startsAt": "2026-11-21T22:26:40.123456789Z", "endsAt": "2026-11-21T22:30:40Z",
                "generatorURL": "http://x/graph",
            })
        );
    }

    #[test]
    fn the_newest_notice_waits_in_the_first_ones_place_and_what_failed_comes_first() {
        let mut queue = Queue::new(3);
        let of = |name: &str, text: &str| (labels(name), Value::from(text));
        assert_eq!(queue.push([of("a", "1"), of("b", "1"), of("a", "2")]), 0);
        assert_eq!(queue.len(), 2);
        let batch = queue.batch();
        assert_eq!(named(&batch), [("a", "2"), ("b", "1")]);
        assert!(queue.is_empty());
        // Meanwhile `b` has changed, and others came.
        assert_eq!(queue.push([of("b", "2"), of("c", "1")]), 0);
        assert_eq!(queue.put_back(batch), 0);
        assert_eq!(queue.push([of("d", "1")]), 1);
        assert_eq!(named(&queue.batch()), [("b", "2"), ("c", "1"), ("d", "1")]);
    }

    #[test]
    fn batches_have_a_size() {
        let mut queue = Queue::default();
        let all: Vec<_> = (0..100).map(|at| (labels(&format!("{at:03}")), Value::Null)).collect();
        assert_eq!(queue.push(all), 0);
        assert_eq!((queue.batch().len(), queue.batch().len(), queue.batch().len()), (BATCH, 100 - BATCH, 0));
    }
}
