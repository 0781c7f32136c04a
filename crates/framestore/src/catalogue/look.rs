// SPDX-License-Identifier: Apache-2.0
//! Reading the catalogue of a store that somebody else may be writing: nothing is written here, and nothing locked.

use std::path::{Path, PathBuf};

use super::pair::{self, Loading};
use super::{DIRECTORY, EXTENSIONS, Known, Recovery};
use crate::damage::StoreError;
use crate::framing::files;

/// How often it is read again because its owner has begun new files meanwhile. That happens once in hours.
const ATTEMPTS: usize = 5;

/// Reads the catalogue of the store in `dir`.
///
/// # Errors
/// [`StoreError::Version`], [`StoreError::Io`]. Damage is no error: see [`Recovery`].
pub(crate) fn read(dir: &Path) -> Result<(Known, Recovery), StoreError> {
    let dir = dir.join(DIRECTORY);
    let mut attempt = 1;
    loop {
        let numbers = pair::numbers(&dir)?;
        let (Loading { known, recovery, .. }, _) = Loading::read(&dir, &numbers)?;
        if attempt == ATTEMPTS || pair::numbers(&dir)? == numbers {
            return Ok((known, recovery));
        }
        attempt += 1;
    }
}

/// Files that have the same bytes, of each number in order.
pub(crate) fn pairs(dir: &Path) -> Result<Vec<[PathBuf; 2]>, StoreError> {
    let dir = dir.join(DIRECTORY);
    let paths = |number: u32| EXTENSIONS.map(|extension| files::numbered(&dir, number, extension));
    Ok(pair::numbers(&dir)?.into_iter().map(paths).collect())
}
