// SPDX-License-Identifier: Apache-2.0
//! Numbers of the agent's own regions: who takes one announces a region with it, and gives it back when that has ended.

use onlooker_local::registration::{Labels, Refusal};
use onlooker_region::block::Identity;

use crate::directory::{Backing, Directory, SchemaText};
use crate::error::{AgentError, system_error};
use crate::facts::{Facts, Peer, Process};
use crate::host;
use crate::kernel::ledger::Source;
use crate::registration::FIRST_REGION_ID;

/// Ids of the agent's own regions that are taken.
#[derive(Debug, Default)]
pub struct Ids(Vec<u32>);

impl Ids {
    /// With these taken.
    #[must_use]
    pub fn taken(ids: impl IntoIterator<Item = u32>) -> Self {
        Self(ids.into_iter().collect())
    }

    /// An identity for a new region.
    ///
    /// # Errors
    /// No randomness, no id.
    pub fn take(&mut self) -> Result<Identity, AgentError> {
        let generation = host::random_generation().map_err(system_error("get random numbers"))?;
        let full = || system_error("number the agent's own regions")(std::io::ErrorKind::OutOfMemory.into());
        let id = (1..FIRST_REGION_ID).find(|id| !self.0.contains(id)).ok_or_else(full)?;
        self.0.push(id);
        Ok(Identity::first(id, generation))
    }

    /// Gives an id back whose region was not published.
    pub fn give(&mut self, id: u32) {
        self.0.retain(|used| *used != id);
    }

    /// Ends a region of the agent's own, with its memory.
    pub fn end(&mut self, directory: &mut Directory, id: u32) {
        let source = directory.entry(id).and_then(|(_, source)| source);
        directory.remove(id, host::boot_time_ns());
        self.ended(directory, id, source);
    }

    fn ended(&mut self, directory: &Directory, id: u32, source: Option<Source>) {
        if let (Some(Source::Slab { range, .. }), Some(kernel)) = (source, directory.kernel()) {
            kernel.give_own(range);
        }
        self.give(id);
    }

    /// Announces a region of the agent's own, in the place of `old` if there is one, which ends.
    ///
    /// # Errors
    /// As [`Directory::replace`].
    pub fn publish(
        &mut self,
        directory: &mut Directory,
        old: Option<u32>,
        name: &str,
        text: &SchemaText,
        identity: Identity,
        backing: Backing,
    ) -> Result<(), Refusal> {
        let now_ns = host::boot_time_ns();
        let process = Process { pid: std::process::id(), start_ticks: 0 };
        let facts = Facts {
            id: identity.region,
            generation: identity.generation,
            name: name.to_owned(),
            instance: String::new(),
            labels: Labels::new(),
            schema: text.class(),
            owner: Peer { process, uid: rustix::process::geteuid().as_raw(), image: String::new() },
            created_ns: now_ns,
        };
        let Some(old) = old else { return directory.publish(&facts, text, backing, now_ns) };
        let source = directory.entry(old).and_then(|(_, source)| source);
        directory.replace(old, &facts, text, backing, now_ns)?;
        self.ended(directory, old, source);
        Ok(())
    }
}
