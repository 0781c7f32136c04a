// SPDX-License-Identifier: Apache-2.0
//! A group's blocks for a process on the machine itself: the same function as for READs, by a system call. What a responder that is a process serves as computed.

use libbpf_rs::Object;
use onlooker_responder::error::Result;

use super::InstalledGroup;
use super::object::{self, Purpose};

/// Computes blocks in the calling thread. Cost: three system calls and the collector's own.
#[derive(Debug)]
pub struct Local {
    object: Object,
}

impl InstalledGroup {
    /// The group for this process.
    ///
    /// # Errors
    /// [`crate::Error::Load`], [`crate::Error::Bpf`].
    pub fn local(&self) -> Result<Local> {
        Ok(Local { object: self.image.load(Purpose::Check)? })
    }
}

impl Local {
    /// The 124 payload words of a block as they are now; `None` where it has nothing to say.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`].
    pub fn payload(&self, block: u32) -> Result<Option<Vec<u64>>> {
        object::compute(&self.object, block)
    }
}
