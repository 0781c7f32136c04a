// SPDX-License-Identifier: Apache-2.0
//! The loaded responder and its tables. All methods take `&self`: the state is in the kernel's maps, and one map operation is atomic.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ProgramHandle};

use crate::clock::boot_time_ns;
use crate::config::Config;
use crate::counters::Counters;
use crate::error::{CHECK_KERNEL_LOG, Error, Result, bpf};
use crate::intf::{Exit, FINISH_SLOT};
use crate::log::with_log;
use crate::program::Program;
use crate::region::Region;
use crate::skeleton::{ResponderSkelBuilder, types};
use crate::slab::Slab;
use crate::source::{self, Prefix, address_bytes};
use crate::tables::crc_tables;

/// The one list of the responder's maps.
macro_rules! maps {
    ($($name:ident),*) => {
        /// Names of the responder's maps, of which objects that include its headers declare some.
        pub const MAPS: &[&str] = &[$(stringify!($name)),*];

        /// The maps of `bpf/maps.h` and `bpf/responder.h`.
        #[derive(Debug)]
        pub(crate) struct Maps {
            $(pub(crate) $name: MapHandle),*
        }

        impl Maps {
            /// Each by its name there, which is also that of its pin.
            pub(crate) fn all(&self) -> [(&'static str, &MapHandle); MAPS.len()] {
                [$((stringify!($name), &self.$name)),*]
            }

            /// Makes each with `get`, which is given its name.
            pub(crate) fn try_from_names(mut get: impl FnMut(&'static str) -> Result<MapHandle>) -> Result<Self> {
                Ok(Self { $($name: get(stringify!($name))?),* })
            }
        }
    };
}
maps!(
    slabs,
    regions,
    own_addresses,
    sources,
    rate,
    cpu_rate,
    lease,
    counters,
    scratch,
    collectors_tc,
    collectors_xdp,
    next_tc,
    next_xdp
);

/// The programs of `bpf/responder.bpf.c`.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) tc: Program,
    pub(crate) xdp: Program,
    pub(crate) finish_tc: Program,
    pub(crate) finish_xdp: Program,
}

impl Programs {
    /// Each by the name of its pin.
    pub(crate) fn all(&self) -> [(&'static str, &Program); 4] {
        [("tc", &self.tc), ("xdp", &self.xdp), ("finish_tc", &self.finish_tc), ("finish_xdp", &self.finish_xdp)]
    }
}

/// A loaded responder. Without a [`crate::Home`] it ends with this value; it answers nobody until it has addresses, sources, a lease and a device.
#[derive(Debug)]
pub struct Responder {
    pub(crate) config: Config,
    pub(crate) maps: Maps,
    pub(crate) programs: Programs,
}

impl Responder {
    /// Loads programs and maps.
    ///
    /// # Errors
    /// [`Error::Limit`] for the configuration, [`Error::Load`] with the verifier's last words, [`Error::Bpf`].
    pub fn load(config: &Config) -> Result<Self> {
        let (maps, programs) = Self::load_apart(config, None)?;
        let responder = Self { config: *config, maps, programs };
        responder.put_program(FINISH_SLOT, &responder.programs.finish_tc, &responder.programs.finish_xdp)?;
        Ok(responder)
    }

    /// Loads programs on the maps of an earlier responder, or on maps of their own. They take part in nothing yet.
    pub(crate) fn load_apart(config: &Config, earlier: Option<&Maps>) -> Result<(Maps, Programs)> {
        config.check()?;
        let (result, log) = with_log(|| load_programs(config, earlier));
        result.map_err(|source| Error::Load { source, log })
    }

    /// Whether maps are as this crate's programs declare them: type, sizes, flags. What differs, if not.
    pub(crate) fn unlike_ours(maps: &Maps) -> Result<Option<String>> {
        let mut object = MaybeUninit::uninit();
        let open = ResponderSkelBuilder::default().open(&mut object);
        let mut open = open.map_err(|source| Error::Load { source, log: String::new() })?;
        for ours in open.open_object_mut().maps_mut() {
            let name = ours.name().to_string_lossy().into_owned();
            let Some((name, theirs)) = maps.all().into_iter().find(|(known, _)| *known == name) else { continue };
            let expected = (ours.map_type(), ours.key_size(), ours.value_size(), ours.max_entries());
            let found = (theirs.map_type(), theirs.key_size(), theirs.value_size(), theirs.max_entries());
            if expected != found {
                return Ok(Some(format!("map {name} is {found:?} (type, key, value, entries), not {expected:?}")));
            }
        }
        Ok(None)
    }

    /// As loaded.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The program for tc hooks.
    #[must_use]
    pub fn tc(&self) -> &Program {
        &self.programs.tc
    }

    /// The program for XDP hooks.
    #[must_use]
    pub fn xdp(&self) -> &Program {
        &self.programs.xdp
    }

    /// One of its maps, by its name in `bpf/`.
    #[must_use]
    pub fn map(&self, name: &str) -> Option<&MapHandle> {
        self.maps.all().into_iter().find(|(known, _)| *known == name).map(|(_, map)| map)
    }

    /// All programs, with their names.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, &Program)> {
        self.programs.all().into_iter()
    }

    /// Makes a slab of `blocks` blocks (a multiple of 4) and puts it into place `index` of the table. 10 ms: the kernel waits for readers of the table.
    /// Regions that name a place whose slab was replaced read the new one: remove them first.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Bpf`].
    pub fn create_slab(&self, index: u32, blocks: u32) -> Result<Slab> {
        let slab = Slab::create(index, blocks)?;
        self.put_slab(&slab)?;
        Ok(slab)
    }

    pub(crate) fn put_slab(&self, slab: &Slab) -> Result<()> {
        use std::os::fd::AsRawFd as _;
        let fd = slab.as_fd().as_raw_fd();
        self.maps.slabs.update(&slab.index().to_le_bytes(), &fd.to_le_bytes(), MapFlags::ANY).map_err(bpf(
            "inserting",
            format!("slab {}", slab.index()),
            CHECK_KERNEL_LOG,
        ))
    }

    /// Whether a slab is in its place in the table.
    pub(crate) fn has_slab(&self, slab: &Slab) -> Result<bool> {
        let there = lookup(&self.maps.slabs, "slabs", &slab.index().to_le_bytes())?;
        Ok(there.and_then(|id| id.try_into().ok()).map(u32::from_le_bytes) == Some(slab.id()?))
    }

    /// Takes a slab out of the table. Its memory stays as long as anybody has it mapped.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOENT where there is none).
    pub fn remove_slab(&self, index: u32) -> Result<()> {
        let advice = "no slab is there";
        self.maps.slabs.delete(&index.to_le_bytes()).map_err(bpf("removing", format!("slab {index}"), advice))
    }

    /// Registers a region under `rkey`, replacing the one there.
    ///
    /// # Errors
    /// [`Error::Limit`] for impossible regions, [`Error::Bpf`] (E2BIG at 65,536 regions).
    pub fn add_region(&self, rkey: u32, region: &Region) -> Result<()> {
        region.check()?;
        let advice = "at most 65,536 regions; remove some";
        self.maps.regions.update(&rkey.to_le_bytes(), &region.to_bytes(), MapFlags::ANY).map_err(bpf(
            "registering",
            format!("region {rkey:#x}"),
            advice,
        ))
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOENT where there is none).
    pub fn remove_region(&self, rkey: u32) -> Result<()> {
        let advice = "no such region";
        self.maps.regions.delete(&rkey.to_le_bytes()).map_err(bpf("removing", format!("region {rkey:#x}"), advice))
    }

    /// All registrations, in no order.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn regions(&self) -> Result<Vec<(u32, Region)>> {
        let mut regions = Vec::new();
        for key in self.maps.regions.keys() {
            let value = lookup(&self.maps.regions, "regions", &key)?;
            if let (Ok(key), Some(region)) = (key.try_into(), value.as_deref().and_then(Region::from_bytes)) {
                regions.push((u32::from_le_bytes(key), region));
            }
        }
        Ok(regions)
    }

    /// Answers from now on for `time`; zero ends it now. Returns the CLOCK_BOOTTIME instant of its end, ns.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn set_lease(&self, time: Duration) -> Result<u64> {
        let until_ns = boot_time_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.maps.lease.update(&0u32.to_le_bytes(), &until_ns.to_le_bytes(), MapFlags::ANY).map_err(bpf(
            "setting",
            "the lease",
            CHECK_KERNEL_LOG,
        ))?;
        Ok(until_ns)
    }

    /// When the lease ends or ended: CLOCK_BOOTTIME ns.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn lease_until_ns(&self) -> Result<u64> {
        let value = lookup(&self.maps.lease, "lease", &0u32.to_le_bytes())?.unwrap_or_default();
        Ok(value.try_into().map_or(0, u64::from_le_bytes))
    }

    /// Lets a range of addresses ask. `::/0` includes IPv4 (its addresses are mapped below it); `0.0.0.0/0` is IPv4 alone.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOSPC at 1024 prefixes).
    pub fn allow(&self, prefix: Prefix) -> Result<()> {
        source::allow(&self.maps.sources, prefix)
    }

    /// Takes a range back, exactly as it was given.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOENT where it was not allowed).
    pub fn disallow(&self, prefix: Prefix) -> Result<()> {
        source::disallow(&self.maps.sources, prefix)
    }

    /// Lets exactly these ranges ask.
    ///
    /// # Errors
    /// [`Error::Bpf`] (ENOSPC at 1024 prefixes).
    pub fn set_sources(&self, wanted: &[Prefix]) -> Result<()> {
        source::set(&self.maps.sources, wanted)
    }

    /// The ranges that may ask.
    #[must_use]
    pub fn allowed(&self) -> Vec<Prefix> {
        source::all(&self.maps.sources)
    }

    /// Answers for exactly these destination addresses from now on: see [`crate::Device::addresses`].
    ///
    /// # Errors
    /// [`Error::Bpf`] (E2BIG at 256 addresses).
    pub fn set_own_addresses(&self, addresses: &[IpAddr]) -> Result<()> {
        let wanted: Vec<[u8; 16]> = addresses.iter().map(|&address| address_bytes(address)).collect();
        for key in &wanted {
            self.maps.own_addresses.update(key, &1u32.to_le_bytes(), MapFlags::ANY).map_err(bpf(
                "adding",
                "own addresses",
                "at most 256 addresses",
            ))?;
        }
        for key in self.maps.own_addresses.keys().filter(|key| !wanted.iter().any(|wanted| wanted == key.as_slice())) {
            self.maps.own_addresses.delete(&key).map_err(bpf("removing", "own addresses", CHECK_KERNEL_LOG))?;
        }
        Ok(())
    }

    /// Sums of the counters.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn counters(&self) -> Result<Counters> {
        let mut exits = [0; Exit::COUNT];
        for (index, sum) in (0u32..).zip(&mut exits) {
            let values = self.maps.counters.lookup_percpu(&index.to_le_bytes(), MapFlags::ANY).map_err(bpf(
                "reading",
                "counters",
                CHECK_KERNEL_LOG,
            ))?;
            *sum = values
                .unwrap_or_default()
                .into_iter()
                .filter_map(|value| value.try_into().ok().map(u64::from_le_bytes))
                .fold(0, u64::wrapping_add);
        }
        Ok(Counters { exits })
    }
}

