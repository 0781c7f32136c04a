// SPDX-License-Identifier: Apache-2.0
//! The places of a device where a responder can take packets.

/// Where packets are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// tc ingress: every driver, behind packet taps, no reset of the device. The default.
    Tc,
    /// XDP in the driver: cheapest under packet load. Unseen by tcpdump; some drivers reset the device when it is attached.
    Xdp,
}

impl Hook {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Hook::Tc => "tc",
            Hook::Xdp => "xdp",
        }
    }
}

impl std::fmt::Display for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
