// SPDX-License-Identifier: Apache-2.0
//! What is told of a join, step by step: lines for people as they happen, or one JSON object at the end.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use crate::JoinError;
use crate::firewall::Rules;

/// What became of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Done.
    Done,
    /// It was so already.
    Kept,
    /// It would be done (`--dry-run`).
    Would,
    /// Nothing was to be done; something is to be known.
    Note,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Step {
    step: &'static str,
    state: State,
    text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Report {
    json: bool,
    dry_run: bool,
    steps: Vec<Step>,
    firewall: Option<Rules>,
    registered: Option<Value>,
    /// Standard output's error, told at the end: nothing is left half done because nobody listens.
    broken: Option<io::Error>,
}

impl Report {
    /// An empty one.
    #[must_use]
    pub fn new(json: bool, dry_run: bool) -> Self {
        Self { json, dry_run, ..Self::default() }
    }

    /// Done now, or, in a dry run, what would be: the text begins with a verb's base form, which is told with "would".
    pub fn act(&mut self, step: &'static str, text: impl Into<String>, details: Vec<String>) {
        let state = if self.dry_run { State::Would } else { State::Done };
        self.add(Step { step, state, text: text.into(), details });
    }

    /// Looked at and found good, or was so already.
    pub fn kept(&mut self, step: &'static str, text: impl Into<String>) {
        self.add(Step { step, state: State::Kept, text: text.into(), details: Vec::new() });
    }

    /// Done even in a dry run, as it changes nothing.
    pub fn done(&mut self, step: &'static str, text: impl Into<String>, details: Vec<String>) {
        self.add(Step { step, state: State::Done, text: text.into(), details });
    }

    /// Something to be known.
    pub fn note(&mut self, step: &'static str, text: impl Into<String>, details: Vec<String>) {
        self.add(Step { step, state: State::Note, text: text.into(), details });
    }

    /// The rules, told as a step and as an object of their own.
    pub fn firewall(&mut self, rules: Rules) {
        let text = "these must be let through, from the controller only; nothing is changed here".to_owned();
        self.add(Step { step: "firewall", state: State::Note, text, details: rules.lines() });
        self.firewall = Some(rules);
    }

    /// What the controller answered.
    pub fn registered(&mut self, answer: Value) {
        self.registered = Some(answer);
    }

    fn add(&mut self, step: Step) {
        if !self.json {
            let state = match step.state {
                State::Done => "done",
                State::Kept => "kept",
                State::Would => "would",
                State::Note => "note",
            };
            let details: String = step.details.iter().map(|line| format!("\n        {line}")).collect();
            self.say(&format!("{state:<5} {}: {}{details}", step.step, step.text));
        }
        self.steps.push(step);
    }

    fn say(&mut self, text: &str) {
        if self.broken.is_none() {
            self.broken = writeln!(io::stdout().lock(), "{text}").err();
        }
    }

    /// Ends it: the JSON object, if that is wanted. The result is that of the join, or that it could not be told.
    ///
    /// # Errors
    /// As given; [`JoinError::Output`].
    pub fn end(mut self, result: Result<(), JoinError>) -> Result<(), JoinError> {
        if self.json {
            let object = serde_json::json!({
                "ok": result.is_ok(),
                "dry_run": self.dry_run,
                "steps": self.steps,
                "firewall": self.firewall,
                "registered": self.registered,
                "error": result.as_ref().err().map(ToString::to_string),
            });
            self.say(&object.to_string());
        }
        match (result, self.broken) {
            (Ok(()), Some(error)) => Err(JoinError::Output(error)),
            (result, _) => result,
        }
    }
}
