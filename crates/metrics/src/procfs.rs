// SPDX-License-Identifier: Apache-2.0
//! Reading procfs and sysfs: what groups have in common. Their own lines are parsed in their folders ([`crate::groups`]).
//!
//! [`Source`] keeps a descriptor and reads it from the start with pread, through a fixed buffer, line by line. procfs text is the kernel's, but
//! it is parsed as if it were anybody's: what does not parse is skipped, never indexed out of bounds.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags};

/// Longest part of a line that a parser sees. The `intr` line of /proc/stat is far longer; only its first number is of use.
pub const LINE_BYTES: usize = 4096;

/// A procfs file that is read again and again.
#[derive(Debug)]
pub struct Source<R = File> {
    file: R,
}

impl Source {
    /// Opens a file of procfs.
    ///
    /// # Errors
    /// As opening has it.
    pub fn open(path: &str) -> io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }
}

impl<R: FileExt> Source<R> {
    /// Calls `line` for each line, without its end; of longer ones it gets the first [`LINE_BYTES`].
    ///
    /// # Errors
    /// As pread has it; lines before the error have been seen.
    pub fn each_line(&self, buffer: &mut [u8; LINE_BYTES], mut line: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut offset, mut kept, mut skipping) = (0u64, 0usize, false);
        loop {
            let got = match self.file.read_at(&mut buffer[kept..], offset) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            offset += got as u64;
            let end = kept + got;
            let mut start = 0;
            while let Some(length) = buffer[start..end].iter().position(|byte| *byte == b'\n') {
                if !skipping {
                    line(&buffer[start..start + length]);
                }
                skipping = false;
                start += length + 1;
            }
            if got == 0 {
                if start < end && !skipping {
                    line(&buffer[start..end]);
                }
                return Ok(());
            }
            if start == 0 && end == LINE_BYTES {
                if !skipping {
                    line(&buffer[..end]);
                }
                skipping = true;
                kept = 0;
            } else {
                buffer.copy_within(start..end, 0);
                kept = end - start;
            }
        }
    }
}

/// Reads a file of at most 4 KiB with one read, as procfs and sysfs want it.
///
/// # Errors
/// As open and read have it, with the path.
pub fn read_small(path: &str) -> io::Result<String> {
    let with_path = |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"));
    let fd =
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|e| with_path(e.into()))?;
    let mut buffer = [0; 4096];
    let got = rustix::io::read(&fd, &mut buffer).map_err(|e| with_path(e.into()))?;
    Ok(String::from_utf8_lossy(&buffer[..got]).into_owned())
}

/// Lines of a name and a number, read once.
pub(crate) fn numbers(path: &str) -> io::Result<HashMap<String, u64>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(|separator: char| separator == ':' || separator.is_ascii_whitespace())?;
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some((name.to_owned(), value))
    });
    Ok(lines.collect())
}

/// Words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number; `None` for anything else.
#[must_use]
pub fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Number of CPUs from a list as in /sys/devices/system/cpu/present (`0-3,8`): the highest number plus one.
#[must_use]
pub fn cpu_count(list: &str) -> Option<usize> {
    let last = |range: &str| range.rsplit('-').next().and_then(|cpu| cpu.trim().parse::<usize>().ok());
    list.trim().split(',').map(last).try_fold(0, |most, cpu| Some(most.max(cpu? + 1)))
}

/// CPUs that are present, counted to the highest.
///
/// # Errors
/// As [`read_small`]; sysfs is not mounted.
pub fn present_cpus() -> io::Result<u32> {
    let count = cpu_count(&read_small("/sys/devices/system/cpu/present")?);
    count.and_then(|count| u32::try_from(count).ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Name (comm) and start time (field 22, clock ticks since boot) of /proc/PID/stat. The name may hold spaces and parentheses.
#[must_use]
pub fn process_stat(text: &[u8]) -> Option<(String, u64)> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(text.get(open + 1..close)?).into_owned();
    // Field 3 follows the name.
    let start = number(words(text.get(close + 1..)?).nth(22 - 3)?)?;
    Some((name, start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that gives a few bytes at a time, as seq_file does.
    struct Slow(Vec<u8>, usize);

    impl FileExt for Slow {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let rest = &self.0[self.0.len().min(usize::try_from(offset).unwrap())..];
            let length = rest.len().min(self.1).min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    fn lines(text: &[u8], at_once: usize) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let source = Source { file: Slow(text.to_vec(), at_once) };
        source.each_line(&mut [0; LINE_BYTES], |line| lines.push(line.to_vec())).unwrap();
        lines
    }

    #[test]
    fn lines_are_the_same_however_they_are_read() {
        bolero::check!().with_type::<(Vec<u8>, u8, u16)>().for_each(|(text, at_once, long)| {
            let mut text = text.clone();
            text.extend(std::iter::repeat_n(b'x', usize::from(*long)));
            text.extend(b"\nlast");
            let mut expected: Vec<Vec<u8>> =
                text.split(|byte| *byte == b'\n').map(|line| line[..line.len().min(LINE_BYTES)].to_vec()).collect();
            expected.retain(|line| !line.is_empty());
            let mut got = lines(&text, usize::from(*at_once) + 1);
            got.retain(|line| !line.is_empty());
            assert_eq!(got, expected);
        });
    }

    #[test]
    fn process_names_may_look_like_the_rest() {
        let text = b"77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(process_stat(text), Some(("a) b (c".into(), 4242)));
        assert_eq!(process_stat(b"77 (a) S 1"), None);
        assert_eq!(process_stat(b")("), None);
    }

    #[test]
    fn cpu_lists() {
        for (list, count) in [("0\n", Some(1)), ("0-3", Some(4)), ("0-3,8-11\n", Some(12)), ("", None), ("a-b", None)] {
            assert_eq!(cpu_count(list), count, "{list:?}");
        }
    }

    #[test]
    fn no_line_breaks_a_parser() {
        bolero::check!().for_each(|line: &[u8]| {
            let _ = (process_stat(line), std::str::from_utf8(line).map(cpu_count));
        });
    }

    #[test]
    fn this_machines_cpus_are_counted() {
        assert!(present_cpus().unwrap() >= 1);
    }
}
