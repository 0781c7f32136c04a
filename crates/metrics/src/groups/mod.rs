// SPDX-License-Identifier: Apache-2.0
//! Groups of metrics: a folder each, which holds everything of the group.
//!
//! | file | what it is |
//! |---|---|
//! | `mod.rs` | the descriptor: name, region, slot, how often |
//! | `<group>.bpf.c` | the BPF program that computes blocks; `bpf/` has what such programs share |
//! | `facts.h`, `facts.rs` | what the loader tells the program: the same on both sides |
//! | `computed.rs` | what the program is told of this kernel, its region's schema, its tolerances ([`crate::collect`]) |
//! | `procfs.rs` | what is read from procfs, sysfs or netlink, and the schema of that ([`crate::sampled`]) |
//! | `tests.rs` | the loaded program against procfs (`tests/collect` runs them) |
//!
//! A new group is a new folder, a `mod` here and a place in [`Group::ALL`]; a test compares these with the folders.

pub mod agent;
pub mod cpu;
pub mod disk;
pub mod filesystem;
pub mod host;
pub mod interrupts;
pub mod load;
pub mod memory;
pub mod netstat;
pub mod network;
pub mod pressure;
pub mod processes;
pub mod qdisc;
pub mod responder;
pub mod schedstat;
pub mod scrape;
pub mod sensors;
pub mod sockets;
pub mod sockstat;
pub mod softnet;
pub mod stat;
pub mod vmstat;

use std::io;

use onlooker_responder::Responder;
use onlooker_settings::units::Span;

use crate::collect::object::Prepared;
use crate::discover::Discovery;
use crate::sampled::{Ask, Context, Made};

/// A group of metrics: one region.
#[derive(Clone, Copy)]
pub struct Group {
    descriptor: &'static Descriptor,
}

/// What a group is.
pub(crate) struct Descriptor {
    /// As configurations name it.
    name: &'static str,
    /// The region's name.
    region: &'static str,
    /// How it is computed.
    computed: Option<Computed>,
    /// How it is sampled.
    sampled: Option<Sampled>,
}

/// How a group is computed when a READ asks for it.
#[derive(Clone, Copy)]
pub(crate) struct Computed {
    /// The collector's slot in the responder. Numbers are for ever: pinned responders have them.
    slot: u32,
    /// Finds what the program needs of the running kernel. The error is the reason why the group cannot be had.
    prepare: fn(&mut Preparing<'_>) -> Result<Prepared, String>,
    /// Why the running kernel keeps nothing of the group.
    absence: fn() -> Option<String>,
    /// Rows of a table that procfs has.
    rows: Option<Rows>,
    /// Metrics that procfs has not, all 0 or 1: a check can only say that they are within these bounds.
    held_to_bounds: &'static [&'static str],
}

/// How a group is sampled from procfs, sysfs or netlink.
#[derive(Clone, Copy)]
pub(crate) struct Sampled {
    /// Reads it once: what there is of it on this host.
    make: fn(&Ask, &mut Context) -> io::Result<Made>,
    /// It is not sampled more often than this: it costs too much, or moves too slowly.
    shortest_interval: Span,
}

/// Devices that a table should have rows for.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// What a note of those without one is called.
    pub(crate) note: &'static str,
    /// Names of those that procfs shows.
    pub(crate) present: fn() -> Result<Vec<String>, String>,
}

/// With what a group is prepared.
pub(crate) struct Preparing<'a> {
    /// The responder that is to serve it; none: it is only looked at.
    pub(crate) responder: Option<&'a Responder>,
    /// The running kernel.
    pub(crate) discovery: &'a mut Discovery,
    /// Network devices that there is to be room for.
    pub(crate) devices: u32,
}

impl Computed {
    const fn new(slot: u32, prepare: fn(&mut Preparing<'_>) -> Result<Prepared, String>) -> Self {
        Self { slot, prepare, absence: || None, rows: None, held_to_bounds: &[] }
    }

    /// Not on every kernel.
    const fn absent(self, absence: fn() -> Option<String>) -> Self {
        Self { absence, ..self }
    }

    const fn rows(self, note: &'static str, present: fn() -> Result<Vec<String>, String>) -> Self {
        Self { rows: Some(Rows { note, present }), ..self }
    }

    const fn held_to_bounds(self, held_to_bounds: &'static [&'static str]) -> Self {
        Self { held_to_bounds, ..self }
    }
}

impl Sampled {
    const fn new(make: fn(&Ask, &mut Context) -> io::Result<Made>) -> Self {
        Self { make, shortest_interval: Span::from_ns(0) }
    }

    const fn not_more_often_than(self, shortest_interval: Span) -> Self {
        Self { shortest_interval, ..self }
    }
}

impl Group {
    /// All there are, in the order in which they are installed and sampled. `scrape`, which tells of the others, is last.
    pub const ALL: [Self; 22] = [
        Self::CPU,
        Self::LOAD,
        Self::MEMORY,
        Self::NETWORK,
        Self::RESPONDER,
        Self::QDISC,
        Self::VMSTAT,
        Self::NETSTAT,
        Self::SOCKSTAT,
        Self::SOFTNET,
        Self::DISK,
        Self::PRESSURE,
        Self::SCHEDSTAT,
        Self::STAT,
        Self::HOST,
        Self::AGENT,
        Self::INTERRUPTS,
        Self::SOCKETS,
        Self::FILESYSTEM,
        Self::PROCESSES,
        Self::SENSORS,
        Self::SCRAPE,
    ];

