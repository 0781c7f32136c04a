// SPDX-License-Identifier: Apache-2.0
//! Installed groups as regions of a responder, read as a requester would.

use std::collections::BTreeMap;
use std::fs;

use onlooker_metrics::collect::{Installed, InstalledGroup, Options, Verdict, install, survey};
use onlooker_metrics::discover::Finding;
use onlooker_metrics::groups::{Group, is_held_to_bounds};
use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::{Block, Schema, guard};
use onlooker_responder::{Kind, Region};
use onlooker_wire::{Frame, Packet, Part, ReadAnswer};

use crate::support::{Ask, Outcome, PORT, Rig, Side, VA, unlimited};

/// A responder with collectors, and a region for each of them: rkey 100 + slot.
pub(crate) struct Collecting {
    pub(crate) rig: Rig,
    pub(crate) installed: Installed,
}

pub(crate) fn identity(group: &InstalledGroup) -> Identity {
    Identity::first(group.slot, 0x77)
}

impl Collecting {
    pub(crate) fn new(groups: &[Group]) -> Self {
        let rig = Rig::new(&unlimited(PORT));
        let options = Options { groups: groups.to_vec(), ..Options::default() };
        let installed = install(&rig.responder, &options).unwrap_or_else(|error| panic!("{error}"));
        for group in &installed.groups {
            let kind = Kind::Computed { collector: group.slot, identity: identity(group).word() };
            let region = Region { va: VA, blocks: group.blocks, kind };
            rig.responder.add_region(100 + group.slot, &region).unwrap();
        }
        Self { rig, installed }
    }

    pub(crate) fn group(&self, group: Group) -> &InstalledGroup {
        let found = self.installed.groups.iter().find(|installed| installed.group == group);
        found.unwrap_or_else(|| panic!("{group} was refused: {:?}", self.installed.refused))
    }

    /// Reads all blocks of a group, each by a READ.
    pub(crate) fn blocks(&self, group: Group, side: Side) -> Vec<Block> {
        let group = self.group(group);
        self.blocks_of(100 + group.slot, group.blocks, identity(group), side)
    }

    /// Reads all blocks of a region.
    pub(crate) fn blocks_of(&self, rkey: u32, blocks: u32, identity: Identity, side: Side) -> Vec<Block> {
        (0..blocks)
            .map(|index| {
                let ask = Ask::v4().rkey(rkey).at(u64::from(index) * 1024, 1024);
                let Outcome::Answer(answer) = self.rig.run(side, &ask.frame()) else { panic!("{side:?} {index}") };
                let Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), payload, .. }) =
                    Frame::parse(&answer).unwrap().packet
                else {
                    panic!("not an answer")
                };
                let mut block = Block::default();
                block.bytes_mut().copy_from_slice(payload);
                guard::check(&block, identity.at(u16::try_from(index).unwrap())).unwrap();
                block
            })
            .collect()
    }

    /// Reads a group: exported value by series.
    pub(crate) fn read(&self, group: Group, side: Side) -> BTreeMap<String, f64> {
        values(self.group(group), &self.blocks(group, side))
    }
}

/// Exported values by series, with labels in the alphabet's order.
pub(crate) fn values(group: &InstalledGroup, blocks: &[Block]) -> BTreeMap<String, f64> {
    values_of(&group.schema, identity(group), blocks)
}

/// The same of any region.
pub(crate) fn values_of(schema: &Schema, identity: Identity, blocks: &[Block]) -> BTreeMap<String, f64> {
    let plan = Plan::new(schema.clone());
    let mut values = BTreeMap::new();
    let refused = plan.decode(identity, blocks, |sample| {
        let mut labels = sample.labels();
        labels.sort();
        let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let before = values.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
        assert_eq!(before, None, "{} twice", sample.field.name);
    });
    assert_eq!(refused.unwrap(), []);
    values
}

pub(crate) fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn between(value: f64, before: f64, after: f64, rounding: f64) -> Result<(), String> {
    let inside = value >= before.min(after) - rounding && value <= before.max(after) + rounding;
    if inside { Ok(()) } else { Err(format!("{value} is not between {before} and {after}")) }
}

#[test]
fn every_group_is_to_be_had_here_and_all_of_its_metrics_pass_their_check() {
    all_pass(&Options::default());
}

#[test]
fn so_it_is_on_kernels_whose_kallsyms_has_no_data() {
    // The load averages are found by their values: not while they are all 0.
    eventually_loaded();
    let findings = all_pass(&Options { data_symbols: false, ..Options::default() });
    for name in ["avenrun", "vm_zone_stat", "vm_node_stat", "_totalram_pages", "total_forks", "psi_system"] {
        let finding = findings.iter().find(|finding| finding.name == name);
        if name == "psi_system" && Group::PRESSURE.absence().is_some() {
            assert_eq!(finding, None);
            continue;
        }
        let finding = finding.unwrap();
        assert!(finding.result.as_ref().unwrap().starts_with("operand of"), "{finding:?}");
    }
}

/// Keeps a CPU busy until the load average shows it.
fn eventually_loaded() {
    let begin = std::time::Instant::now();
    while file("/proc/loadavg").starts_with("0.00") && begin.elapsed() < std::time::Duration::from_secs(60) {
        std::hint::spin_loop();
    }
}

#[allow(clippy::print_stdout)]
fn all_pass(options: &Options) -> Vec<Finding> {
    let survey = survey(options).unwrap_or_else(|error| panic!("{error}"));
    for finding in &survey.findings {
        println!("{:20} {:?}", finding.name, finding.result);
    }
    for group in &survey.groups {
        if let Some(reason) = group.group.absence() {
            println!("SKIPPED {}: {reason}", group.group);
            assert_eq!(group.result.as_ref(), Err(&reason));
            continue;
        }
        let checks = group.result.as_ref().unwrap_or_else(|reason| panic!("{}: {reason}", group.group));
        for check in checks {
            println!("{check}");
            let has_no_counterpart = check.metric.split('{').next().is_some_and(is_held_to_bounds);
            let verdict = if has_no_counterpart { Verdict::Bounds } else { Verdict::Equal };
            assert_eq!(check.verdict, verdict, "{}: {check}", group.group);
        }
    }
    survey.findings
}
