// SPDX-License-Identifier: Apache-2.0
//! Collectors that the operator adds (`[kernel] collectors`, docs/user-collectors.md), put into the responder by the loader.
//!
//! Regions of an earlier agent go on while its successor installs its collectors, and each names a slot. So a collector keeps its slot as long as its region's class is the
//! same; what has changed gets a slot that no region names, and its old region ends when the agent hears of the new one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use onlooker_metrics::user::{Checked, SLOTS, check, list};
use onlooker_region::schema::SchemaId;
use onlooker_responder::Responder;

use super::ledger::{HEADER, Record, Role, Source};
use super::load::CollectorState;
use crate::config;

/// A region of an earlier agent's that a user's collector computes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    region: String,
    schema: SchemaId,
    slot: u32,
}

/// Checks the configured collectors, installs those that are good, and takes out what is not configured any more. `taken`: names of metrics that others tell.
pub(super) fn collect(
    config: &config::Kernel,
    responder: &Responder,
    ledger: Vec<(u32, super::ledger::Bytes)>,
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
    let slots = assign(&wanted, &standing(ledger));
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

/// What an earlier agent's regions name.
fn standing(ledger: Vec<(u32, super::ledger::Bytes)>) -> Vec<Standing> {
    let records = ledger.into_iter().filter(|(number, _)| *number != HEADER);
    let records = records.filter_map(|(number, block)| Record::decode(number, &block));
    let of_users = records.filter_map(|record| match (record.keep.role, record.keep.source) {
        (Role::Own, Source::Computed { collector }) if SLOTS.contains(&collector) => {
            Some(Standing { region: record.entry.name, schema: record.entry.schema, slot: collector })
        }
        _ => None,
    });
    of_users.collect()
}

/// A slot for each region, where there is one.
fn assign(wanted: &[(&str, SchemaId)], standing: &[Standing]) -> Vec<Option<u32>> {
    let is_it = |one: &Standing, (region, schema): &(&str, SchemaId)| one.region == *region && one.schema == *schema;
    let kept: BTreeMap<&str, u32> = wanted
        .iter()
        .filter_map(|wanted| Some((wanted.0, standing.iter().find(|one| is_it(one, wanted))?.slot)))
        .collect();
    let named: BTreeSet<u32> = standing.iter().map(|one| one.slot).collect();
    let mut free = SLOTS.filter(|slot| !named.contains(slot));
    wanted.iter().map(|(region, _)| kept.get(region).copied().or_else(|| free.next())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SchemaId = SchemaId([1; 16]);
    const B: SchemaId = SchemaId([2; 16]);

    fn stands(region: &str, schema: SchemaId, slot: u32) -> Standing {
        Standing { region: region.into(), schema, slot }
    }

    #[test]
    fn a_slot_is_kept_with_its_class_and_given_to_nobody_else_before_its_region_has_ended() {
        assert_eq!(assign(&[("user_a", A), ("user_b", A)], &[]), [Some(32), Some(33)]);
        let before = [stands("user_a", A, 32), stands("user_b", A, 33)];
        // One comes in front: the others stay where they are.
        assert_eq!(assign(&[("user_0", A), ("user_a", A), ("user_b", A)], &before), [Some(34), Some(32), Some(33)]);
        // One has another class, one has gone.
        assert_eq!(assign(&[("user_b", B), ("user_c", A)], &before), [Some(34), Some(35)]);
    }

    #[test]
    fn there_is_an_end_to_slots() {
        let names: Vec<String> = (0..33).map(|number| format!("user_{number}")).collect();
        let wanted: Vec<(&str, SchemaId)> = names.iter().map(|name| (name.as_str(), A)).collect();
        let slots = assign(&wanted, &[]);
        assert_eq!((slots[31], slots[32]), (Some(63), None));
    }
}
