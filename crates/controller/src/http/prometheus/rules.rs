// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/rules`, `/api/v1/alerts`, `/api/v1/alertmanagers`.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use onlooker_alerts::{Alert, Group, Rule, State as AlertState, rfc3339};
use onlooker_promql::labels::Labels;
use onlooker_query::Wanted;
use onlooker_rules::What;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::super::Shared;
use super::parameters::Parameters;
use super::{Fault, Kind, json as write, success};

/// A rule that has not been evaluated, as Go writes the time that none is.
const NEVER: &str = "0001-01-01T00:00:00Z";

#[allow(clippy::cast_precision_loss)] // intervals and durations fit
fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn time(ns: Option<i64>) -> String {
    ns.map_or_else(|| NEVER.to_owned(), rfc3339)
}

fn object(labels: &Labels) -> Value {
    Value::Object(labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

fn alert(labels: &Labels, alert: &Alert) -> Value {
    let mut said = json!({
        "labels": object(labels), "annotations": object(&alert.annotations), "state": alert.state.name(),
        "activeAt": rfc3339(alert.active_ns), "value": write::exponent(alert.value),
    });
    if let Some(since_ns) = alert.unseen_since_ns {
        said["keepFiringSince"] = rfc3339(since_ns).into();
    }
    said
}

pub(super) async fn alerts(State(shared): State<Shared>) -> Response {
    let groups = shared.rules.groups();
    let rules = groups.iter().flat_map(|group| &group.rules);
    let alerts: Value = rules.flat_map(|rule| rule.alerts.active()).map(|(labels, one)| alert(labels, one)).collect();
    success(&json!({ "alerts": alerts }), &[])
}

pub(super) async fn managers(State(shared): State<Shared>) -> Response {
    let urls: Value = shared.rules.managers.iter().map(|manager| json!({ "url": manager.endpoint() })).collect();
    success(&json!({ "activeAlertmanagers": urls, "droppedAlertmanagers": [] }), &[])
}

/// What of the groups is asked for.
struct Asked<'a> {
    names: BTreeSet<&'a str>,
    groups: BTreeSet<&'a str>,
    files: BTreeSet<&'a str>,
    labels: Vec<Wanted>,
    with_alerting: bool,
    with_recording: bool,
    with_alerts: bool,
    most: Option<usize>,
    token: &'a str,
}

fn is_wanted(set: &BTreeSet<&str>, text: &str) -> bool {
    set.is_empty() || set.contains(text)
}

impl<'a> Asked<'a> {
    fn new(asked: &'a Parameters) -> Result<Self, Fault> {
        let set = |name: &'static str| asked.all(name).collect();
        let kind = asked.get("type").to_lowercase();
        if !["", "alert", "record"].contains(&&*kind) {
            return Err(Fault::parameter("type", format_args!("not supported value {kind:?}")));
        }
        let labels = asked.selectors()?.iter().map(|matchers| Wanted::new(matchers)).collect::<Result<_, _>>();
        let without_alerts = match &*asked.get("exclude_alerts").to_lowercase() {
            "" | "false" | "f" | "0" => false,
            "true" | "t" | "1" => true,
            text => {
                let why = format!("error converting exclude_alerts: {text:?} is neither true nor false");
                return Err(Fault::parameter("exclude_alerts", why));
            }
        };
        let (limit, token) = (asked.get("group_limit"), asked.get("group_next_token"));
        if limit.is_empty() && !token.is_empty() {
            let why = "group_limit needs to be present in order to paginate over the groups";
            return Err(Fault::parameter("group_next_token", why));
        }
        let most = match limit {
            "" => None,
            text => match text.parse::<i32>().map(usize::try_from) {
                Ok(Ok(most)) if most > 0 => Some(most),
                Ok(_) => return Err(Fault::parameter("group_limit", "group_limit needs to be greater than 0")),
                Err(error) => {
                    let why = format!("group_limit needs to be a valid number: {error}");
                    return Err(Fault::parameter("group_limit", why));
                }
            },
        };
        Ok(Self {
            names: set("rule_name[]"),
            groups: set("rule_group[]"),
            files: set("file[]"),
            labels: labels.map_err(|error| Fault::new(Kind::BadData, error))?,
            with_alerting: kind != "record",
            with_recording: kind != "alert",
            with_alerts: !without_alerts,
            most,
            token,
        })
    }

    fn takes(&self, rule: &Rule) -> bool {
        let takes_labels = || {
            let labels = Labels::new(rule.rule.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            self.labels.iter().any(|wanted| wanted.takes_labels(&labels))
        };
        is_wanted(&self.names, rule.rule.name())
            && (if rule.is_alert() { self.with_alerting } else { self.with_recording })
            && (self.labels.is_empty() || takes_labels())
    }

    fn rule(&self, rule: &Rule) -> Value {
        let mut said = json!({
            "name": rule.rule.name(), "query": rule.rule.expr, "labels": rule.rule.labels,
            "health": rule.health.name(), "evaluationTime": seconds(rule.duration_ns.cast_signed()),
            "lastEvaluation": time(rule.evaluated_ns), "type": "recording",
        });
        if let Some(error) = &rule.error {
            said["lastError"] = error.as_str().into();
        }
        if let What::Alert { hold_ns, keep_firing_ns, annotations, .. } = &rule.rule.what {
            let state = rule.evaluated_ns.map_or("unknown", |_| rule.alerts.state().name());
            // Null and not empty, as Go writes a list that nobody has made.
            let alerts = self.with_alerts.then(|| rule.alerts.active().map(|(labels, one)| alert(labels, one)));
            said["state"] = state.into();
            said["duration"] = seconds(*hold_ns).into();
            said["keepFiringFor"] = seconds(*keep_firing_ns).into();
            said["annotations"] = json!(annotations);
            said["alerts"] = alerts.map_or(Value::Null, Iterator::collect);
            said["type"] = "alerting".into();
        }
        said
    }
}

/// What the next page begins with.
fn token(group: &Group) -> String {
    Sha256::digest(group.key()).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) async fn rules(State(shared): State<Shared>, asked: Parameters) -> Result<Response, Fault> {
    let asked = Asked::new(&asked)?;
    let (groups, mut told, mut next) = (shared.rules.groups(), Vec::new(), None);
    let begin = match asked.token {
        "" => Some(0),
        wanted => groups.iter().position(|group| token(group) == wanted),
    };
    let begin = begin.ok_or_else(|| {
        let why = format!("invalid group_next_token '{}'. were rule groups changed?", asked.token);
        Fault::parameter("group_next_token", why)
    })?;
    for group in &groups[begin..] {
        if !is_wanted(&asked.groups, &group.name) || !is_wanted(&asked.files, &group.file) {
            continue;
        }
        let rules: Vec<Value> =
            group.rules.iter().filter(|rule| asked.takes(rule)).map(|rule| asked.rule(rule)).collect();
        if rules.is_empty() {
            continue;
        }
        if asked.most == Some(told.len()) {
            next = Some(token(group));
            break;
        }
        told.push(json!({
            "name": group.name, "file": group.file, "rules": rules, "interval": seconds(group.interval_ns),
            "limit": group.limit, "evaluationTime": seconds(group.duration_ns.cast_signed()),
            "lastEvaluation": time(group.evaluated_ns),
        }));
    }
    let mut data = json!({ "groups": told });
    if let Some(next) = next {
        data["groupNextToken"] = next.into();
    }
    Ok(success(&data, &[]))
}

/// Of all rules' alerts: how many are pending, and how many fire.
pub(in super::super) fn counts(groups: &[std::sync::Arc<Group>]) -> [(&'static str, usize); 2] {
    let count = |state: AlertState| {
        let rules = groups.iter().flat_map(|group| &group.rules);
        let all = rules.flat_map(|rule| rule.alerts.active()).filter(|(_, alert)| alert.state == state);
        (state.name(), all.count())
    };
    [AlertState::Pending, AlertState::Firing].map(count)
}
