// SPDX-License-Identifier: Apache-2.0
//! The kernel responder as the agent keeps it: slabs, table of regions and ledger behind one handle.
//!
//! [`load`] puts programs, pins and attachments right, [`collect`] the kernel's metrics, both in a process of their own.
//! [`upkeep`] has the loader run again when devices change and renews the lease. [`ledger`] is what survives the agent,
//! [`recover`] decides what of it goes on, [`slabs`] has users' memory. Owned by the main thread. Maps are opened once;
//! changing them through their descriptors needs no capability (since 5.19), making a slab needs CAP_BPF, which is in
//! effect for just that.
//!
//! Invariants: a region is in the responder's table before its control entry is there and until it is gone; its ledger record is there from before its memory is given
//! out until its end. Cost: a region 2-3 map updates (a few us), a slab 10 ms.

pub mod child;
pub mod collect;
pub mod ledger;
pub mod load;
pub mod recover;
pub mod roce;
pub mod slabs;
mod slots;
mod sources;
pub mod telemetry;
pub mod upkeep;
pub mod user;
pub mod watch;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlooker_bootstrap::{KERNEL, Responder};
use onlooker_metrics::collect::Twin;
use onlooker_metrics::groups::Group;
use onlooker_metrics::groups::network::DeviceRows;
use onlooker_metrics::procfs::present_cpus;
use onlooker_metrics::scheduler::{self, CPU_BLOCKS, Latency, MOST_CPUS};
use onlooker_region::Schema;
use onlooker_region::block::Identity;
use onlooker_region::limits::{self, BLOCK_WORDS};
use onlooker_region::map::Map;
use onlooker_region::slab::{Range, Ranges};
use onlooker_responder::{Exit, Home, Kind, Ledger, Pinned, Region, Slab};
use onlooker_translator::Translator;
use rustix::thread::CapabilitySet;

use crate::config;
use crate::host::{self, Host};
use crate::served::{Address, Addresses};
use crate::system;

use ledger::{FIRST_USER_SLAB, HEADER, Header, Record, SLABS};
use recover::{Found, OWN_SLAB};
use slabs::{UserSlab, free_slab, map};
use telemetry::{Part, TableState};

/// Slab of the control region.
pub const CONTROL_SLAB: u32 = 0;
/// Slab of tables, the last one of those that users could have. Regions in it do not outlive their agent: a successor finds an owner without a right to it
/// ([`recover`]), takes them out and removes the slab.
pub const TABLES_SLAB: u32 = SLABS - 1;
/// Blocks of the agent's own slab: what every host has, and what the CPUs of this one add (interrupts, above all). Of it only regions are mapped.
#[must_use]
pub fn own_blocks() -> u32 {
    let cpus = present_cpus().unwrap_or(1);
    OWN_BLOCKS + cpus.min(MOST_CPUS).saturating_mul(OWN_BLOCKS_PER_CPU)
}

const OWN_BLOCKS: u32 = 192;
/// A multiple of four, which is a page: interrupts, and how long tasks wait.
const OWN_BLOCKS_PER_CPU: u32 = 8;
const BLOCK_BYTES: u64 = limits::BLOCK_BYTES as u64;

/// Why the kernel responder is not used.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Its loader, or a table of it.
    #[error(transparent)]
    Kernel(#[from] onlooker_responder::Error),
    /// Randomness, or a process that does not start.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something is missing that the loader makes.
    #[error("{0}")]
    Incomplete(&'static str),
}

/// What of an earlier agent goes on.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Its regions.
    pub records: Vec<Record>,
    /// Ranges of users' slabs, by index, that a program may still write to although they are no regions.
    pub rest: Vec<(u32, Range)>,
    /// Users that have a slab, regions or not: descriptors of it may be anywhere, and are the same memory as before.
    pub users: Vec<u32>,
}

