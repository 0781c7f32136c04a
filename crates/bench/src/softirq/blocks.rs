// SPDX-License-Identifier: Apache-2.0
//! What a READ of a computed block costs: the whole READ, from the request's first byte to the sealed answer, and the
//! part of it that is the collector's (less a READ of a computed block whose collector does nothing).

use anyhow::Result;
use onlooker_metrics::collect::{Installed, Packed, packed};
use onlooker_responder::{Config, Kind, Region, Responder};

use super::{Request, Stopwatch, install_nothing};
use crate::report::{Spread, spread};

const PROGRAM: &str = "bench_tc";
/// The group of the collector that does nothing, and its slot.
const NOTHING: (&str, u32) = ("nothing", 60);
/// READs in a measurement, usually.
pub(super) const REPEAT: u32 = 10_000;

/// A block that is read.
#[derive(Debug)]
pub(super) struct Subject {
    /// Its group's name.
    pub(super) group: &'static str,
    /// Its number in the region.
    block: u32,
    request: Request,
    samples: Vec<f64>,
}

/// ns a READ.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    /// The whole READ.
    pub(super) whole: Spread,
    /// The collector's part of the median.
    pub(super) own: f64,
}

/// What each block costs.
pub(super) type Costs = Vec<(Subject, Cost)>;

/// The packed blocks' name among groups.
pub(super) const PACKED: &str = "packed";

/// Measures each block of what is installed in `responder`, packed ones too, in so many rounds of so many READs; the cost of the
/// collector that does nothing is the first.
pub(super) fn measure(
    responder: &Responder,
    config: &Config,
    installed: &Installed,
    packed: Option<&Packed>,
    (rounds, repeat): (usize, u32),
) -> Result<(f64, Costs)> {
    install_nothing(responder, NOTHING.1)?;
    let mut subjects = subjects(responder, NOTHING, 1)?;
    for group in &installed.groups {
        subjects.extend(self::subjects(responder, (group.group.name(), group.slot), group.blocks)?);
    }
    if let Some(packed) = packed {
        let slot = packed::SLOTS.start;
        packed.install(responder, slot)?;
        subjects.extend(self::subjects(responder, (PACKED, slot), packed.schema.blocks())?);
    }
    let [restore, respond] = [Stopwatch::load(responder, config, true)?, Stopwatch::load(responder, config, false)?];
    let mut answered = Vec::new();
    for subject in subjects {
        let (_, bytes) = respond.run(PROGRAM, &subject.request, 1)?;
        if bytes == subject.request.answer_bytes {
            answered.push(subject);
        } else {
            println!("{}, block {}: nothing is told there ({bytes} bytes came back)", subject.group, subject.block);
        }
    }
    for _ in 0..rounds {
        for subject in &mut answered {
            let (with, _) = respond.run(PROGRAM, &subject.request, repeat)?;
            let (without, _) = restore.run(PROGRAM, &subject.request, repeat)?;
            subject.samples.push(with - without);
        }
    }
    let mut costs = Vec::new();
    let mut base = 0.0;
    for mut subject in answered {
        let whole = spread(&mut subject.samples);
        if subject.group == NOTHING.0 {
            base = whole.median;
        } else {
            costs.push((subject, Cost { whole, own: (whole.median - base).max(0.0) }));
        }
    }
    Ok((base, costs))
}

/// A region of a collector's blocks, each of them to be read.
fn subjects(responder: &Responder, (group, slot): (&'static str, u32), blocks: u32) -> Result<Vec<Subject>> {
    let kind = Kind::Computed { collector: slot, identity: u64::from(slot) << 16 | 1 << 40 };
    responder.add_region(slot, &Region { va: 0, blocks, kind })?;
    let subject = |block| {
        let request = Request::new(u64::from(block) * 1024, slot, 1024)?;
        Ok(Subject { group, block, request, samples: Vec::new() })
    };
    (0..blocks).map(subject).collect()
}

/// A network namespace of this process's own with so many bridges; they are gone with it. To be called by the only
/// thread.
pub(super) fn own_namespace(bridges: u32) {
    onlooker_testbed::own_network();
    for number in 0..bridges {
        onlooker_testbed::run("ip", &["link", "add", &format!("collect{number}"), "type", "bridge"]);
    }
}
