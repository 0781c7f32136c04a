// SPDX-License-Identifier: Apache-2.0
//! `make bench-collectors`: what a READ of each group's costliest block takes, with 23 bridges, so that blocks of group
//! network are full.

use anyhow::{Context as _, Result};
use onlooker_metrics::collect::{Options, Packed, install};

use super::blocks::{Cost, PACKED, REPEAT, measure, own_namespace};
use super::load;
use crate::machine::is_quick;
use crate::report::Results;

/// DESIGN: a computed block costs at most this.
const BOUND_NS: f64 = 5000.0;

pub(crate) fn run() -> Result<bool> {
    let rounds = if is_quick() { 9 } else { 45 };
    own_namespace(23);
    let (responder, config) = load()?;
    let installed = install(&responder, &Options::default())?;
    for (group, reason) in &installed.refused {
        println!("{group}: refused: {reason}");
    }
    let packed = Packed::of(&installed.groups);
    let (base, costs) = measure(&responder, &config, &installed, packed.as_ref(), (rounds, REPEAT))?;
    println!("a READ of a computed block whose collector does nothing: {base:.0} ns");
    let mut results = Results::default();
    let groups = installed.groups.iter().map(|group| (group.group.name(), group.blocks));
    for (name, blocks) in groups.chain(packed.map(|packed| (PACKED, packed.schema.blocks()))) {
        let of_group = costs.iter().filter(|(subject, _)| subject.group == name).map(|(_, cost)| *cost);
        let most = of_group.max_by(|a, b| a.whole.median.total_cmp(&b.whole.median));
        let Cost { whole, own } = most.with_context(|| format!("{name}: no block is answered"))?;
        let cpus = std::thread::available_parallelism()?;
        println!(
            "{name}: {blocks} blocks on {cpus} CPUs, quartiles {:.0} to {:.0} ns; the collector's own part {own:.0} ns",
            whole.low, whole.high
        );
        results.at_most(&format!("collector_{name}_ns"), whole.median, "ns", BOUND_NS);
    }
    Ok(results.passed() && installed.refused.iter().all(|(group, _)| group.absence().is_some()))
}
