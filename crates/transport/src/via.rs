// SPDX-License-Identifier: Apache-2.0
//! Which of a host's responders answers a reader's READs. Regions say in the directory who serves them (docs/format/control.md).

use onlooker_bootstrap::{KERNEL, TCP, VERBS};
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS};
use std::fmt;

/// A kind of responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Via {
    /// The host's RDMA device, by this machine's.
    Verbs,
    /// The kernel responder, by a soft requester.
    Kernel,
    /// The agent, over TCP.
    Tcp,
}

impl Via {
    /// All, the cheapest for the host first.
    pub const ALL: [Self; 3] = [Self::Verbs, Self::Kernel, Self::Tcp];

    /// Its kind in a bootstrap answer.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Verbs => VERBS,
            Self::Kernel => KERNEL,
            Self::Tcp => TCP,
        }
    }

    /// Its bit in directory entries.
    #[must_use]
    pub const fn bit(self) -> u32 {
        match self {
            Self::Verbs => RESPONDER_VERBS,
            Self::Kernel => RESPONDER_KERNEL,
            Self::Tcp => RESPONDER_TCP,
        }
    }

    /// Whether it has a port.
    #[must_use]
    pub const fn has_port(self) -> bool {
        !matches!(self, Self::Verbs)
    }

    /// Whether its only refusal is silence: what is gone ends as a time-out there, not as a refusal.
    #[must_use]
    pub const fn is_silent(self) -> bool {
        matches!(self, Self::Kernel)
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind())
    }
}
