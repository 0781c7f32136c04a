// SPDX-License-Identifier: Apache-2.0
//! Group `processes`: counts of processes and threads, from /proc/PID/stat of all that the agent can see. Cost: 10-20 us a process, hence a long shortest interval.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, RawDir, SeekFrom, openat, seek};

use crate::procfs::{LINE_BYTES, Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

static PIDS: Definition = Definition::gauge("node_processes_pids", "Number of PIDs");
static THREADS: Definition = Definition::gauge("node_processes_threads", "Allocated threads in system");
static MAX_PROCESSES: Definition = Definition::gauge("node_processes_max_processes", "Number of max PIDs limit");
static MAX_THREADS: Definition = Definition::gauge("node_processes_max_threads", "Limit of threads in the system");
static STATE: Definition =
    Definition::gauge("node_processes_state", "Number of processes in each state.").labels(&["state"]);

/// Letters of task_state_array in fs/proc/array.c. All are shown, also those in which no process is now.
const STATES: [(u8, &str); 8] =
    [(b'R', "R"), (b'S', "S"), (b'D', "D"), (b'T', "T"), (b't', "t"), (b'Z', "Z"), (b'I', "I"), (b'P', "P")];

struct Processes {
    directory: OwnedFd,
    entries: Vec<u8>,
    max_processes: Source,
    max_threads: Source,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, "/proc", flags, Mode::empty())?;
    let (max_processes, max_threads) =
        (Source::open("/proc/sys/kernel/pid_max")?, Source::open("/proc/sys/kernel/threads-max")?);
    let entries = Vec::with_capacity(LINE_BYTES);
    listed(Processes { directory, entries, max_processes, max_threads }, ask, context)
}

/// State and number of threads of /proc/PID/stat. The name may hold spaces and parentheses.
fn parse(text: &[u8]) -> Option<(u8, u64)> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let mut words = words(text.get(close + 1..)?);
    // Fields 3 and 20.
    let state = words.next().filter(|state| state.len() == 1)?[0];
    Some((state, number(words.nth(20 - 4)?)?))
}

impl Read for Processes {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["processes"], |context| {
            let Self { directory, entries, max_processes, max_threads } = self;
            let (mut pids, mut threads, mut states) = (0, 0, [0; STATES.len()]);
            seek(&*directory, SeekFrom::Start(0))?;
            entries.clear();
            let mut all = RawDir::new(&*directory, entries.spare_capacity_mut());
            while let Some(entry) = all.next() {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                let mut path = [0; 32];
                if !name.iter().all(u8::is_ascii_digit) || name.len() > 20 {
                    continue;
                }
                path[..name.len()].copy_from_slice(name);
                path[name.len()..name.len() + 5].copy_from_slice(b"/stat");
                let path = &path[..name.len() + 5];
                // One that has just ended is none.
                let Ok(file) = openat(&*directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
                    continue;
                };
                let Ok(bytes) = rustix::io::read(&file, &mut context.buffer[..]) else { continue };
                let Some((state, count)) = parse(&context.buffer[..bytes]) else { continue };
                (pids, threads) = (pids + 1, threads + count);
                if let Some(at) = STATES.iter().position(|(letter, _)| *letter == state) {
                    states[at] += 1;
                }
            }
            values.put(&PIDS, &[], pids);
            values.put(&THREADS, &[], threads);
            for ((_, state), count) in STATES.iter().zip(states) {
                values.put(&STATE, &[state], count);
            }
            for (source, definition) in [(max_processes, &MAX_PROCESSES), (max_threads, &MAX_THREADS)] {
                source.each_line(context.buffer, |line| {
                    if let Some(value) = number(line) {
                        values.put(definition, &[], value);
                    }
                })?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_look_like_the_rest() {
        let text = b"77 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(parse(text), Some((b'S', 17)));
        for text in [
            "",
            ")",
            "77 (a",
            "77 (a) S",
            "77 (a) SS 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18",
            "77 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 x",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
