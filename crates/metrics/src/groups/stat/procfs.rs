// SPDX-License-Identifier: Apache-2.0
//! What procfs says of threads, processes and open files.

use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

/// Threads: behind the slash of /proc/loadavg.
pub(super) fn threads() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let word = text.split_ascii_whitespace().nth(3).and_then(|word| word.split_once('/')?.1.parse().ok());
    word.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Open files and the most that there can be: /proc/sys/fs/file-nr. It is kept open, since it counts itself, and between two looks the kernel is to have as many.
pub(super) fn files() -> io::Result<(u64, u64)> {
    static FILE: OnceLock<File> = OnceLock::new();
    let path = "/proc/sys/fs/file-nr";
    let file = match FILE.get() {
        Some(file) => file,
        None => {
            let opened = File::open(path)?;
            FILE.get_or_init(|| opened)
        }
    };
    let mut buffer = [0; 96];
    let length = file.read_at(&mut buffer, 0)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let mut numbers = text.split_ascii_whitespace().map_while(|word| word.parse().ok());
    let mut next = |skip: usize| numbers.nth(skip).ok_or(io::ErrorKind::InvalidData);
    Ok((next(0)?, next(1)?))
}

/// Processes that /proc shows: all there are, in the first pid namespace and without hidepid.
pub(super) fn shown_processes() -> io::Result<u64> {
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    Ok(fs::read_dir("/proc")?.flatten().filter(is_process).count() as u64)
}
