// SPDX-License-Identifier: Apache-2.0
//! What can go wrong: what was tried, on what, why it failed, what to do next.

use std::io;

use crate::hook::Hook;

/// Failure of the control plane. The data plane has counters instead.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A BPF operation failed in the kernel or in libbpf.
    #[error("{operation} of {object}: {source}; {advice}")]
    Bpf {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// Why, with the kernel's errno.
        source: libbpf_rs::Error,
        /// What to do next.
        advice: &'static str,
    },
    /// A system call failed.
    #[error("{operation} of {object}: {source}; {advice}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// Why.
        source: io::Error,
        /// What to do next.
        advice: &'static str,
    },
    /// The kernel's verifier, or libbpf before it, refused the programs.
    #[error(
        "loading the BPF programs: {source}; see `probe` for what this kernel lacks. Last words of the loader:\n{log}"
    )]
    Load {
        /// Why.
        source: libbpf_rs::Error,
        /// The end of libbpf's and the verifier's output.
        log: String,
    },
    /// The directory for pins is not on a BPF file system.
    #[error("{path} is not on a BPF file system: mount one (mount -t bpf -o mode=0700 bpf /sys/fs/bpf) and try again")]
    NoBpffs {
        /// Nearest existing directory.
        path: String,
    },
    /// Somebody else can put other pins in the place of ours, or take ours away.
    #[error("{path} belongs to uid {owner} and has mode {mode:04o}: {advice}")]
    NotOurs {
        /// Directory.
        path: String,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// What to do next.
        advice: &'static str,
    },
    /// There are pins already.
    #[error("{path} exists: a responder of this name is pinned; open it, or purge it first")]
    Exists {
        /// Directory of the pins.
        path: String,
    },
    /// Pins of another version, damaged ones, or such as a replacement was interrupted in.
    #[error("{path}: {what}; `ensure` mends it, or purge it and load again")]
    Incompatible {
        /// Pin.
        path: String,
        /// What is unlike this program's idea of it.
        what: String,
    },
    /// A name that cannot be a file name of bpffs.
    #[error("responder name {name:?}: use letters, digits, - and _ only, at most 64 of them")]
    Name {
        /// As given.
        name: String,
    },
    /// A value outside of its limits.
    #[error("{what} is {value}: {limits}")]
    Limit {
        /// Name of the value.
        what: &'static str,
        /// As given.
        value: u64,
        /// What is allowed.
        limits: String,
    },
    /// No such network device.
    #[error("network device {name}: not in this network namespace; `ip link` lists those that are")]
    NoDevice {
        /// As given.
        name: String,
    },
    /// Not an Ethernet device.
    #[error(
        "network device {name} is of hardware type {hardware_type}, not Ethernet (1) or loopback (772): the responder parses Ethernet frames; attach it to the device underneath or use the TCP responder"
    )]
    NotEthernet {
        /// Device.
        name: String,
        /// `ARPHRD_*` of linux/if_arp.h.
        hardware_type: u16,
    },
    /// Answers would not fit the device.
    #[error(
        "network device {name} has an MTU of {mtu_bytes} bytes, and answers need {needed_bytes}: lower max_read_bytes or raise the MTU"
    )]
    Mtu {
        /// Device.
        name: String,
        /// Its MTU.
        mtu_bytes: u32,
        /// The largest answer's IP packet.
        needed_bytes: usize,
    },
    /// The place is taken.
    #[error("attaching to {hook} of {device}: {owner} is there already; {advice}")]
    Taken {
        /// Where.
        hook: Hook,
        /// Device.
        device: String,
        /// Who is there.
        owner: String,
        /// What to do next.
        advice: &'static str,
    },
}

/// Result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// For `map_err` on libbpf-rs results.
pub fn bpf(
    operation: &'static str,
    object: impl Into<String>,
    advice: &'static str,
) -> impl FnOnce(libbpf_rs::Error) -> Error {
    let object = object.into();
    move |source| Error::Bpf { operation, object, source, advice }
}

/// For `map_err` on system call results.
pub fn system<E: Into<io::Error>>(
    operation: &'static str,
    object: impl Into<String>,
    advice: &'static str,
) -> impl FnOnce(E) -> Error {
    let object = object.into();
    move |source| Error::System { operation, object, source: source.into(), advice }
}

/// A part that a BPF object of ours should have and has not.
#[must_use]
pub fn absent(part: &str) -> libbpf_rs::Error {
    libbpf_rs::Error::from(io::Error::new(io::ErrorKind::InvalidData, format!("the BPF object has no {part}")))
}

/// Advice for what only lacks rights.
pub const NEEDS_CAPABILITIES: &str = "needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (or root)";
/// Advice for what should not fail once the responder is loaded.
pub const CHECK_KERNEL_LOG: &str = "see the kernel log; if the maps were changed from outside, purge and load again";
