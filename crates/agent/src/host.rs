// SPDX-License-Identifier: Apache-2.0
//! What the agent knows of its host: clocks, ids, name, randomness.

use std::io;
use std::path::Path;

use onlooker_bootstrap::{Id, host_id};
use onlooker_metrics::procfs::read_small;
pub use onlooker_responder::clock::{boot_time_ns, wall_time_ns};
use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes of the kernel's generator.
///
/// # Errors
/// As getrandom(2) has it.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

/// A random number below 2^64.
///
/// # Errors
/// As [`random`].
pub fn random_u64() -> io::Result<u64> {
    random().map(u64::from_le_bytes)
}

/// A random generation: 1 to 2^24 - 1 (block.md, Identity word).
///
/// # Errors
/// As [`random`].
pub fn random_generation() -> io::Result<u32> {
    loop {
        let generation = u32::from_le_bytes(random()?) & onlooker_region::limits::MAX_GENERATION;
        if generation != 0 {
            return Ok(generation);
        }
    }
}

/// Ids of the host and of this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name that readers are told.
    pub name: String,
    /// Made from the machine id (control.md).
    pub host_id: Id,
    /// The kernel's boot id.
    pub boot_id: Id,
}

impl Host {
    /// Reads the ids; `name` overrides the system's node name where it is not empty.
    ///
    /// # Errors
    /// A file that cannot be read, or does not hold what it should; the text names it.
    pub fn read(name: &str, state_dir: &Path) -> io::Result<Self> {
        let boot_text = read_small("/proc/sys/kernel/random/boot_id")?;
        let boot_id = boot_text.trim().parse().map_err(|_| invalid("/proc/sys/kernel/random/boot_id holds no UUID"))?;
        let node = rustix::system::uname();
        let name = if name.is_empty() { node.nodename().to_string_lossy().into_owned() } else { name.to_owned() };
        Ok(Self { name, host_id: machine(state_dir)?, boot_id })
    }
}

/// From the machine id; hosts without one (initramfs, containers) get one in the state directory.
fn machine(state_dir: &Path) -> io::Result<Id> {
    for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        if let Some(id) = read_small(path).ok().and_then(|text| host_id(&text).ok()) {
            return Ok(id);
        }
    }
    let path = state_dir.join("machine-id");
    if let Some(id) = std::fs::read_to_string(&path).ok().and_then(|text| host_id(&text).ok()) {
        return Ok(id);
    }
    let text = format!(
        "{}
",
        Id(random()?)
    );
    std::fs::write(&path, &text)?;
    host_id(&text).map_err(|_| invalid("a new machine id"))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stay_and_the_name_can_be_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (Host::read("", dir.path()).unwrap(), Host::read("x", dir.path()).unwrap());
        assert_eq!((a.host_id, a.boot_id), (b.host_id, b.boot_id));
        assert!(!a.name.is_empty() && b.name == "x");
        assert_eq!(machine(dir.path()).unwrap(), a.host_id);
    }
}
