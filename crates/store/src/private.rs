// SPDX-License-Identifier: Apache-2.0
//! Files that lock or hold data are their owner's alone, whatever the umask: who may only read a lock file can hold its lock.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

/// Mode of files.
pub(crate) const MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Takes the file from others that an earlier version, or another umask, has given it to.
pub(crate) fn restrict(file: &File) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(MODE))
}

/// The same by path, of a file that is there.
pub(crate) fn restrict_path(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(MODE))
}

/// Makes a directory that is not there, and those above it.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}
