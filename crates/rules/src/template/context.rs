// SPDX-License-Identifier: Apache-2.0
//! What functions see of an expansion: its data, whoever answers queries, and what it may still cost.

use std::rc::Rc;

use super::value::{Sample, Value};
use super::{Ask, Data, Limits};

pub(super) struct Context<'a> {
    pub(super) data: &'a Data<'a>,
    ask: &'a mut dyn Ask,
    pub(super) limits: Limits,
    steps: usize,
    queries: usize,
}

impl<'a> Context<'a> {
    pub(super) fn new(data: &'a Data<'a>, ask: &'a mut dyn Ask, limits: Limits) -> Self {
        Self { data, ask, limits, steps: 0, queries: 0 }
    }

    /// So many steps are about to be done.
    pub(super) fn work(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.limits.steps { Err("the template takes too many steps".to_owned()) } else { Ok(()) }
    }

    /// What `query` gives.
    pub(super) fn query(&mut self, query: &str) -> Result<Value, String> {
        self.queries += 1;
        if self.queries > self.limits.queries {
            return Err(format!("more than {} queries", self.limits.queries));
        }
        let samples = self.ask.ask(query)?;
        self.work(samples.len())?;
        let sample = |one: super::Sample| Rc::new(Sample { labels: Rc::new(one.labels), value: one.value });
        Ok(Value::Samples(samples.into_iter().map(sample).collect()))
    }
}