    /// Those that can be computed at a READ.
    pub fn computed() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|group| group.descriptor.computed.is_some())
    }

    /// Those that can be sampled.
    pub fn sampled() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|group| group.descriptor.sampled.is_some())
    }

    /// As configurations name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.descriptor.name
    }

    /// The region's name.
    #[must_use]
    pub const fn region(self) -> &'static str {
        self.descriptor.region
    }

    /// Region of what is sampled of it beside a computed one.
    #[must_use]
    pub fn left_region(self) -> String {
        format!("{}_sampled", self.region())
    }

    /// It is not sampled more often than this: it costs too much, or moves too slowly.
    #[must_use]
    pub fn shortest_interval(self) -> Span {
        self.descriptor.sampled.map_or(Span::from_ns(0), |sampled| sampled.shortest_interval)
    }

    /// The collector's slot in the responder, if it can be computed.
    #[must_use]
    pub fn slot(self) -> Option<u32> {
        self.how_computed().map(|computed| computed.slot)
    }

    /// Why the running kernel keeps nothing of the group, where it is built or started without it. Then
    /// [`install`](crate::collect::install) refuses the group with this reason.
    #[must_use]
    pub fn absence(self) -> Option<String> {
        self.how_computed().and_then(|computed| (computed.absence)())
    }

    fn how_computed(self) -> Option<&'static Computed> {
        self.descriptor.computed.as_ref()
    }

    pub(crate) fn prepare(self, with: &mut Preparing<'_>) -> Result<Prepared, String> {
        match (self.absence(), self.how_computed()) {
            (Some(reason), _) => Err(reason),
            (None, Some(computed)) => (computed.prepare)(with),
            (None, None) => Err("it is never computed".to_owned()),
        }
    }

    /// What there is of it on this host, read once.
    ///
    /// # Errors
    /// As the system has it.
    pub(crate) fn make(self, ask: &Ask, context: &mut Context) -> io::Result<Made> {
        let sampled = self.descriptor.sampled.ok_or(io::ErrorKind::Unsupported)?;
        (sampled.make)(ask, context)
    }

    pub(crate) fn rows(self) -> Option<&'static Rows> {
        self.how_computed().and_then(|computed| computed.rows.as_ref())
    }
}

/// Whether procfs has nothing that a computed metric could be compared with: a check can only say that it is within its
/// bounds ([`crate::collect::Verdict::Bounds`]).
#[must_use]
pub fn is_held_to_bounds(metric: &str) -> bool {
    Group::computed().filter_map(Group::how_computed).any(|computed| computed.held_to_bounds.contains(&metric))
}

impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Group {}

/// As in [`Group::ALL`].
impl Ord for Group {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |group: &Self| Self::ALL.iter().position(|one| one == group);
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for Group {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::sampled::Set;
    use crate::sampled::listed::{Read, Values, listed};
    use crate::sampled::metric::Definition;
    use crate::sampled::tests::{values_of, with_context};

    /// Nothing of a group is elsewhere: who adds a folder and forgets the list is told here.
    #[test]
    fn each_folder_is_a_group_and_each_group_a_folder() {
        let directory = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/groups")).unwrap();
        let folders = directory.map(|entry| entry.unwrap()).filter(|entry| entry.file_type().unwrap().is_dir());
        let folders: BTreeSet<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
        let groups: BTreeSet<String> = Group::ALL.iter().map(|group| group.name().to_owned()).collect();
        assert_eq!(groups, folders);
    }

    /// A group that only this test knows is drafted and sampled: there is nothing of a group beside its descriptor.
    #[test]
    fn a_descriptor_is_all_that_a_group_needs() {
        static VALUE: Definition = Definition::gauge("node_example", "An example.");
        struct Example;
        impl Read for Example {
            fn read(&mut self, values: &mut Values, _: &mut Context) -> io::Result<()> {
                values.put(&VALUE, &[], 42);
                Ok(())
            }
        }
        const EXAMPLE: Group = Group {
            descriptor: &Descriptor {
                name: "example",
                region: "node_example",
                computed: None,
                sampled: Some(Sampled::new(|ask, context| listed(Example, ask, context))),
            },
        };
        let draft = Set::default().draft(EXAMPLE, 1, None).unwrap().unwrap();
        assert_eq!((draft.name(), draft.metrics()), ("node_example", 1));
        let made = with_context(|ask, context| EXAMPLE.make(ask, context)).unwrap();
        assert_eq!(values_of(made), BTreeMap::from([("node_example{}".to_owned(), 42.0)]));
        assert_eq!(
            (EXAMPLE.slot(), EXAMPLE.absence(), EXAMPLE.left_region()),
            (None, None, "node_example_sampled".into())
        );
    }

    #[test]
    fn names_regions_and_slots_are_each_one_group_s() {
        let count = |names: BTreeSet<&str>| assert_eq!(names.len(), Group::ALL.len());
        count(Group::ALL.into_iter().map(Group::name).collect());
        count(Group::ALL.into_iter().map(Group::region).collect());
        let slots: Vec<u32> = Group::computed().filter_map(Group::slot).collect();
        assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), slots.len());
        assert!(Group::ALL.iter().all(|group| group.slot().is_some() || group.descriptor.sampled.is_some()));
        // Operators' collectors have the others.
        assert!(slots.iter().all(|slot| (1..crate::user::SLOTS.start).contains(slot)), "{slots:?}");
    }
}
