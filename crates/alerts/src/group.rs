// SPDX-License-Identifier: Apache-2.0
//! A group of rules: evaluated in order, at one time, so that a rule sees what those before it have recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onlooker_promql::labels::{Labels, NAME};
use onlooker_promql::source::STALE;
use onlooker_promql::value::Point;
use onlooker_rules::template::{self, Ask, Data, Template};
use onlooker_rules::{self as rules, What};

use crate::alert::{ALERT_NAME, Alerts, Change, Instance, Terms};
use crate::notice::Notice;
use crate::saved::RuleKey;
use crate::schedule::Schedule;

/// A sample that an expression gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its labels, the metric's name among them.
    pub labels: Labels,
    /// Its value.
    pub value: Point,
}

/// Where answers come from and results go.
pub trait World {
    /// Runs an instant query; a scalar is a sample without labels.
    ///
    /// # Errors
    /// Why there is no answer.
    fn query(&mut self, expr: &str, time_ns: i64) -> Result<Vec<Sample>, String>;

    /// Takes samples of one time, [`STALE`] where a series has ended. The next query finds them.
    ///
    /// # Errors
    /// Why some were not taken.
    fn record(&mut self, time_ns: i64, samples: Vec<(Labels, Point)>) -> Result<(), String>;

    /// A steady clock, ns.
    fn steady_ns(&mut self) -> u64;
}

/// What all rules share.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `$externalLabels`.
    pub external_labels: BTreeMap<String, String>,
    /// `$externalURL`.
    pub external_url: String,
}

/// How a rule is, as Prometheus says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It has not been evaluated.
    #[default]
    Unknown,
    /// Its last evaluation was good.
    Good,
    /// It failed.
    Bad,
}

impl Health {
    /// As Prometheus calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Good => "ok",
            Self::Bad => "err",
        }
    }
}

/// A rule and how it goes.
#[derive(Clone, Debug)]
pub struct Rule {
    /// As the file has it.
    pub rule: Arc<rules::Rule>,
    /// How its last evaluation was.
    pub health: Health,
    /// Why it failed.
    pub error: Option<String>,
    /// How long it took, ns.
    pub duration_ns: u64,
    /// When that was, ns since 1970.
    pub evaluated_ns: Option<i64>,
    /// Its alerts; none of a recording rule.
    pub alerts: Alerts,
    texts: Arc<Texts>,
    /// Series that it had last.
    before: Arc<BTreeSet<Labels>>,
}

/// Templates of labels and annotations.
#[derive(Debug, Default)]
struct Texts {
    labels: Vec<(String, Text)>,
    annotations: Vec<(String, Text)>,
}

type Text = Result<Template, String>;

fn texts(all: &BTreeMap<String, String>) -> Vec<(String, Text)> {
    let text = |text: &str| Template::parse(text).map_err(|error| error.to_string());
    all.iter().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// Queries of templates.
struct Asked<'a> {
    world: &'a mut dyn World,
    time_ns: i64,
}

impl Ask for Asked<'_> {
    fn ask(&mut self, query: &str) -> Result<Vec<template::Sample>, String> {
        let samples = self.world.query(query, self.time_ns)?;
        let of = |Sample { labels, value }| template::Sample { labels: owned(&labels), value: value.number() };
        Ok(samples.into_iter().map(of).collect())
    }
}