/// The responder.
#[derive(Debug)]
pub struct Kernel {
    pinned: Pinned,
    ledger: Ledger,
    own: Slab,
    own_ranges: RefCell<Ranges>,
    header: RefCell<Header>,
    slab_blocks: u32,
    boot_id: [u8; 16],
    unseen_readers: RefCell<Option<Arc<AtomicBool>>>,
    /// Slabs of telemetry tables, which the loader has made.
    telemetry: BTreeSet<u32>,
}

impl Kernel {
    /// Opens what the loader has left and decides what of an earlier agent goes on: that is returned, the rest removed.
    ///
    /// # Errors
    /// Nothing complete is pinned, or not of this version.
    pub fn open(
        config: &config::Kernel,
        host: &Host,
        telemetry: &[TableState],
    ) -> Result<(Self, Recovered), KernelError> {
        let pinned = Pinned::open(&Home::new(&config.bpffs, &config.name)?)?;
        let ledger = pinned.ledger()?.ok_or(KernelError::Incomplete("the responder has no ledger: load it again"))?;
        let own = pinned.slab(OWN_SLAB)?;
        let bytes = u64::from(own.blocks()) * BLOCK_BYTES;
        let boot_id = host.boot_id.0;
        let void = Header { boot_id, control: Address { va: 0, rkey: 0 }, incarnation: 1, slabs: BTreeMap::new() };
        let kernel = Self {
            pinned,
            ledger,
            own,
            own_ranges: RefCell::new(Ranges::new(bytes)),
            header: RefCell::new(void),
            slab_blocks: u32::try_from(config.slab.as_bytes() / BLOCK_BYTES).unwrap_or(u32::MAX),
            boot_id,
            unseen_readers: RefCell::default(),
            telemetry: telemetry.iter().flat_map(TableState::parts).map(|(slab, ..)| slab).collect(),
        };
        let recovered = kernel.recover()?;
        Ok((kernel, recovered))
    }

    fn recover(&self) -> Result<Recovered, KernelError> {
        let blocks = self.ledger.all()?;
        let header = blocks.iter().find(|(number, _)| *number == HEADER).and_then(|(_, block)| Header::decode(block));
        let regions: HashMap<u32, Region> = self.pinned.regions()?.into_iter().collect();
        let valid = header.filter(|header| {
            let control = self.control_region(header.control);
            header.boot_id == self.boot_id && regions.get(&header.control.rkey) == Some(&control)
        });
        let Some(header) = valid else {
            self.begin()?;
            return Ok(Recovered::default());
        };
        let records = blocks.iter().filter(|(number, _)| *number != HEADER);
        let records = records.filter_map(|(number, block)| {
            let record = Record::decode(*number, block);
            if record.is_none() {
                self.ledger.remove(*number);
            }
            record
        });
        let mut slab_bytes = BTreeMap::new();
        for index in self.pinned.slabs()? {
            slab_bytes.insert(index, u64::from(self.pinned.slab(index)?.blocks()) * BLOCK_BYTES);
        }
        let found = Found {
            records: records.collect(),
            regions,
            slabs: &header.slabs,
            slab_bytes: &slab_bytes,
            control_rkey: header.control.rkey,
        };
        let plan = recover::decide(found);
        self.header.replace(header);
        plan.forget.iter().for_each(|number| self.ledger.remove(*number));
        plan.remove.iter().for_each(|rkey| self.remove_region(*rkey));
        for record in plan.keep.iter().filter(|record| record.keep.role == ledger::Role::Own) {
            if let ledger::Source::Slab { range, .. } = record.keep.source {
                self.own_ranges.borrow_mut().take_at(range, 0);
            }
        }
        self.remove_unused_slabs(&plan.keep, &slab_bytes)?;
        let users = self.header.borrow().slabs.keys().copied().collect();
        Ok(Recovered { records: plan.keep, rest: plan.rest, users })
    }

