// SPDX-License-Identifier: Apache-2.0
//! What undoes a lane: a file a device, in a directory that a boot empties as it empties the lane.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LaneError;
use crate::act::Act;
use crate::device::Device;

/// Of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its name.
    pub device: String,
    /// Its index: another device may take the name.
    pub index: u32,
    /// What undoes it, oldest change first.
    pub undo: Vec<Act>,
}

fn file(directory: &Path, device: &str) -> PathBuf {
    directory.join(format!("{device}.json"))
}

impl Record {
    /// Of a device to which nothing was done.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self { device: device.name.clone(), index: device.index, undo: Vec::new() }
    }

    /// `None`: the device has no lane of ours.
    ///
    /// # Errors
    /// The file cannot be read, or is not one of ours.
    pub fn read(directory: &Path, device: &str) -> Result<Option<Self>, LaneError> {
        let path = file(directory, device);
        let failed = |error| LaneError::File { path: path.clone(), error };
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Before anything else is changed: what was done can be undone, whenever this process ends.
    ///
    /// # Errors
    /// Of the file system.
    pub fn write(&self, directory: &Path) -> Result<(), LaneError> {
        let path = file(directory, &self.device);
        let write = || {
            fs::create_dir_all(directory)?;
            let new = path.with_extension("new");
            fs::write(&new, serde_json::to_vec(self)?)?;
            fs::rename(&new, &path)
        };
        write().map_err(|error: io::Error| LaneError::File { path: path.clone(), error })
    }

    /// All of it was undone.
    ///
    /// # Errors
    /// Of the file system.
    pub fn remove(directory: &Path, device: &str) -> Result<(), LaneError> {
        let path = file(directory, device);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LaneError::File { path, error }),
            _ => Ok(()),
        }
    }
}
