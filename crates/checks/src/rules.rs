// SPDX-License-Identifier: Apache-2.0
//! Which rule a series has.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use onlooker_promql::Query;
use onlooker_promql::labels::{Labels, NAME};
use onlooker_query::Wanted;
use onlooker_series::series::{Form, Series};

use crate::config::{self, Checks, Mistake, Rule};
use crate::judge::{Checked, Judged};

/// Lists of what is judged that are kept for the next entity of a kind; beyond it each has its own.
const MAX_LISTS: usize = 4096;

/// All rules.
#[derive(Default)]
pub struct Rules {
    rules: Vec<(Wanted, Arc<Rule>)>,
    /// What is judged of an entity is the same on all hosts: it is there once.
    lists: Mutex<HashSet<Arc<[Judged]>>>,
}

impl Rules {
    /// The configured ones, then those that are shipped.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn new(checks: &Checks) -> Result<Self, Mistake> {
        config::check(&checks.rules)?;
        let shipped = if checks.shipped { shipped() } else { Vec::new() };
        let compile = |(number, rule): (usize, &Rule)| {
            let wrong =
                |error: String| config::named(number, ("match".to_owned(), format!("`{}`: {error}", rule.selector)));
            let matchers = Query::selector(&rule.selector).map_err(|error| wrong(error.to_string()))?;
            let wanted = Wanted::new(&matchers).map_err(|error| wrong(error.to_string()))?;
            Ok((wanted, Arc::new(rule.clone())))
        };
        let rules = checks.rules.iter().chain(&shipped).enumerate().map(compile).collect::<Result<_, Mistake>>()?;
        Ok(Self { rules, lists: Mutex::default() })
    }

    /// What judges the rows of an entity with these series; `None`: nobody does.
    #[must_use]
    pub fn of(&self, series: &[Series]) -> Option<Box<Checked>> {
        if self.rules.is_empty() {
            return None;
        }
        let judged: Vec<Judged> = (0..)
            .zip(series)
            .filter_map(|(number, series)| Judged::new(number, series, self.rule_of(series)?))
            .collect();
        (!judged.is_empty()).then(|| Box::new(Checked::new(self.shared(judged.into()))))
    }

    fn rule_of(&self, series: &Series) -> Option<&Arc<Rule>> {
        if !matches!(series.form, Form::Unsigned | Form::Signed | Form::Float) {
            return None;
        }
        let labels = Labels::new(series.labels.iter().chain([(NAME, &*series.name)]));
        self.rules.iter().find(|(wanted, _)| wanted.takes_labels(&labels)).map(|(_, rule)| rule)
    }

    fn shared(&self, judged: Arc<[Judged]>) -> Arc<[Judged]> {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists.get(&judged) {
            return known.clone();
        }
        if lists.len() >= MAX_LISTS {
            lists.retain(|list| Arc::strong_count(list) > 1);
        }
        if lists.len() < MAX_LISTS {
            lists.insert(judged.clone());
        }
        judged
    }
}

/// What holds on every Linux. Time that a CPU was idle or waited for I/O is left out: the kernel may count it back
/// (`proc(5)`). Nothing here has a state but a byte.
fn shipped() -> Vec<Rule> {
    let only_grows = |selector: &str| Rule { monotone: true, ..Rule::of(selector) };
    let within = |selector: &str, range| Rule { range: Some(range), ..Rule::of(selector) };
    vec![
        only_grows(
            r#"{__name__=~"node_(cpu|disk|network|netstat|vmstat|pressure|schedstat|softirqs)_.+_total",mode!~"idle|iowait"}"#,
        ),
        only_grows(r#"{__name__=~"node_(context_switches|forks|intr)_total"}"#),
        within(r#"{__name__=~"node_load(1|5|15)"}"#, [0.0, 1e7]),
        within(r#"{__name__=~"node_(hwmon|thermal_zone)_temp(_celsius)?"}"#, [-100.0, 200.0]),
    ]
}
