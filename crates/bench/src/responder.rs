// SPDX-License-Identifier: Apache-2.0
//! The kernel responder in the watched namespace, over memory with known words.

use crate::world::{ASKING, ASKING_XDP, BRIDGE_XDP_DEVICE, WATCHED_DEVICE, WATCHED_XDP_DEVICE, World};
use anyhow::{Context, Result};
use libbpf_rs::{MapCore as _, MapFlags};
use onlooker_metrics::collect::{InstalledGroup, Options, install};
use onlooker_region::{Block, Identity};
use onlooker_responder::{Attachment, Config, Device, Exit, Home, Hook, Kind, Pinned, Prefix, Region};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// UDP port of the responder.
pub(crate) const PORT: u16 = 4792;
pub(crate) const RKEY: u32 = 0x0b5e_55ed;
pub(crate) const VA: u64 = 0x4000_0000;
pub(crate) const BLOCKS: u32 = 64;

/// Blocks at [`VA`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readable {
    pub(crate) rkey: u32,
    pub(crate) blocks: u32,
}

/// Loaded and pinned in the world's own BPF file system; attached or not.
#[derive(Debug)]
pub(crate) struct KernelResponder<'a> {
    pinned: Pinned,
    world: &'a World,
    hook: Hook,
    attachment: Option<Attachment>,
    /// XDP on veth needs a program on the other end as well.
    peer: Option<Pinned>,
}

impl<'a> KernelResponder<'a> {
    /// On the watched devices: tc on the direct link, XDP on the one behind the bridge.
    pub(crate) fn load(world: &'a World, hook: Hook) -> Result<Self> {
        Self::load_with(world, hook, &Config::new(PORT))
    }

    /// Without budgets.
    pub(crate) fn unlimited() -> Config {
        Config { source_rate: None, cpu_rate: None, ..Config::new(PORT) }
    }

    /// The same, as configured.
    pub(crate) fn load_with(world: &'a World, hook: Hook, config: &Config) -> Result<Self> {
        let pinned = Pinned::load(config, &home(world, &format!("bench-{hook}"))?)?;
        let memory = pinned.create_slab(0, BLOCKS)?.map(0, BLOCKS, true)?;
        for (index, word) in (0u64..).zip(memory.words()) {
            word.store(known_word(index), Ordering::Relaxed);
        }
        let region = Region { va: VA, blocks: BLOCKS, kind: Kind::Memory { slab: 0, first_block: 0 } };
        pinned.add_region(RKEY, &region)?;
        for source in [ASKING, ASKING_XDP] {
            pinned.allow(Prefix::host(source.parse()?))?;
        }
        pinned.set_lease(Duration::from_secs(24 * 3600))?;
        let peer = match hook {
            Hook::Tc => None,
            Hook::Xdp => Some(pass_everything(world)?),
        };
        Ok(Self { pinned, world, hook, attachment: None, peer })
    }

    pub(crate) fn attach(&mut self) -> Result<()> {
        let (pinned, hook) = (&self.pinned, self.hook);
        let device = if hook == Hook::Tc { WATCHED_DEVICE } else { WATCHED_XDP_DEVICE };
        let attach = || Ok(pinned.attach(&Device::named(device)?, hook)?);
        self.attachment = Some(self.world.on_watched(attach)?);
        Ok(())
    }

    /// To a further device of the watched namespace, for as long as what is loaded; for READs from `source`.
    pub(crate) fn attach_also(&self, device: &str, source: &str) -> Result<()> {
        self.pinned.allow(Prefix::host(source.parse()?))?;
        let (pinned, hook) = (&self.pinned, self.hook);
        self.world.on_watched(|| Ok(pinned.attach(&Device::named(device)?, hook)?))?;
        Ok(())
    }

    pub(crate) fn detach(&mut self) -> Result<()> {
        let Some(attachment) = self.attachment.take() else { return Ok(()) };
        let pinned = &self.pinned;
        self.world.on_watched(|| Ok(pinned.detach(&attachment)?))
    }

    /// Installs the collectors of all kernel groups that can be had here; returns a READ target for each, with its name
    /// and blocks.
    pub(crate) fn install_collectors(&self) -> Result<Vec<(&'static str, Readable)>> {
        let groups = self.install_groups(&Options::default())?;
        Ok(groups.into_iter().map(|(group, rkey)| (group.name, Readable { rkey, blocks: group.blocks })).collect())
    }

    /// Installs collectors of those groups that can be had here; each with the rkey of its region at [`VA`], whose
    /// number is the rkey's distance from [`RKEY`].
    pub(crate) fn install_groups(&self, options: &Options) -> Result<Vec<(InstalledGroup, u32)>> {
        let installed = install(&self.pinned, options)?;
        for (group, reason) in &installed.refused {
            println!("kernel group {group} cannot be had here: {reason}");
        }
        let mut targets = Vec::new();
        for (index, group) in (1u32..).zip(installed.groups) {
            let rkey = RKEY + index;
            let identity = Identity::first(index, 1).word();
            let kind = Kind::Computed { collector: group.slot, identity };
            self.pinned.add_region(rkey, &Region { va: VA, blocks: group.blocks, kind })?;
            targets.push((group, rkey));
        }
        Ok(targets)
    }

    /// What is loaded.
    pub(crate) fn pinned(&self) -> &Pinned {
        &self.pinned
    }

    /// How packets left it, by exit, for those that occurred.
    pub(crate) fn exits(&self) -> Result<String> {
        let counters = self.pinned.counters()?;
        let some = counters.iter().filter(|(_, count)| *count > 0).map(|(exit, count)| format!("{exit:?} {count}"));
        Ok(some.collect::<Vec<_>>().join(", "))
    }

    /// READs answered so far, by processor.
    pub(crate) fn answered_by_core(&self) -> Result<Vec<u64>> {
        let map = self.pinned.map("counters").context("no counters")?;
        let values = map.lookup_percpu(&(Exit::Answered as u32).to_le_bytes(), MapFlags::ANY)?.unwrap_or_default();
        Ok(values.into_iter().filter_map(|value| value.try_into().ok().map(u64::from_le_bytes)).collect())
    }
}

impl Drop for KernelResponder<'_> {
    fn drop(&mut self) {
        // The file system that has the pins ends with this process; this makes the device free before.
        let _ = self.detach();
        let _ = self.pinned.home().purge();
        if let Some(peer) = &self.peer {
            let _ = peer.home().purge();
        }
    }
}

fn home(world: &World, name: &str) -> Result<Home> {
    Ok(Home::new(world.bpffs(), name)?)
}

/// A responder for no address passes every packet on.
fn pass_everything(world: &World) -> Result<Pinned> {
    let pinned = Pinned::load(&Config::new(PORT), &home(world, "bench-pass")?)?;
    world.on_bridge(|| Ok(pinned.attach(&Device::named(BRIDGE_XDP_DEVICE)?, Hook::Xdp)?))?;
    pinned.set_own_addresses(&[])?;
    Ok(pinned)
}

/// What stands at word `index` of the memory.
pub(crate) fn known_word(index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether a block is block `index` of the memory, by its first and last words.
pub(crate) fn is_known_block(block: &Block, index: u64) -> bool {
    block.0[0] == known_word(index * 128) && block.0[127] == known_word(index * 128 + 127)
}