fn owned(labels: &Labels) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Rule {
    fn new(rule: rules::Rule) -> Self {
        let texts = match &rule.what {
            What::Alert { annotations, .. } => Texts { labels: texts(&rule.labels), annotations: texts(annotations) },
            What::Record { .. } => Texts::default(),
        };
        Self {
            rule: rule.into(),
            health: Health::Unknown,
            error: None,
            duration_ns: 0,
            evaluated_ns: None,
            alerts: Alerts::default(),
            texts: texts.into(),
            before: Arc::default(),
        }
    }

    /// Whether it makes alerts.
    #[must_use]
    pub fn is_alert(&self) -> bool {
        matches!(self.rule.what, What::Alert { .. })
    }

    /// What a sample becomes.
    fn instance(&self, sample: &Sample, time_ns: i64, context: &Context, world: &mut dyn World) -> Instance {
        let own = owned(&sample.labels);
        let data = Data {
            labels: &own,
            external_labels: &context.external_labels,
            external_url: &context.external_url,
            value: sample.value.number(),
            time_ns,
        };
        let mut expanded = |(name, text): &(String, Text)| {
            let mut asked = Asked { world: &mut *world, time_ns };
            let text = match text {
                Ok(template) => template.expand(&data, &mut asked).map_err(|error| error.to_string()),
                Err(error) => Err(error.clone()),
            };
            (name.clone(), text.unwrap_or_else(|error| format!("<error expanding template: {error}>")))
        };
        let annotations = self.texts.annotations.iter().map(&mut expanded).collect::<Vec<_>>();
        let labels = self.texts.labels.iter().map(&mut expanded).collect::<Vec<_>>();
        let name = [(ALERT_NAME.to_owned(), self.rule.name().to_owned())];
        let own = own.into_iter().filter(|(name, _)| name != NAME);
        Instance {
            labels: Labels::new(own.chain(labels).chain(name)),
            annotations: Labels::new(annotations),
            value: sample.value.number(),
        }
    }

    /// Evaluates the expression; what it gave then is recorded.
    fn evaluate(&mut self, group: &Turn, context: &Context, world: &mut dyn World) -> Result<Done, String> {
        let Turn { time_ns, sample_ns, limit, interval_ns } = *group;
        let given = world.query(&self.rule.expr, sample_ns)?;
        let (samples, change, notices) = match &self.rule.what {
            What::Record { name } => (recorded(name, &self.rule.labels, given, limit)?, Change::No, Vec::new()),
            What::Alert { hold_ns, keep_firing_ns, .. } => {
                let terms = Terms { hold_ns: *hold_ns, keep_firing_ns: *keep_firing_ns, limit };
                let all = given.iter().map(|sample| self.instance(sample, time_ns, context, world)).collect();
                let change = self.alerts.take(time_ns, all, terms).map_err(|error| error.to_string())?;
                (
                    self.alerts.samples().map(|(labels, value)| (labels, value.into())).collect(),
                    change,
                    self.alerts.notices(time_ns, interval_ns),
                )
            }
        };
        let now: BTreeSet<Labels> = samples.iter().map(|(labels, _)| labels.clone()).collect();
        let ended: Vec<_> = self.before.difference(&now).map(|labels| (labels.clone(), STALE.into())).collect();
        let count = samples.len() as u64;
        self.before = now.into();
        let taken = world.record(sample_ns, samples.into_iter().chain(ended).collect());
        Ok(Done { change, notices, samples: count, taken })
    }
}

/// What an evaluation is told.
#[derive(Clone, Copy)]
struct Turn {
    time_ns: i64,
    sample_ns: i64,
    limit: usize,
    interval_ns: i64,
}

struct Done {
    change: Change,
    notices: Vec<Notice>,
    samples: u64,
    taken: Result<(), String>,
}

/// What a recording rule makes of its samples.
fn recorded(
    name: &str,
    labels: &BTreeMap<String, String>,
    given: Vec<Sample>,
    limit: usize,
) -> Result<Vec<(Labels, Point)>, String> {
    let count = given.len();
    let of = |Sample { labels: own, value }: Sample| {
        let more = labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        (Labels::new(own.iter().chain([(NAME, name)]).chain(more)), value)
    };
    let all: Vec<_> = given.into_iter().map(of).collect();
    if all.iter().map(|(labels, _)| labels).collect::<BTreeSet<_>>().len() < count {
        return Err("vector contains metrics with the same labelset after applying rule labels".to_owned());
    }
    if limit > 0 && count > limit {
        return Err(format!("exceeded limit of {limit} with {count} series"));
    }
    Ok(all)
}

/// What has been counted of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times at which it was to be evaluated.
    pub iterations: u64,
    /// Those of them at which it was not.
    pub missed: u64,
    /// Evaluations of its rules.
    pub evaluations: u64,
    /// Those of them that failed.
    pub failures: u64,
}

/// A group and how it goes.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The file that it is from.
    pub file: String,
    /// From one evaluation to the next, ns.
    pub interval_ns: i64,
    /// Alerts or series of one rule at most; 0: any number.
    pub limit: usize,
    /// In order.
    pub rules: Vec<Rule>,
    /// How long its last evaluation took, ns.
    pub duration_ns: u64,
    /// When that was, ns since 1970.
    pub evaluated_ns: Option<i64>,
    /// Samples that it gave.
    pub samples: u64,
    /// What has been counted.
    pub counts: Counts,
    offset_ns: i64,
    schedule: Schedule,
}

