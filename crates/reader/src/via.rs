// SPDX-License-Identifier: Apache-2.0
//! Who sends a reader's READs, and which of a host's responders answers them. Regions say in the directory who serves them (docs/format/control.md).

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

/// A kind of requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// This machine's RDMA device.
    Verbs,
    /// This process, which makes the packets itself.
    Soft,
    /// This process, over a TCP stream.
    Tcp,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Verbs => "verbs",
            Self::Soft => "soft",
            Self::Tcp => "tcp",
        })
    }
}

/// A requester and a responder that understand each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// Who asks.
    pub by: By,
    /// Who answers.
    pub via: Via,
}

impl Pair {
    /// A device asks a device.
    pub const VERBS_VERBS: Self = Self { by: By::Verbs, via: Via::Verbs };
    /// A device asks the kernel responder, under the rules of RoCEv2's port.
    pub const VERBS_KERNEL: Self = Self { by: By::Verbs, via: Via::Kernel };
    /// This process asks a device.
    pub const SOFT_VERBS: Self = Self { by: By::Soft, via: Via::Verbs };
    /// This process asks the kernel responder.
    pub const SOFT_KERNEL: Self = Self { by: By::Soft, via: Via::Kernel };
    /// This process asks the agent.
    pub const TCP: Self = Self { by: By::Tcp, via: Via::Tcp };

    /// All, the cheapest for both ends first.
    pub const ALL: [Self; 5] = [Self::VERBS_VERBS, Self::SOFT_VERBS, Self::VERBS_KERNEL, Self::SOFT_KERNEL, Self::TCP];
}

/// Requester and responder, as `soft-kernel`; `tcp`.
impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.by {
            By::Tcp => self.via.fmt(f),
            by => write!(f, "{by}-{}", self.via),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_named_by_both_ends() {
        let names = Pair::ALL.map(|pair| pair.to_string());
        assert_eq!(names, ["verbs-verbs", "soft-verbs", "verbs-kernel", "soft-kernel", "tcp"]);
    }
}
