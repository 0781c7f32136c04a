// SPDX-License-Identifier: Apache-2.0
//! Who decides what a metric's name means, where it is said once for all: in Prometheus' text a name has one type and one help, and a histogram's samples have
//! names of their own.
//!
//! What the agents' own regions say comes first, then what most hosts say, then what the region says that was made first: no program can take a name from the
//! kernel's metrics, nor from what more hosts have. Whoever says otherwise is left out, with this family of its own only.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use onlooker_region::schema::Metric;

use crate::text::Text;

/// Some hosts of a list, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Voices(Vec<u64>);

impl Voices {
    /// Adds a host.
    pub fn add(&mut self, host: usize) {
        let word = host / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (host % 64);
    }

    fn join(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// What is said of a name.
struct Claim {
    is_vouched_for: bool,
    hosts: Voices,
    created_ns: i128,
    help: Text,
    /// Whose help it is: not vouched for, and made then; the least counts.
    helper: (bool, i128),
}

/// All that is said of names.
#[derive(Default)]
pub struct Claims {
    claims: HashMap<(Text, Metric), Claim>,
}

impl Claims {
    /// A host has a series. `is_vouched_for`: in a region of its agent. `created_ns`: when that region was made, by a clock that all hosts of this list share.
    pub fn add(&mut self, said: (&Text, Metric, &Text), host: usize, is_vouched_for: bool, created_ns: i128) {
        let mut hosts = Voices::default();
        hosts.add(host);
        self.add_all(said, &hosts, is_vouched_for, created_ns);
    }

    /// The same of many hosts, of which `created_ns` is the time of the first. In which order claims are added matters only where such times are the same.
    pub fn add_all(
        &mut self,
        (name, metric, help): (&Text, Metric, &Text),
        hosts: &Voices,
        is_vouched_for: bool,
        created_ns: i128,
    ) {
        let helper = (!is_vouched_for, created_ns);
        let fresh = || Claim { is_vouched_for, hosts: Voices::default(), created_ns, help: help.clone(), helper };
        let claim = self.claims.entry((name.clone(), metric)).or_insert_with(fresh);
        claim.hosts.join(hosts);
        if helper < claim.helper {
            (claim.help, claim.helper) = (help.clone(), helper);
        }
        claim.is_vouched_for |= is_vouched_for;
        claim.created_ns = claim.created_ns.min(created_ns);
    }

    /// Names, types and helps in the order in which they get their names.
    #[must_use]
    pub fn in_order(self) -> Vec<(Text, Metric, Text)> {
        let mut claims: Vec<_> = self.claims.into_iter().collect();
        claims.sort_by_cached_key(|((name, metric), claim)| {
            (!claim.is_vouched_for, Reverse(claim.hosts.count()), claim.created_ns, name.clone(), *metric)
        });
        claims.into_iter().map(|((name, metric), claim)| (name, metric, claim.help)).collect()
    }
}

/// Names of families and of their samples that are taken.
#[derive(Default)]
pub struct Names(HashSet<String>);

impl Names {
    /// Takes a family's names, of which `declared` is the one that its header lines have; false where one of them is another's.
    pub fn take(&mut self, name: &str, declared: &str, metric: Metric) -> bool {
        let ends: &[&str] = if metric == Metric::Histogram { &["_bucket", "_sum", "_count"] } else { &[] };
        let mut names = vec![name.to_owned(), declared.to_owned()];
        names.extend(ends.iter().map(|end| format!("{name}{end}")));
        let is_free = names.iter().all(|name| !self.0.contains(name));
        if is_free {
            self.0.extend(names);
        }
        is_free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Metric::{Counter, Gauge, Histogram};

    fn settled(claims: &[(&str, Metric, usize, bool, i128)]) -> Vec<(String, Metric, String)> {
        let mut all = Claims::default();
        for (name, metric, host, is_vouched_for, created_ns) in claims {
            let help = format!("{host} {created_ns}");
            all.add((&(*name).into(), *metric, &help.as_str().into()), *host, *is_vouched_for, *created_ns);
        }
        all.in_order().into_iter().map(|(name, metric, help)| (name.to_string(), metric, help.to_string())).collect()
    }

    #[test]
    fn agents_come_first_then_the_many_then_the_old() {
        let said = |claims: &[_]| settled(claims).into_iter().next().map(|(_, metric, help)| (metric, help)).unwrap();
        // However many programs say otherwise, and however old they are.
        let claims = [("x", Counter, 1, false, 1), ("x", Counter, 2, false, 1), ("x", Gauge, 3, true, 9)];
        assert_eq!(said(&claims), (Gauge, "3 9".into()));
        // A host is one voice, however many regions its program has.
        let claims = [
            ("x", Counter, 1, false, 1),
            ("x", Counter, 1, false, 2),
            ("x", Counter, 1, false, 3),
            ("x", Gauge, 2, false, 8),
            ("x", Gauge, 3, false, 7),
        ];
        assert_eq!(said(&claims), (Gauge, "3 7".into()));
        assert_eq!(said(&[("x", Counter, 1, false, 5), ("x", Gauge, 2, false, 4)]), (Gauge, "2 4".into()));
        // The help is the agent's, too.
        assert_eq!(said(&[("x", Gauge, 1, false, 1), ("x", Gauge, 1, true, 9)]), (Gauge, "1 9".into()));
        // The oldest agent's, in whatever order they come.
        for claims in [[(1, false, 1), (2, true, 9), (3, true, 5)], [(3, true, 5), (2, true, 9), (1, false, 1)]] {
            let claims = claims.map(|(host, is_vouched_for, ns)| ("x", Gauge, host, is_vouched_for, ns));
            assert_eq!(said(&claims), (Gauge, "3 5".into()));
        }
    }

    #[test]
    fn samples_of_histograms_are_names_too() {
        let mut names = Names::default();
        assert!(names.take("h", "h", Histogram) && !names.take("h_sum", "h_sum", Gauge));
        assert!(names.take("x_bucket", "x_bucket", Gauge) && !names.take("x", "x", Histogram));
        assert!(names.take("x_sum", "x_sum", Gauge), "what was refused has taken nothing");
        assert!(names.take("a_total", "a", Counter) && !names.take("a", "a", Gauge));
    }
}
