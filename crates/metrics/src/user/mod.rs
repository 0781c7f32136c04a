// SPDX-License-Identifier: Apache-2.0
//! Collectors that users add (docs/user-collectors.md): tables that say which numbers of the kernel's memory to read, and BPF objects that fill blocks.
//!
//! A collector is a TOML file that only root can change, with what it tells and where it comes from. [`check`] finds everything that it names, looks at the instructions of
//! an object, loads both on maps of their own, measures how long a block takes, and refuses with the reason what is wrong; [`Checked::install`] puts the programs into a slot
//! of a responder. From then on it is a computed region like the kernel's own groups ([`crate::collect`]).
//!
//! Invariants: a program that a responder calls has been looked at, verified and measured; of the responder's maps an object reaches the scratch and the tables of
//! collectors only; what cannot be read at a READ costs that block its answer and nothing else (counted as `collector_refused`: a table's by the responder, an object's in
//! counters of its own).
//! Cost: a READ's, at most the budget; a check some 100 ms for what is looked up of the kernel, and 10 to 30 ms a collector.

mod elf;
mod file;
mod inspect;
mod object;
mod path;
mod resolve;
mod table;
mod trusted;

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libbpf_rs::Object;
use onlooker_region::Schema;
use onlooker_responder::error::Result;
use onlooker_responder::program::info_of;
use onlooker_responder::{ProgramInfo, Responder};

use crate::collect::object::{Image, Purpose, compute};
use crate::discover::Discovery;
use crate::measure;
use file::Definition;
use object::{Inspected, Passed};

pub use file::{MAX_BLOCKS, MAX_VALUES, REGION_PREFIX};
pub use inspect::{MAX_INSNS, MAX_READ_BYTES};
pub use object::{MAX_ADDRESSES, MAX_MAP_BYTES};
pub use trusted::list;

/// Slots of users' collectors.
pub const SLOTS: Range<u32> = 32..64;

/// A collector that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct Refusal {
    /// Its file.
    pub file: PathBuf,
    /// The key or the instruction, what is wrong with it, and what to do.
    pub reason: String,
}

/// A collector that has passed everything and takes part in nothing yet.
#[derive(Debug)]
pub struct Checked {
    /// Its file.
    pub file: PathBuf,
    /// Its region's name.
    pub region: String,
    /// Its region's class.
    pub schema: Schema,
    /// What a block takes, ns, median; of both programs the longer.
    pub cost_ns: Vec<u64>,
    /// What it reads, for people.
    pub lines: Vec<String>,
    program: Loadable,
}

#[derive(Debug)]
enum Loadable {
    Table(Image),
    Object(Inspected),
}

/// Checks collectors' files: each on its own, but that no two have a name or tell a metric. Nothing is installed, nothing is left behind.
#[must_use]
pub fn check(files: &[PathBuf], budget: Duration) -> Vec<std::result::Result<Checked, Refusal>> {
    let read: Vec<_> = files.iter().map(|file| (file, read(file))).collect();
    let roots: Vec<String> = read.iter().filter_map(|(_, read)| read.as_ref().ok()).flat_map(roots).collect();
    let mut discovery = Err(String::new());
    if !roots.is_empty() {
        let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
        discovery = Discovery::with_symbols(&roots).map_err(|error| error.to_string());
    }
    let mut names: Vec<String> = Vec::new();
    let mut metrics: BTreeSet<String> = BTreeSet::new();
    let mut checked = Vec::new();
    for (file, read) in read {
        let result = read.and_then(|definition| {
            let region = definition.region();
            if names.contains(&region) {
                return Err(format!("name = {:?}: another file has this name", definition.name));
            }
            names.push(region);
            let checked = check_one(file, &definition, &mut discovery, budget)?;
            let own: BTreeSet<String> = checked.metrics().map(str::to_owned).collect();
            if let Some(metric) = own.intersection(&metrics).next() {
                return Err(format!("metric {metric} is told by another file already: give it another name"));
            }
            metrics.extend(own);
            Ok(checked)
        });
        checked.push(result.map_err(|reason| Refusal { file: file.clone(), reason }));
    }
    checked
}

fn read(file: &Path) -> std::result::Result<Definition, String> {
    let bytes = trusted::read(file, trusted::MAX_FILE_BYTES)?;
    Definition::parse(&String::from_utf8(bytes).map_err(|error| format!("is no UTF-8: {error}"))?)
}