    /// Slabs that nobody has (a kill while one was made or removed), and those without regions that have not the configured length any more. A user's other slabs stay:
    /// whoever has a descriptor has the memory, so that another slab would be as much once more with each start.
    fn remove_unused_slabs(&self, kept: &[Record], slab_bytes: &BTreeMap<u32, u64>) -> Result<(), KernelError> {
        let configured_bytes = u64::from(self.slab_blocks) * BLOCK_BYTES;
        let has_regions = |index: u32| {
            kept.iter().any(|record| matches!(record.keep.source, ledger::Source::Slab { slab, .. } if slab == index))
        };
        let is_used =
            |index: u32| slab_bytes.get(&index).is_some_and(|bytes| *bytes == configured_bytes || has_regions(index));
        self.header.borrow_mut().slabs.retain(|_, slab| is_used(*slab));
        self.put_header()?;
        let owned: Vec<u32> = self.header.borrow().slabs.values().copied().collect();
        for index in slab_bytes.keys().filter(|index| self.may_be_users(**index) && !owned.contains(index)) {
            let _ = self.pinned.remove_slab(*index);
        }
        Ok(())
    }

    /// Begins anew: no regions, no users, another address of the control region.
    ///
    /// # Errors
    /// A table that cannot be changed, no randomness.
    pub fn begin(&self) -> Result<(), KernelError> {
        for (rkey, _) in self.pinned.regions()? {
            self.remove_region(rkey);
        }
        for (number, _) in self.ledger.all()? {
            self.ledger.remove(number);
        }
        for index in self.pinned.slabs()?.into_iter().filter(|index| self.may_be_users(*index)) {
            let _ = self.pinned.remove_slab(index);
        }
        let random = |source| KernelError::System { operation: "get random numbers", source };
        let bytes = u64::from(self.pinned.slab(CONTROL_SLAB)?.blocks()) * BLOCK_BYTES;
        let header = Header {
            boot_id: self.boot_id,
            control: Addresses::default().take(bytes).map_err(random)?,
            incarnation: host::random_generation().map_err(random)?,
            slabs: BTreeMap::new(),
        };
        self.header.replace(header);
        let own_bytes = u64::from(self.own.blocks()) * BLOCK_BYTES;
        self.own_ranges.replace(Ranges::new(own_bytes));
        self.put_header()
    }

    fn may_be_users(&self, slab: u32) -> bool {
        slab >= FIRST_USER_SLAB && !self.telemetry.contains(&slab)
    }

    fn put_header(&self) -> Result<(), KernelError> {
        Ok(self.ledger.put(HEADER, &self.header.borrow().encode(host::boot_time_ns()))?)
    }

    fn control_region(&self, address: Address) -> Region {
        let blocks = self.pinned.slab(CONTROL_SLAB).map_or(0, |slab| slab.blocks());
        Region { va: address.va, blocks, kind: Kind::Memory { slab: CONTROL_SLAB, first_block: 0 } }
    }

    /// The control region's memory, all of it.
    ///
    /// # Errors
    /// As mmap has it.
    pub fn control_memory(&self) -> Result<Map, KernelError> {
        let slab = self.pinned.slab(CONTROL_SLAB)?;
        map(&slab, Range { offset: 0, bytes: u64::from(slab.blocks()) * BLOCK_BYTES })
    }

    /// Its address and incarnation.
    #[must_use]
    pub fn control_place(&self) -> (Address, u32) {
        let header = self.header.borrow();
        (header.control, header.incarnation)
    }

    /// Makes the control region readable.
    ///
    /// # Errors
    /// The table cannot be changed.
    pub fn add_control(&self) -> Result<(), KernelError> {
        let address = self.control_place().0;
        Ok(self.pinned.add_region(address.rkey, &self.control_region(address))?)
    }

    /// The control region has another address from now on, which is readable at once. The old one is the caller's to end.
    ///
    /// # Errors
    /// A table that cannot be changed.
    pub fn move_control(&self, address: Address) -> Result<(), KernelError> {
        self.pinned.add_region(address.rkey, &self.control_region(address))?;
        self.header.borrow_mut().control = address;
        self.put_header()
    }

