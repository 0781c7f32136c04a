// SPDX-License-Identifier: Apache-2.0
//! A network device as sysfs has it, in the network namespace whose sysfs is mounted.

use std::fs;
use std::path::{Path, PathBuf};

use crate::LaneError;

const DEVICES: &str = "/sys/class/net";

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its receive queues.
    pub queues: u32,
}

impl Device {
    /// The device of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str) -> Result<Self, LaneError> {
        let none = || LaneError::NoDevice(name.to_owned());
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(none());
        }
        let directory = Path::new(DEVICES).join(name);
        let index = read(&directory.join("ifindex")).ok().and_then(|text| text.parse().ok()).ok_or_else(none)?;
        let queues = fs::read_dir(directory.join("queues")).into_iter().flatten().flatten();
        let queues = queues.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count();
        Ok(Self { name: name.to_owned(), index, queues: u32::try_from(queues).unwrap_or(u32::MAX) })
    }

    /// All but loopback, by name.
    ///
    /// # Errors
    /// sysfs is not there.
    pub fn all() -> Result<Vec<Self>, LaneError> {
        let entries = fs::read_dir(DEVICES).map_err(|error| LaneError::File { path: DEVICES.into(), error })?;
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names.retain(|name| name != "lo");
        Ok(names.iter().filter_map(|name| Self::find(name).ok()).collect())
    }

    /// A file of it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        Path::new(DEVICES).join(&self.name).join(name)
    }

    /// The CPUs that packets of a queue are given to (receive packet steering), as a mask.
    #[must_use]
    pub fn rps_file(&self, queue: u32) -> PathBuf {
        self.file(&format!("queues/rx-{queue}/rps_cpus"))
    }
}

/// A file's text without its line end.
///
/// # Errors
/// As the kernel has it.
pub fn read(path: &Path) -> Result<String, LaneError> {
    let text = fs::read_to_string(path).map_err(|error| LaneError::File { path: path.to_owned(), error })?;
    Ok(text.trim_end().to_owned())
}

/// Writes a file of the kernel's.
///
/// # Errors
/// As the kernel has it.
pub fn write(path: &Path, text: &str) -> Result<(), LaneError> {
    fs::write(path, text).map_err(|error| LaneError::File { path: path.to_owned(), error })
}
