// SPDX-License-Identifier: Apache-2.0
//! Collectors that the operator adds (`[kernel] collectors`, docs/user-collectors.md), put into the responder by the loader.
//!
//! Which slot a collector gets: `slots`, beside this file.

use std::collections::BTreeSet;
use std::path::PathBuf;

use onlooker_metrics::user::{Checked, SLOTS, check, list};
use onlooker_region::schema::SchemaId;
use onlooker_responder::Responder;

use super::load::CollectorState;
use super::slots::{Standing, assign};
use crate::config;

/// Checks the configured collectors, installs those that are good, and takes out what is not configured any more. `taken`: names of metrics that others tell.
pub(super) fn collect(
    config: &config::Kernel,
    responder: &Responder,
    standing: &[Standing],
    taken: &BTreeSet<String>,
) -> Vec<CollectorState> {
    let files = match list(&config.collectors) {
        Ok(files) => files,
        Err(reason) => return vec![refused(config.collectors.display().to_string(), reason)],
    };
    let mut states = Vec::new();
    let mut good: Vec<Checked> = Vec::new();
    for checked in check(&files, config.collector_budget.as_duration()) {
        let checked = checked.map_err(|refusal| (refusal.file, refusal.reason));
        match checked.and_then(|checked| claim(taken, checked)) {
            Ok(checked) => good.push(checked),
            Err((file, reason)) => states.push(refused(file.display().to_string(), reason)),
        }
    }
    let wanted: Vec<(&str, SchemaId)> =
        good.iter().map(|one| (one.region.as_str(), SchemaId::of(&one.schema.canonical()))).collect();
    let slots = assign(SLOTS, &wanted, standing);
    let mut used = BTreeSet::new();
    for (checked, slot) in good.iter().zip(slots) {
        let installed = match slot {
            Some(slot) => checked.install(responder, slot).map(|_| slot),
            None => Err(format!(
                "at most {} user collectors, those that are being replaced included: take some out, or restart the agent once more",
                SLOTS.len()
            )),
        };
        match installed {
            Ok(slot) => {
                used.insert(slot);
                states.push(CollectorState {
                    name: checked.region.clone(),
                    slot,
                    schema: checked.schema.canonical(),
                    published_ns: None,
                    cost_ns: checked.cost_ns.iter().max().copied(),
                    left_out: Vec::new(),
                    error: None,
                });
            }
            Err(reason) => states.push(refused(checked.file.display().to_string(), reason)),
        }
    }
    for slot in SLOTS.filter(|slot| !used.contains(slot)) {
        // ENOENT where it is empty, which is what is wanted.
        let _ = responder.remove_collector(slot);
    }
    states
}

/// Whether a line about a collector is about one of the operator's.
#[must_use]
pub fn is_user(state: &CollectorState) -> bool {
    state.error.is_none() && SLOTS.contains(&state.slot)
}

/// What an agent without kernel responder says of collectors that it has been given.
#[must_use]
pub fn unserved(config: &config::Kernel) -> Option<String> {
    let files = list(&config.collectors).ok()?;
    (!files.is_empty()).then(|| {
        format!(
            "warning: {} user collectors in {} are not served: they are computed by the kernel responder only, and there is none",
            files.len(),
            config.collectors.display()
        )
    })
}

fn refused(name: String, reason: String) -> CollectorState {
    CollectorState {
        name,
        slot: 0,
        schema: String::new(),
        published_ns: None,
        cost_ns: None,
        left_out: Vec::new(),
        error: Some(reason),
    }
}

/// A metric has one region: readers would have two answers to one question.
fn claim(taken: &BTreeSet<String>, checked: Checked) -> Result<Checked, (PathBuf, String)> {
    let told = checked.metrics().find(|name| taken.contains(*name));
    match told.map(|name| format!("metric {name} is told by another region already: give it another name")) {
        Some(reason) => Err((checked.file, reason)),
        None => Ok(checked),
    }
}
