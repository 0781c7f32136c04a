// SPDX-License-Identifier: Apache-2.0
//! Files that say what the kernel is to do: only such as nobody but root can change, by their mode or by that of a directory above them.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Of a collector's file.
pub(super) const MAX_FILE_BYTES: u64 = 256 << 10;
/// Of a BPF object, with its types.
pub(super) const MAX_OBJECT_BYTES: u64 = 8 << 20;

const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Reads a file that only root can change.
///
/// # Errors
/// Who else can, or why it cannot be read.
pub(super) fn read(path: &Path, most_bytes: u64) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot be read: {error}");
    let whole = path.canonicalize().map_err(failed)?;
    check_above(&whole)?;
    let file = File::open(&whole).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err("is no regular file".into());
    }
    check(metadata.uid(), metadata.mode(), false)?;
    let mut bytes = Vec::new();
    file.take(most_bytes + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most_bytes {
        return Err(format!("is longer than {} KiB", most_bytes >> 10));
    }
    Ok(bytes)
}

/// Files of a directory whose names end with `.toml`, in the order of their names; none where there is no directory.
///
/// # Errors
/// Why it cannot be read.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("cannot be read: {error}"))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whoever can write to a directory above can put another file in the place of this one.
fn check_above(path: &Path) -> Result<(), String> {
    for directory in path.ancestors().skip(1) {
        let metadata = std::fs::metadata(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        check(metadata.uid(), metadata.mode(), true).map_err(|reason| format!("{} {reason}", directory.display()))?;
    }
    Ok(())
}

/// In a sticky directory nobody can remove what is another's.
fn check(owner: u32, mode: u32, is_directory: bool) -> Result<(), String> {
    if owner != 0 {
        return Err(format!("belongs to user {owner}: chown root it, since it says what the kernel does"));
    }
    if mode & OTHERS_MAY_WRITE != 0 && !(is_directory && mode & STICKY != 0) {
        return Err(format!("can be written by others (mode {:04o}): chmod go-w it", mode & 0o7777));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_root_s_alone_is_trusted() {
        assert_eq!(check(0, 0o100_644, false), Ok(()));
        assert_eq!(check(0, 0o040_755, true), Ok(()));
        assert_eq!(check(0, 0o041_777, true), Ok(()), "as /tmp");
        assert!(check(1000, 0o100_644, false).unwrap_err().contains("user 1000"));
        assert!(check(0, 0o100_664, false).unwrap_err().contains("mode 0664"));
        assert!(check(0, 0o040_777, true).unwrap_err().contains("mode 0777"));
        assert!(check(0, 0o101_666, false).unwrap_err().contains("mode 1666"), "a sticky file is nothing");
    }

    #[test]
    fn directories_are_listed_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.toml", "a.toml", "a.bpf.o", "toml"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let names: Vec<_> =
            list(directory.path()).unwrap().iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.toml", "b.toml"]);
        assert_eq!(list(&directory.path().join("none")), Ok(vec![]));
        assert!(list(&directory.path().join("a.toml")).unwrap_err().contains("cannot be read"));
    }
}
