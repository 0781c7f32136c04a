// SPDX-License-Identifier: Apache-2.0
//! Group `agent`: the agent's own process, as node_exporter tells of itself.

use std::io;

use rustix::fs::{CWD, Mode, OFlags, RawDir, openat};
use rustix::process::{Resource, getrlimit};

use crate::procfs::{LINE_BYTES, Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::{Ask, Context, Made};

static CPU: Definition =
    Definition::counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
        .unit("seconds", 1e-2);
static OPEN_FDS: Definition = Definition::gauge("process_open_fds", "Number of open file descriptors.");
static MAX_FDS: Definition = Definition::gauge("process_max_fds", "Maximum number of open file descriptors.");
static VIRTUAL: Definition =
    Definition::gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.").unit("bytes", 1.0);
static VIRTUAL_MAX: Definition =
    Definition::gauge("process_virtual_memory_max_bytes", "Maximum amount of virtual memory available in bytes.")
        .unit("bytes", 1.0);
static RESIDENT: Definition =
    Definition::gauge("process_resident_memory_bytes", "Resident memory size in bytes.").unit("bytes", 1.0);
static START: Definition =
    Definition::gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")
        .unit("seconds", 1.0)
        .float();

struct Agent {
    stat: Source,
    boot_time_s: u64,
    page_bytes: u64,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let mut boot_time_s = 0;
    Source::open("/proc/stat")?.each_line(context.buffer, |line| {
        if let Some(rest) = line.strip_prefix(b"btime ") {
            boot_time_s = number(rest).unwrap_or(0);
        }
    })?;
    let page_bytes = rustix::param::page_size() as u64;
    listed(Agent { stat: Source::open("/proc/self/stat")?, boot_time_s, page_bytes }, ask, context)
}

/// Of /proc/self/stat: user and system time in ticks, start in ticks, virtual bytes, resident pages.
fn parse(text: &[u8]) -> Option<[u64; 4]> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let mut words = words(text.get(close + 1..)?).skip(14 - 3).map(number);
    let mut next = |skip: usize| words.nth(skip).flatten();
    // Fields 14, 15, 22 to 24.
    let (user, system) = (next(0)?, next(0)?);
    Some([user.saturating_add(system), next(22 - 16)?, next(0)?, next(0)?])
}

/// Descriptors that are open, but the one that looks.
fn open_descriptors() -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, "/proc/self/fd", flags, Mode::empty())?;
    let mut entries = [const { std::mem::MaybeUninit::uninit() }; LINE_BYTES];
    let mut all = RawDir::new(directory, &mut entries);
    let mut count = 0u64;
    while let Some(entry) = all.next() {
        count += u64::from(entry?.file_name().to_bytes().iter().all(u8::is_ascii_digit));
    }
    Ok(count.saturating_sub(1))
}

impl Read for Agent {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        let mut read = None;
        self.stat.each_line(context.buffer, |line| read = read.or(parse(line)))?;
        let Some([ticks, start_ticks, bytes, pages]) = read else { return Err(io::ErrorKind::InvalidData.into()) };
        values.put(&CPU, &[], ticks);
        values.put(&OPEN_FDS, &[], open_descriptors()?);
        values.put(&MAX_FDS, &[], getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX));
        values.put(&VIRTUAL, &[], bytes);
        values.put(&VIRTUAL_MAX, &[], getrlimit(Resource::As).current.unwrap_or(u64::MAX));
        values.put(&RESIDENT, &[], pages.saturating_mul(self.page_bytes));
        #[allow(clippy::cast_precision_loss)] // hundredths of seconds since 1970 fit
        let start_s = self.boot_time_s as f64 + start_ticks as f64 / 100.0;
        values.put_float(&START, &[], start_s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_fields() {
        let text = b"7 (a b) c) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25";
        assert_eq!(parse(text), Some([29, 22, 23, 24]));
        for text in ["", "7 (a) S 1 2 3", ")", "7 (a) S 4 5 6 7 8 9 10 11 12 13 x 15 16 17 18 19 20 21 22 23 24"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
