// SPDX-License-Identifier: Apache-2.0
//! `make bench-accuracy`, `make bench-granularity`: the ways of acquiring the kernel's values beside each other, on the same values by the same code.
//!
//! | scheme | values get where they are read | read |
//! |---|---|---|
//! | computed + one-sided (RDMA-Sync) | by the READ itself | kernel responder |
//! | published + one-sided (RDMA-Async) | by a timer of the kernel, as often as they are read | kernel responder |
//! | sampled + one-sided (RDMA-Async) | by a thread on the watched core, as often as they are read | kernel responder |
//! | computed + TCP (Socket-Sync) | by a thread that is woken by the request | the same thread |
//! | sampled + TCP (Socket-Async) | by a thread, as often as they are read | another thread, woken by the request |
//!
//! All five run the collectors of crates/metrics, the threads by a system call, so only the way differs. Threads are of ordinary priority and pinned to the
//! watched core.

pub(crate) mod accuracy;
pub(crate) mod burst;
pub(crate) mod granularity;
mod part;
mod server;
mod truth;
mod watched;

/// A way to acquire and to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Computed,
    Published,
    Sampled,
    TcpComputed,
    TcpSampled,
}

impl Scheme {
    pub(crate) const ALL: [Self; 5] =
        [Self::Computed, Self::Published, Self::Sampled, Self::TcpComputed, Self::TcpSampled];

    /// Its name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Published => "published",
            Self::Sampled => "sampled",
            Self::TcpComputed => "tcp_computed",
            Self::TcpSampled => "tcp_sampled",
        }
    }

    /// Its name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Computed => "computed + one-sided",
            Self::Published => "published + one-sided",
            Self::Sampled => "sampled + one-sided",
            Self::TcpComputed => "computed + TCP",
            Self::TcpSampled => "sampled + TCP",
        }
    }

    /// Whether a thread samples.
    fn is_sampled(self) -> bool {
        matches!(self, Self::Sampled | Self::TcpSampled)
    }
}