/// What an evaluation of a group gave.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Whether a restart must find something else.
    pub change: Change,
    /// What is to be told, by the rule's place in the group.
    pub notices: Vec<(usize, Vec<Notice>)>,
    /// Failures that are new: rules and why.
    pub failures: Vec<(String, String)>,
}

impl Group {
    pub(crate) fn new(group: rules::Group, interval_ns: i64, now_ns: i64) -> Self {
        let file = group.file.display().to_string();
        let interval_ns = group.interval_ns.unwrap_or(interval_ns);
        Self {
            schedule: Schedule::new(interval_ns, &format!("{file};{}", group.name), now_ns),
            name: group.name,
            file,
            interval_ns,
            limit: group.limit,
            rules: group.rules.into_iter().map(Rule::new).collect(),
            duration_ns: 0,
            evaluated_ns: None,
            samples: 0,
            counts: Counts::default(),
            offset_ns: group.offset_ns,
        }
    }

    /// What it is known by, as Prometheus writes it.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{};{}", self.file, self.name)
    }

    pub(crate) fn next_ns(&self) -> i64 {
        self.schedule.next_ns()
    }

    /// Evaluates all rules, if it is time.
    pub(crate) fn evaluate(&mut self, now_ns: i64, context: &Context, world: &mut dyn World) -> Option<Outcome> {
        let (time_ns, missed) = self.schedule.due(now_ns)?;
        self.counts.iterations += missed + 1;
        self.counts.missed += missed;
        let (begun_ns, mut outcome) = (world.steady_ns(), Outcome::default());
        let Self { interval_ns, limit, .. } = *self;
        let terms = Turn { time_ns, sample_ns: time_ns.saturating_sub(self.offset_ns), limit, interval_ns };
        self.samples = 0;
        for (at, rule) in self.rules.iter_mut().enumerate() {
            let rule_begun_ns = world.steady_ns();
            self.counts.evaluations += 1;
            let done = rule.evaluate(&terms, context, world);
            let error = match done {
                Ok(done) => {
                    self.samples += done.samples;
                    outcome.change = outcome.change.max(done.change);
                    if !done.notices.is_empty() {
                        outcome.notices.push((at, done.notices));
                    }
                    done.taken.err()
                }
                // Its alerts may have ended with it.
                Err(error) => {
                    outcome.change = outcome.change.max(Change::Small);
                    Some(error)
                }
            };
            self.counts.failures += u64::from(error.is_some());
            if let Some(error) = error.as_ref().filter(|_| rule.health != Health::Bad) {
                outcome.failures.push((rule.rule.name().to_owned(), error.clone()));
            }
            rule.health = if error.is_some() { Health::Bad } else { Health::Good };
            (rule.error, rule.evaluated_ns) = (error, Some(time_ns));
            rule.duration_ns = world.steady_ns().saturating_sub(rule_begun_ns);
        }
        (self.evaluated_ns, self.duration_ns) = (Some(time_ns), world.steady_ns().saturating_sub(begun_ns));
        Some(outcome)
    }

    /// What each rule is known by.
    pub(crate) fn keys(&self) -> impl Iterator<Item = RuleKey> {
        self.rules.iter().map(|rule| RuleKey {
            file: self.file.clone(),
            group: self.name.clone(),
            name: rule.rule.name().to_owned(),
            labels: rule.rule.labels.clone(),
        })
    }

    /// Takes over what has been going on in the same group of a configuration before.
    pub(crate) fn adopt(&mut self, old: &mut Self) {
        (self.evaluated_ns, self.duration_ns, self.counts) = (old.evaluated_ns, old.duration_ns, old.counts);
        let mut left: Vec<Option<RuleKey>> = old.keys().map(Some).collect();
        for (key, rule) in self.keys().collect::<Vec<_>>().into_iter().zip(&mut self.rules) {
            let Some(at) = left.iter().position(|other| other.as_ref() == Some(&key)) else { continue };
            left[at] = None;
            let Rule { alerts, before, health, .. } = &mut old.rules[at];
            (rule.alerts, rule.before) = (std::mem::take(alerts), std::mem::take(before));
            rule.health = *health;
        }
    }

    /// Series that it had last.
    pub(crate) fn series(&self) -> impl Iterator<Item = &Labels> {
        self.rules.iter().flat_map(|rule| rule.before.iter())
    }
}
