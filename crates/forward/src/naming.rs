// SPDX-License-Identifier: Apache-2.0
//! What a series is called at a target: its labels after relabelling, as Prometheus' `write_relabel_configs` do it.

use std::collections::BTreeMap;

use onlooker_targets::relabel::{Compiled, Rule, relabel};

/// Labels by name; `__name__` has the metric's name.
pub type Pairs = BTreeMap<String, String>;

const NAME: &str = "__name__";
/// Labels that begin so are for rules only.
const TEMPORARY: &str = "__";

/// A target's rules.
#[derive(Clone, Debug)]
pub struct Naming(Vec<Compiled>);

impl Naming {
    /// Of rules that were checked; others are left out.
    #[must_use]
    pub fn new(rules: &[Rule]) -> Self {
        Self(rules.iter().filter_map(|rule| rule.compile().ok()).collect())
    }

    /// What a series is called; `None`: it is not sent.
    #[must_use]
    pub fn name(&self, mut pairs: Pairs) -> Option<Pairs> {
        if !self.0.is_empty() {
            if !relabel(&self.0, &mut pairs) {
                return None;
            }
            pairs.retain(|name, _| name == NAME || !name.starts_with(TEMPORARY));
        }
        pairs.contains_key(NAME).then_some(pairs)
    }
}

#[cfg(test)]
mod tests {
    use onlooker_targets::relabel::Action;

    use super::*;

    #[test]
    fn rules_rename_and_drop_and_leave_nothing_temporary() {
        let rule = |action, source: &str, regex: &str, target: &str, replacement: &str| Rule {
            source_labels: Some(source.to_owned()).filter(|source| !source.is_empty()).into_iter().collect(),
            regex: regex.to_owned(),
            target_label: target.to_owned(),
            replacement: replacement.to_owned(),
            action,
            ..Rule::default()
        };
        let naming = Naming::new(&[
            rule(Action::Drop, NAME, "secret_.*", "", ""),
            rule(Action::Replace, NAME, "node_(.*)", NAME, "host_$1"),
            rule(Action::Replace, "", "(.*)", "__tmp", "x"),
            rule(Action::LabelDrop, "", "dc", "", ""),
        ]);
        let name = |name: &str| {
            let pairs = [(NAME, name), ("dc", "a"), ("instance", "b")].map(|(name, value)| (name.into(), value.into()));
            naming.name(pairs.into())
        };
        let expected = [(NAME, "host_load1"), ("instance", "b")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(name("node_load1"), Some(expected.into()));
        assert_eq!(name("secret_x"), None);
    }
}
