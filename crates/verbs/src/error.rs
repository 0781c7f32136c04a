// SPDX-License-Identifier: Apache-2.0
//! What can go wrong with a device, before and beside its completions.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use crate::endpoint::BadEndpoint;

/// Each says what was tried, on what, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No libibverbs, or no devices known to the kernel.
    #[error(
        "RDMA: cannot list devices: {0}; install libibverbs1 and ibverbs-providers, or read over the kernel responder"
    )]
    NoLibrary(io::Error),
    /// No device with this address.
    #[error(
        "RDMA: no device has {address} as a RoCEv2 GID (devices here: {there}); see `rdma link` and `ibv_devinfo -v`"
    )]
    NoDevice {
        /// The address asked for.
        address: IpAddr,
        /// Names of the devices that there are.
        there: String,
    },
    /// A call of libibverbs failed.
    #[error("RDMA device {device}: {operation}: {source}{}", advice(.operation, .source))]
    System {
        /// Name.
        device: String,
        /// What was tried.
        operation: &'static str,
        /// Its error.
        source: io::Error,
    },
    /// The device, or what was made of it, has no room for so many.
    #[error("RDMA device {device}: {wanted} {what} wanted, {limit} possible")]
    Limit {
        /// Name.
        device: String,
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        wanted: u64,
        /// How many there can be.
        limit: u64,
    },
    /// What the other end told cannot be used.
    #[error("RDMA device {device}: the other end's queue pair: {source}")]
    Peer {
        /// Name.
        device: String,
        /// Why.
        source: BadEndpoint,
    },
    /// Completions were lost: queue pairs of this queue do not know any more what they have done.
    #[error("RDMA device {device}: the completion queue has overflowed; make it and its queue pairs anew")]
    Overrun {
        /// Name.
        device: String,
    },
}

fn advice(operation: &str, source: &io::Error) -> &'static str {
    match (operation, Errno::from_io_error(source)) {
        (REGISTERING, Some(Errno::NOMEM)) => {
            "; raise the limit of locked memory (LimitMEMLOCK in the unit, `ulimit -l`)"
        }
        (REGISTERING, Some(Errno::FAULT)) => "; the mapping must be writable here (kernels before 6.2)",
        (MAKING_PAIR, Some(Errno::OPNOTSUPP)) => {
            "; the device's driver makes no reliable connections by this interface"
        }
        (_, Some(Errno::PERM | Errno::ACCESS)) => "; /dev/infiniband/uverbs* must be accessible",
        _ => "",
    }
}

/// Operations that need advice.
pub(crate) const MAKING_PAIR: &str = "making a queue pair";
/// As above.
pub(crate) const REGISTERING: &str = "registering memory";

/// The system's error in what a library made of it.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> io::Error {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(system) = error.downcast_ref::<io::Error>() {
            return system
                .raw_os_error()
                .map_or_else(|| io::Error::other(system.to_string()), io::Error::from_raw_os_error);
        }
        next = error.source();
    }
    io::Error::other(error.to_string())
}

/// For `map_err` of sideway's calls.
pub(crate) fn system<E: std::error::Error + 'static>(device: &str, operation: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::System { device: device.to_owned(), operation, source: cause(&error) }
}

/// From errno, for raw calls.
pub(crate) fn last(device: &str, operation: &'static str) -> Error {
    Error::System { device: device.to_owned(), operation, source: io::Error::last_os_error() }
}

impl Error {
    /// The system's error number, if there is one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        self.source().and_then(|source| source.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Inner);
    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner(#[source] io::Error);

    #[test]
    fn the_systems_error_is_found_however_deep() {
        let error = system::<Outer>("rxe0", REGISTERING)(Outer(Inner(io::Error::from_raw_os_error(12))));
        assert_eq!(error.errno(), Some(12));
        assert!(error.to_string().contains("LimitMEMLOCK"), "{error}");
        let other = system::<Outer>("rxe0", "x")(Outer(Inner(io::Error::other("odd"))));
        assert_eq!((other.errno(), other.to_string()), (None, "RDMA device rxe0: x: odd".into()));
    }
}
