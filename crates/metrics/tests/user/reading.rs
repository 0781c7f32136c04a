// SPDX-License-Identifier: Apache-2.0
//! A directory of collectors' files and a responder that serves them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use onlooker_metrics::user::{Checked, check};
use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::{Block, guard};
use onlooker_responder::{Exit, Kind, Region};
use onlooker_wire::{Frame, Packet, Part, ReadAnswer};

use crate::support::{Ask, Outcome, PORT, Rig, Side, VA, one_at_a_time, unlimited};

/// Far more than any block takes, also in emulated guests and on machines that other tests keep busy.
pub(crate) const BUDGET: Duration = Duration::from_millis(1);
pub(crate) const SLOT: u32 = 32;

/// Files that only root can change.
pub(crate) struct Files {
    pub(crate) dir: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The outcome for a file of this text, without the file's name.
    pub(crate) fn check(&self, text: &str) -> Result<Checked, String> {
        let path = self.put("test.toml", text);
        check_one(path, BUDGET)
    }
}

pub(crate) fn check_one(path: PathBuf, budget: Duration) -> Result<Checked, String> {
    let front = format!("{}: ", path.display());
    let mut checked = check(&[path], budget);
    assert_eq!(checked.len(), 1);
    checked.remove(0).map_err(|refusal| {
        let text = refusal.to_string();
        text.strip_prefix(&front).unwrap_or_else(|| panic!("{text} does not name its file")).to_owned()
    })
}

/// A collector in a slot, and a region for it.
pub(crate) struct Served {
    pub(crate) rig: Rig,
    pub(crate) checked: Checked,
}

impl Served {
    pub(crate) fn new(checked: Checked) -> Self {
        let rig = Rig::new(&unlimited(PORT));
        let served = Self { rig, checked };
        served.install(&served.checked, SLOT);
        served
    }

    pub(crate) fn install(&self, checked: &Checked, slot: u32) {
        checked.install(&self.rig.responder, slot).unwrap_or_else(|reason| panic!("{reason}"));
        let kind = Kind::Computed { collector: slot, identity: identity(slot).word() };
        let region = Region { va: VA, blocks: checked.schema.blocks(), kind };
        self.rig.responder.add_region(100 + slot, &region).unwrap();
    }

    pub(crate) fn block(&self, slot: u32, index: u32, side: Side) -> Result<Block, Exit> {
        let ask = Ask::v4().rkey(100 + slot).at(u64::from(index) * 1024, 1024);
        let answer = match self.rig.run(side, &ask.frame()) {
            Outcome::Answer(answer) => answer,
            Outcome::Drop(exit) => return Err(exit),
            Outcome::Pass | Outcome::Passed => panic!("passed on"),
        };
        let Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), payload, .. }) = Frame::parse(&answer).unwrap().packet
        else {
            panic!("not an answer")
        };
        let mut block = Block::default();
        block.bytes_mut().copy_from_slice(payload);
        guard::check(&block, identity(slot).at(u16::try_from(index).unwrap())).unwrap();
        Ok(block)
    }

    /// Whether a READ of a block is dropped and the responder counts nothing: as where an object has nothing to tell.
    pub(crate) fn is_dropped_uncounted(&self, slot: u32, index: u32, side: Side) -> bool {
        let ask = Ask::v4().rkey(100 + slot).at(u64::from(index) * 1024, 1024);
        let _one = one_at_a_time();
        let before = self.rig.responder.counters().unwrap();
        let verdict = self.rig.program(side).run(&ask.frame(), 1).unwrap().verdict;
        // TC_ACT_SHOT, XDP_DROP.
        let dropped = if side == Side::Tc { 2 } else { 1 };
        verdict == dropped && self.rig.responder.counters().unwrap() == before
    }

    /// Exported values by series, with labels in the alphabet's order.
    pub(crate) fn read(&self, side: Side) -> BTreeMap<String, f64> {
        let blocks = (0..self.checked.schema.blocks()).map(|index| self.block(SLOT, index, side));
        let blocks: Vec<Block> = blocks.collect::<Result<_, _>>().unwrap_or_else(|exit| panic!("{exit:?}"));
        let plan = Plan::new(self.checked.schema.clone());
        let mut values = BTreeMap::new();
        let refused = plan.decode(identity(SLOT), &blocks, |sample| {
            let mut labels = sample.labels();
            labels.sort();
            let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}={value}")).collect();
            let before = values.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
            assert_eq!(before, None, "{} twice", sample.field.name);
        });
        assert_eq!(refused.unwrap(), []);
        values
    }
}

pub(crate) fn identity(slot: u32) -> Identity {
    Identity::first(slot, 0x77)
}

pub(crate) fn file(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn between(value: f64, before: f64, after: f64) -> Result<(), String> {
    let inside = value >= before.min(after) && value <= before.max(after);
    if inside { Ok(()) } else { Err(format!("{value} is not between {before} and {after}")) }
}

/// All series of a metric together.
pub(crate) fn sum(values: &BTreeMap<String, f64>, metric: &str) -> f64 {
    let front = format!("{metric}{{");
    let of_it: Vec<f64> =
        values.iter().filter(|(series, _)| series.starts_with(&front)).map(|(_, value)| *value).collect();
    assert!(!of_it.is_empty(), "no {metric} in {values:?}");
    of_it.iter().sum()
}
