// SPDX-License-Identifier: Apache-2.0
//! What the demo says, on standard output: lines for people, or a JSON document a line.
//!
//! Nobody may be there to listen (a closed terminal, a closed pipe), and the demo must clean up all the same, so failed writes are no errors.

use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Teller {
    is_json: bool,
    begin: Instant,
    last: Instant,
}

impl Teller {
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json, begin: Instant::now(), last: Instant::now() }
    }

    fn line(&self, text: &str, document: impl FnOnce() -> Value) {
        let mut out = io::stdout().lock();
        let _ = if self.is_json { writeln!(out, "{}", document()) } else { writeln!(out, "{text}") };
        let _ = out.flush();
    }

    /// A step that is done; its time runs from the one before.
    pub(super) fn step(&mut self, name: &str, text: &str) {
        let ms = self.last.elapsed().as_secs_f64() * 1e3;
        self.last = Instant::now();
        self.line(&format!("{ms:7.0} ms  {text}"), || json!({ "step": name, "ms": ms, "text": text }));
    }

    /// Something to know that is no step.
    pub(super) fn note(&self, name: &str, text: &str) {
        self.line(&format!("            {text}"), || json!({ "note": name, "text": text }));
    }

    pub(super) fn took_s(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// The page is there.
    pub(super) fn ready(&self, text: &str, facts: Value) {
        self.line(text, || json!({ "ready": facts }));
    }

    /// All is removed.
    pub(super) fn ended(&self, why: &str, text: &str, remains: &[String]) {
        self.line(&format!("\ndemo: {why}: {text}"), || json!({ "ended": why, "text": text, "remains": remains }));
    }
}