fn lookup(map: &MapHandle, name: &'static str, key: &[u8]) -> Result<Option<Vec<u8>>> {
    map.lookup(key, MapFlags::ANY).map_err(bpf("reading", name, CHECK_KERNEL_LOG))
}

fn load_programs(config: &Config, earlier: Option<&Maps>) -> libbpf_rs::Result<(Maps, Programs)> {
    let mut object = MaybeUninit::uninit();
    let mut open = ResponderSkelBuilder::default().open(&mut object)?;
    let constants = open.maps.rodata_data.as_mut().ok_or_else(no_constants)?;
    let tables = crc_tables();
    constants.crc_tables = tables.slices;
    constants.crc_shift_guarded = tables.shift_guarded;
    constants.config = constants_of(config);
    for mut map in open.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        // `.rodata` is each responder's own.
        let known = earlier.and_then(|maps| maps.all().into_iter().find(|(known, _)| *known == name));
        if let Some((_, handle)) = known {
            map.reuse_fd(handle.as_fd())?;
        }
    }
    let skeleton = open.load()?;
    let maps = Maps {
        slabs: MapHandle::try_from(&*skeleton.maps.slabs)?,
        regions: MapHandle::try_from(&*skeleton.maps.regions)?,
        own_addresses: MapHandle::try_from(&*skeleton.maps.own_addresses)?,
        sources: MapHandle::try_from(&*skeleton.maps.sources)?,
        rate: MapHandle::try_from(&*skeleton.maps.rate)?,
        cpu_rate: MapHandle::try_from(&*skeleton.maps.cpu_rate)?,
        lease: MapHandle::try_from(&*skeleton.maps.lease)?,
        counters: MapHandle::try_from(&*skeleton.maps.counters)?,
        scratch: MapHandle::try_from(&*skeleton.maps.scratch)?,
        collectors_tc: MapHandle::try_from(&*skeleton.maps.collectors_tc)?,
        collectors_xdp: MapHandle::try_from(&*skeleton.maps.collectors_xdp)?,
        next_tc: MapHandle::try_from(&*skeleton.maps.next_tc)?,
        next_xdp: MapHandle::try_from(&*skeleton.maps.next_xdp)?,
    };
    let programs = Programs {
        tc: Program::new(ProgramHandle::try_from(&skeleton.progs.onlooker_tc)?),
        xdp: Program::new(ProgramHandle::try_from(&skeleton.progs.onlooker_xdp)?),
        finish_tc: Program::new(ProgramHandle::try_from(&skeleton.progs.onlooker_finish_tc)?),
        finish_xdp: Program::new(ProgramHandle::try_from(&skeleton.progs.onlooker_finish_xdp)?),
    };
    Ok((maps, programs))
}

fn no_constants() -> libbpf_rs::Error {
    libbpf_rs::Error::from(std::io::Error::new(std::io::ErrorKind::InvalidData, "the BPF object has no .rodata"))
}

/// The configuration as the skeleton has it. Its fields are those of [`Config::to_bytes`], which `intf` asserts.
fn constants_of(config: &Config) -> types::onlooker_config {
    let bytes = config.to_bytes();
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
    types::onlooker_config {
        source_interval_ns: word(0),
        source_burst_ns: word(8),
        cpu_interval_ns: word(16),
        cpu_burst_ns: word(24),
        max_read_bytes: config.max_read_bytes,
        port: config.port,
        dscp: config.dscp,
        skip_icrc: bytes[39],
        roce: bytes[40],
        reserved: [0; 7],
    }
}
