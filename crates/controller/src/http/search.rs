// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/search`: hosts, metrics and alerts that fit some words, of all hosts or of one; and
//! `/api/onlooker/v1/metrics/{metric}/hosts`: which hosts have a metric.
//!
//! Whatever the fleet's size, an answer has the best of each and says how many there are: [`find`] groups and counts,
//! [`words`] ranks.

mod find;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::{Extension, Json};
use onlooker_alerts::{Group, State as AlertState};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Failure, number, one, parameters};
use super::turns::Gone;
use crate::fleet::Host;
use find::{Finder, Found};
use words::Place;
pub(super) use words::Words;

const DEFAULT_LIMIT: f64 = 50.0;
const MAX_LIMIT: f64 = 1000.0;

/// What is asked for.
struct Asked {
    words: Words,
    /// Of each list.
    limit: usize,
    hosts: Arc<[Arc<Host>]>,
    is_one_host: bool,
}

impl Asked {
    fn of(shared: &Shared, query: Option<&str>, known: &[&str]) -> Result<Self, Failure> {
        let pairs = parameters(query, known)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within bounds
        let limit = number(&pairs, "limit", 1.0, MAX_LIMIT)?.unwrap_or(DEFAULT_LIMIT) as usize;
        let words = Words::few(one(&pairs, "search")?.unwrap_or_default())?;
        let host = one(&pairs, "host")?;
        let hosts = match host {
            None => shared.fleet.hosts(),
            Some(name) => [shared.fleet.host(name).ok_or_else(|| Failure::no_host(name))?].into(),
        };
        Ok(Self { words, limit, hosts, is_one_host: host.is_some() })
    }
}

pub(super) async fn search(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let Asked { words, limit, hosts, is_one_host } =
        Asked::of(&shared, query.as_deref(), &["search", "host", "limit"])?;
    let mut finder = Finder::new(&words, None);
    for host in hosts.iter().take_while(|_| !gone.is()) {
        finder.host(&host.plan());
    }
    let searched = json!({ "hosts": finder.hosts, "series": finder.series });
    let found = finder.ranked();
    let series: u64 = found.iter().map(|metric| metric.series).sum();
    let list: Vec<Value> = found.iter().take(limit).map(metric).collect();
    let metrics = json!({ "total": found.len(), "series": series, "list": list });
    let mut answer = json!({ "searched": searched, "metrics": metrics });
    if !is_one_host {
        answer["hosts"] = best(hosts_of(&words, &hosts), limit, |host| told(host));
        answer["alerts"] = alerts(&words, &shared.rules.groups(), limit);
    }
    Ok(Json(answer))
}

/// `/api/onlooker/v1/metrics/{metric}/hosts`.
pub(super) async fn hosts(
    State(shared): State<Shared>,
    Extension(gone): Extension<Gone>,
    Path(metric): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Failure> {
    let Asked { words, limit, hosts, .. } = Asked::of(&shared, query.as_deref(), &["search", "limit"])?;
    let mut finder = Finder::new(&words, Some(&metric));
    let (mut total, mut all, mut list) = (0u64, 0, Vec::new());
    for host in hosts.iter().take_while(|_| !gone.is()) {
        let series = finder.host(&host.plan());
        if series == 0 {
            continue;
        }
        (total, all) = (total + 1, all + series);
        if list.len() < limit {
            let mut host = told(host);
            host["series"] = series.into();
            list.push(host);
        }
    }
    Ok(Json(json!({ "total": total, "series": all, "list": list })))
}

fn metric(found: &Found) -> Value {
    json!({
        "name": found.name, "type": found.metric, "unit": found.unit, "help": found.help,
        "series": found.series, "hosts": found.hosts,
    })
}

/// What a list shows of a host.
fn told(host: &Host) -> Value {
    let target = &host.target;
    let (address, state) = (format!("{}:{}", target.host, target.port), host.look().state.name());
    json!({ "name": target.name, "address": address, "labels": target.labels, "state": state })
}

/// The best of what was found, and how many there are.
fn best<T>(mut found: Vec<(Place<'_>, T)>, limit: usize, tell: impl Fn(&T) -> Value) -> Value {
    found.sort_by_key(|(place, _)| *place);
    let list: Vec<Value> = found.iter().take(limit).map(|(_, one)| tell(one)).collect();
    json!({ "total": found.len(), "list": list })
}

/// Those whose name, address or labels have all words.
fn hosts_of<'a>(words: &Words, hosts: &'a [Arc<Host>]) -> Vec<(Place<'a>, &'a Arc<Host>)> {
    let found = hosts.iter().filter_map(|host| {
        let target = &host.target;
        let mut text = format!("{} {}:{}", target.name, target.host, target.port);
        target.labels.iter().for_each(|(label, value)| text.extend([" ", label, "=", value]));
        Some((words.place(&target.name, &text, "", false)?, host))
    });
    found.collect()
}

/// Rules that make alerts, by name, labels and expression.
fn alerts(words: &Words, groups: &[Arc<Group>], limit: usize) -> Value {
    let rules = groups.iter().flat_map(|group| group.rules.iter().map(move |rule| (group, rule)));
    let found = rules.filter(|(_, rule)| rule.is_alert()).filter_map(|(group, rule)| {
        let mut text = rule.rule.name().to_owned();
        rule.rule.labels.iter().for_each(|(label, value)| text.extend([" ", label, "=", value]));
        Some((words.place(rule.rule.name(), &text, &rule.rule.expr, false)?, (group, rule)))
    });
    best(found.collect(), limit, |(group, rule)| {
        let of = |state: AlertState| rule.alerts.active().filter(|(_, alert)| alert.state == state).count();
        let (firing, pending) = (of(AlertState::Firing), of(AlertState::Pending));
        json!({ "name": rule.rule.name(), "group": group.name, "firing": firing, "pending": pending })
    })
}