    /// What readers are told of it.
    #[must_use]
    pub fn entry(&self) -> Responder {
        let config = self.pinned.config();
        Responder {
            kind: KERNEL.into(),
            port: config.port,
            max_read_bytes: Some(config.max_read_bytes),
            roce: config.roce,
            ..Responder::default()
        }
    }

    /// Answers for so long from now on.
    ///
    /// # Errors
    /// The table cannot be changed.
    pub fn renew(&self, lease: Duration) -> Result<(), KernelError> {
        self.pinned.set_lease(lease)?;
        Ok(())
    }

    /// Makes a slab for a user. `user_of`: whom a uid counts as.
    ///
    /// # Errors
    /// No place, or none that is left for this user; no memory, no right to.
    pub fn create_slab(&self, uid: u32, user_of: impl Fn(u32) -> u32) -> Result<UserSlab, KernelError> {
        let index = free_slab(&self.header.borrow().slabs, &self.telemetry, uid, user_of)?;
        let slab = system::with_capabilities(CapabilitySet::BPF, || self.pinned.create_slab(index, self.slab_blocks))?;
        // From here on a kill leaves an owner; before, a slab of nobody, which the next start removes.
        self.header.borrow_mut().slabs.insert(uid, index);
        self.put_header()?;
        UserSlab::of(slab)
    }

