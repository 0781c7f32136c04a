// SPDX-License-Identifier: Apache-2.0
//! What a host asks of its controller (docs/http.md, Targets): to be added, which includes a test read, and to be removed.

use std::collections::BTreeMap;

use onlooker_flow::Priority;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JoinError;
use crate::client::{Answer, Client, Method};
use crate::url::segment;

const TARGETS: &str = "/api/onlooker/v1/targets";

/// A host as the controller is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Registration {
    /// Its name there.
    pub name: String,
    /// Its bootstrap endpoint.
    pub address: String,
    /// The agent's join token.
    pub token: String,
    /// Labels of all its series.
    pub labels: BTreeMap<String, String>,
    /// How often it is read; as the controller has it if it does not stand here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Its class where not all hosts can be read in time; normal if it does not stand here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Take the name over.
    pub replace: bool,
    /// Try and keep nothing.
    pub dry_run: bool,
}

/// What the test read was like.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Accepted {
    /// The host's name.
    pub name: String,
    /// Where it is read.
    pub address: String,
    /// Who answers READs.
    pub via: String,
    /// Regions that there are.
    pub regions: u64,
    /// Series in them.
    pub series: u64,
    /// What the bootstrap took.
    pub bootstrap_ms: f64,
    /// What the first read took.
    pub read_ms: f64,
    /// What else the controller has to say.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Why the controller cannot read the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// In its words.
    pub what: String,
    /// Its code; empty of a controller that has none.
    pub code: String,
}

/// What the controller thinks of a host.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The test read succeeded; the answer as it came, too.
    Accepted(Box<Accepted>, Value),
    /// The token is good, the test read failed.
    Unread(Unread),
}

impl Registration {
    /// Asks the controller to add the host.
    ///
    /// # Errors
    /// [`JoinError::Unreachable`], [`JoinError::Refused`].
    pub fn post(&self, client: &Client, bearer: &str) -> Result<Verdict, JoinError> {
        let body = serde_json::to_value(self).unwrap_or_default();
        let answer = client.ask(Method::Post, TARGETS, Some(bearer), &body)?;
        match answer.status {
            200 => match Accepted::deserialize(&answer.body) {
                Ok(accepted) => Ok(Verdict::Accepted(Box::new(accepted), answer.body)),
                Err(error) => Err(refused(&answer, format!("its answer is not understood ({error})"), UPGRADE)),
            },
            502 if answer.is_controllers() => {
                let code = answer.body.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
                Ok(Verdict::Unread(Unread { what: answer.error(), code }))
            }
            status => Err(refused(&answer, answer.error(), advice(status))),
        }
    }
}

/// Asks the controller to forget a host; `token` is the agent's, which is the right to. Returns whether it knew it.
///
/// # Errors
/// [`JoinError::Unreachable`], [`JoinError::Refused`].
pub fn delete(client: &Client, name: &str, token: &str) -> Result<bool, JoinError> {
    let body = serde_json::json!({"token": token});
    was_deleted(&client.ask(Method::Delete, &format!("{TARGETS}/{}", segment(name)), None, &body)?)
}

fn was_deleted(answer: &Answer) -> Result<bool, JoinError> {
    match answer.status {
        200..300 => Ok(true),
        404 if answer.is_controllers() => Ok(false),
        401 | 403 => Err(refused(
            answer,
            answer.error(),
            "the agent's token is not the one it was joined with: remove the host there",
        )),
        status => Err(refused(answer, answer.error(), advice(status))),
    }
}

const UPGRADE: &str = "is this an Onlooker controller, and of a version that hosts can join?";

/// No Onlooker controller answers without a sentence of its own.
const PROXY: &str = "this is not a controller's answer: a proxy, or another server, answers in its place; give the URL under which the controller's /api/onlooker/v1/status can be had, with the proxy's path before it";

fn refused(answer: &Answer, what: String, advice: &'static str) -> JoinError {
    let advice = if answer.is_controllers() || answer.status == 200 { advice } else { PROXY };
    JoinError::Refused { status: answer.status, what, advice }
}

/// What to do about a status.
fn advice(status: u16) -> &'static str {
    match status {
        400 => "correct what it names",
        401 => "is the token that you gave this controller's?",
        403 => "restart the controller then, and run this again",
        404 | 405 => UPGRADE,
        409 => {
            "if this host was added under another name, `onlooker-agent join --undo` here removes that; if the name is another host's, choose another --name; if it was this host's before its token \
             changed, take it over with --replace and the token of the controller's [http] token_file"
        }
        429 => {
            "this address has too many test reads under way, or had too many lately: run this again in half a minute"
        }
        413 | 503 => "try again in a while",
        507 => {
            "the controller takes no more hosts, or no more from this address: raise max_hosts or max_hosts_per_source in [joined] of controller.toml, or remove hosts that are gone"
        }
        502 | 504 => "is a proxy before the controller, and the controller down?",
        _ => "the controller's log may say more",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_the_controller_reads() {
        let registration = Registration {
            name: "web-3".into(),
            address: "10.0.0.3:7177".into(),
            token: "onlk1.a.b".into(),
            labels: BTreeMap::from([("dc".to_owned(), "a".to_owned())]),
            interval: None,
            priority: None,
            replace: false,
            dry_run: true,
        };
        assert_eq!(
            serde_json::to_value(&registration).unwrap(),
            serde_json::json!({"name": "web-3", "address": "10.0.0.3:7177", "token": "onlk1.a.b", "labels": {"dc": "a"}, "replace": false, "dry_run": true})
        );
    }

    #[test]
    fn a_proxys_answer_is_not_taken_for_the_controllers() {
        let advice_of = |status, body| match refused(&Answer { status, body }, String::new(), advice(status)) {
            JoinError::Refused { advice, .. } => advice,
            other => panic!("{other}"),
        };
        for status in [401, 403, 404, 502] {
            assert_eq!(advice_of(status, Value::Null), PROXY);
            assert_eq!(advice_of(status, serde_json::json!({"message": "no route"})), PROXY);
            assert_eq!(advice_of(status, serde_json::json!({"error": "no"})), advice(status));
        }
    }

    #[test]
    fn only_the_controller_can_say_that_a_host_is_unknown_there() {
        let of = |status, body| was_deleted(&Answer { status, body });
        assert!(matches!(of(200, Value::Null), Ok(true)));
        assert!(matches!(of(404, serde_json::json!({"error": "no such host"})), Ok(false)));
        for body in [Value::Null, serde_json::json!({"message": "no route"})] {
            assert!(matches!(of(404, body), Err(JoinError::Refused { advice: PROXY, .. })));
        }
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        for (status, part) in [
            (401, "token"),
            (403, "restart"),
            (404, "Onlooker"),
            (409, "onlooker-agent join --undo"),
            (409, "--name"),
            (409, "--replace"),
            (429, "half a minute"),
            (503, "again"),
            (507, "max_hosts_per_source"),
            (500, "log"),
        ] {
            assert!(advice(status).contains(part), "{status}: {part}");
        }
    }
}