/// What the paths of a collector begin with.
fn roots(definition: &Definition) -> Vec<String> {
    let of_values = definition.values.iter().filter_map(|value| value.from.as_ref());
    let paths = of_values.chain(&definition.addresses).filter_map(|text| path::Path::parse(text).ok());
    paths.map(|path| path.root).collect()
}

fn check_one(
    file: &Path,
    definition: &Definition,
    discovery: &mut std::result::Result<Discovery, String>,
    budget: Duration,
) -> std::result::Result<Checked, String> {
    let (program, schema, lines) = if let Some(object) = &definition.object {
        let path = file.with_file_name(object);
        let bytes =
            trusted::read(&path, trusted::MAX_OBJECT_BYTES).map_err(|reason| format!("object: {object} {reason}"))?;
        let schema = file::object_schema(definition)?;
        (Loadable::Object(object::inspect(definition, bytes, discovery)?), schema, Vec::new())
    } else {
        let table = table::prepare(definition, discovery.as_mut().map_err(|reason| reason.clone())?)?;
        (Loadable::Table(table.image), table.schema, table.lines)
    };
    let cost_ns = program.measure(schema.blocks(), budget)?;
    Ok(Checked { file: file.to_owned(), region: definition.region(), schema, cost_ns, lines, program })
}

impl Loadable {
    /// What each block takes on maps of the collector's own.
    fn measure(&self, blocks: u32, budget: Duration) -> std::result::Result<Vec<u64>, String> {
        let (object, programs): (Object, Vec<&str>) = match self {
            Self::Table(image) => {
                (image.load(Purpose::Measure).map_err(|error| error.to_string())?, vec!["collect_tc"])
            }
            Self::Object(inspected) => (inspected.load(None)?, vec![inspected.tc.as_str(), inspected.xdp.as_str()]),
        };
        let _passed = match self {
            Self::Table(_) => None,
            Self::Object(_) => Some(Passed::behind(&object)?),
        };
        // All of them first: one that refuses takes no time.
        for block in 0..blocks {
            if matches!(self, Self::Table(_)) {
                let computed = compute(&object, block).map_err(|error| error.to_string())?;
                computed.ok_or_else(|| format!("block {block} cannot be read now, though each of its values could"))?;
                continue;
            }
            for (name, passed) in programs.iter().zip(Passed::VERDICTS) {
                if measure::verdict(&object, name, block).map_err(|error| error.to_string())? != passed {
                    return Err(format!(
                        "object: program {name} refuses block {block} now, so what it takes cannot be measured: see what it looks for"
                    ));
                }
            }
        }
        let mut costs = Vec::new();
        for block in 0..blocks {
            let mut longest = 0;
            for name in &programs {
                longest = longest.max(measure::run_ns(&object, name, block).map_err(|error| error.to_string())?);
            }
            let budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
            if longest > budget_ns {
                return Err(format!(
                    "block {block} takes {longest} ns (median), and the budget is {budget_ns} ns ([kernel] collector_budget): take fewer values, or such as stand side by side (an object: read less)"
                ));
            }
            costs.push(longest);
        }
        Ok(costs)
    }
}

impl Checked {
    /// Names of what it tells.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.schema.groups.iter().flat_map(|group| &group.fields).map(|field| field.name.as_str())
    }

    /// Puts its programs into a slot of a responder; what is there goes. It stays until [`Responder::remove_collector`] or the responder's end.
    ///
    /// # Errors
    /// [`crate::Error::Limit`] for slots that are not for collectors, [`crate::Error::Load`], [`crate::Error::Bpf`]; as text.
    pub fn install(&self, responder: &Responder, slot: u32) -> std::result::Result<Vec<ProgramInfo>, String> {
        let (object, tc, xdp) = match &self.program {
            Loadable::Table(image) => {
                (image.load(Purpose::Serve(responder)).map_err(|error| error.to_string())?, "collect_tc", "collect_xdp")
            }
            Loadable::Object(inspected) => {
                (inspected.load(Some(responder))?, inspected.tc.as_str(), inspected.xdp.as_str())
            }
        };
        let program = |name: &str| {
            let found = object.progs().find(|program| program.name() == name);
            found.ok_or_else(|| format!("the object has no program {name}"))
        };
        let (tc, xdp) = (program(tc)?, program(xdp)?);
        let infos = [&tc, &xdp].into_iter().map(|program| info_of(program.as_fd())).collect::<Result<Vec<_>>>();
        responder.install_collector(slot, tc, xdp).map_err(|error| error.to_string())?;
        infos.map_err(|error| error.to_string())
    }
}