    /// A slab by its place in the responder's table, to be registered elsewhere, too.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_slab(&self, index: u32) -> Result<(Slab, u64), KernelError> {
        let slab = system::with_capabilities(CapabilitySet::BPF, || self.pinned.slab(index))?;
        let bytes = u64::from(slab.blocks()) * BLOCK_BYTES;
        Ok((slab, bytes))
    }

    /// The slab that a user has, if it is there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn slab(&self, uid: u32) -> Result<Option<UserSlab>, KernelError> {
        let index = self.header.borrow().slabs.get(&uid).copied();
        index.map(|index| UserSlab::of(self.pinned.slab(index)?)).transpose()
    }

    /// Makes the slab of tables, of at least so many bytes; one that an earlier agent has left ends.
    ///
    /// # Errors
    /// No memory, no right to.
    pub fn create_tables(&self, bytes: u64) -> Result<Slab, KernelError> {
        if self.pinned.slabs()?.contains(&TABLES_SLAB) {
            self.pinned.remove_slab(TABLES_SLAB)?;
        }
        let blocks = u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        Ok(system::with_capabilities(CapabilitySet::BPF, || self.pinned.create_slab(TABLES_SLAB, blocks))?)
    }

    /// A range of it.
    ///
    /// # Errors
    /// As mmap has it.
    pub fn map_tables(&self, slab: &Slab, range: Range) -> Result<Map, KernelError> {
        map(slab, range)
    }

    /// Memory for a region of the agent's own.
    ///
    /// # Errors
    /// There is no room, or it cannot be mapped.
    pub fn own_memory(&self, bytes: u64) -> Result<(Range, Map), KernelError> {
        let range = self.own_ranges.borrow_mut().take(bytes, host::boot_time_ns());
        let range = range.ok_or(KernelError::Incomplete("the agent's own slab is full"))?;
        let memory = map(&self.own, range)?;
        memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Ok((range, memory))
    }

    /// Memory of a region of the agent's own that goes on.
    ///
    /// # Errors
    /// It cannot be mapped.
    pub fn own_range(&self, range: Range) -> Result<Map, KernelError> {
        map(&self.own, range)
    }

    /// A range of the agent's own slab whose region has ended. Free at once: nobody else writes there, and readers tell another region's blocks by their identity.
    pub fn give_own(&self, range: Range) {
        self.own_ranges.borrow_mut().give(range, 0);
    }

    /// Says whether there may be readers that no counter tells of.
    pub fn set_unseen_readers(&self, readers: Arc<AtomicBool>) {
        self.unseen_readers.replace(Some(readers));
    }

    /// A number that moves when somebody has read: READs answered since the responder was loaded. While a device answers others it always moves.
    ///
    /// # Errors
    /// The counters cannot be read.
    pub fn answered(&self) -> Result<u64, KernelError> {
        let answered = self.pinned.counters()?.get(Exit::Answered);
        let unseen = self.unseen_readers.borrow().as_ref().is_some_and(|readers| readers.load(Ordering::Relaxed));
        Ok(if unseen { answered.wrapping_add(host::boot_time_ns()) } else { answered })
    }

    /// Which network devices have a computed row, as its loader has left it.
    ///
    /// # Errors
    /// Nothing is pinned, or it cannot be opened.
    pub fn device_rows(&self) -> Result<DeviceRows, KernelError> {
        Ok(system::with_capabilities(CapabilitySet::BPF, || DeviceRows::open(self.pinned.home()))?)
    }

    /// Has the kernel write a group's twin, which its loader has pinned, into a range of the agent's own slab, so often.
    ///
    /// # Errors
    /// Nothing is pinned, or the kernel refuses.
    pub fn start_twin(
        &self,
        region: &str,
        range: Range,
        schema: &Schema,
        every: (u64, u64),
    ) -> Result<(), KernelError> {
        let (interval_ns, identity) = every;
        let first_block = u32::try_from(range.offset / BLOCK_BYTES).unwrap_or(u32::MAX);
        let place = (first_block, self.own.blocks());
        if region == scheduler::REGION {
            return self.start_latency(range, schema, place, identity);
        }
        let group = Group::computed().find(|group| group.region() == region);
        let group = group.ok_or(KernelError::Incomplete("no group of this name is published"))?;
        let start = || {
            let twin = Twin::open(self.pinned.home(), group)?;
            twin.start(Duration::from_nanos(interval_ns), schema.blocks(), place, identity)
        };
        Ok(system::with_capabilities(CapabilitySet::BPF, start)?)
    }

    /// Has the programs on the scheduler's tracepoints count there.
    fn start_latency(
        &self,
        range: Range,
        schema: &Schema,
        place: (u32, u32),
        identity: u64,
    ) -> Result<(), KernelError> {
        let first = Identity::from_word(identity).ok_or(KernelError::Incomplete("a region has no identity"))?;
        let words = schema.blocks() as usize * BLOCK_WORDS;
        let memory = map(&self.own, range)?;
        scheduler::identify(&memory.words()[..words.min(memory.words().len())], first);
        let start = || Latency::open(self.pinned.home())?.start(schema.blocks() / CPU_BLOCKS, place);
        Ok(system::with_capabilities(CapabilitySet::BPF, start)?)
    }

    /// Makes a part of a telemetry table readable.
    ///
    /// # Errors
    /// The table is full.
    pub fn add_part(&self, address: Address, (slab, first_block, blocks): Part) -> Result<(), KernelError> {
        let region = Region { va: address.va, blocks, kind: Kind::Memory { slab, first_block } };
        Ok(self.pinned.add_region(address.rkey, &region)?)
    }

    /// The translator, if there is one.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn translator(&self) -> Result<Option<Translator>, KernelError> {
        Ok(system::with_capabilities(CapabilitySet::BPF, || Translator::open(self.pinned.home()))?)
    }

    /// Makes a region readable, as its record has it.
    ///
    /// # Errors
    /// The table is full.
    pub fn add_region(&self, record: &Record) -> Result<(), KernelError> {
        Ok(self.pinned.add_region(record.entry.rkey, &recover::expected(record))?)
    }

    /// Ends it.
    pub fn remove_region(&self, rkey: u32) {
        // ENOENT where it is gone, which is what is wanted.
        let _ = self.pinned.remove_region(rkey);
    }

    /// Writes a record.
    ///
    /// # Errors
    /// The ledger is full.
    pub fn put(&self, record: &Record, now_ns: u64) -> Result<(), KernelError> {
        let bytes = record.encode(now_ns).ok_or(KernelError::Incomplete("a region's names are too long"))?;
        Ok(self.ledger.put(record.number(), &bytes)?)
    }

    /// Removes a record.
    pub fn forget(&self, number: u32) {
        self.ledger.remove(number);
    }
}
