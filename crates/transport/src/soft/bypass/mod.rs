// SPDX-License-Identifier: Apache-2.0
//! Datagrams of a UDP socket past the kernel's UDP, by AF_XDP (docs/soft-requester.md#af_xdp).
//!
//! The socket stays: it holds the port, and carries what this does not. A flow is carried here from its first answer
//! that came here until one of its requests is not answered in time. So nobody looks routes or neighbours up: the
//! kernel does for the first request, and again when something has changed.

#[cfg(feature = "xdp")]
mod xdp;
#[cfg(feature = "xdp")]
pub use xdp::{Bypass, Error};

#[cfg(not(feature = "xdp"))]
mod absent;
#[cfg(not(feature = "xdp"))]
pub use absent::Bypass;
