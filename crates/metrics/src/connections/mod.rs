// SPDX-License-Identifier: Apache-2.0
//! TCP sockets, a record each, as the kernel walks them: no netlink, no procfs, no capability for who reads them.
//!
//! The loader ([`install`]) pins under `<home>/connections/` the link of an iterator program (`connections.bpf.c`): whoever opens that file and reads it runs the
//! program over the sockets of its own network namespace and gets [`Record`]s. Where it is asked for, a tracepoint leaves the last record of each connection
//! that ends in a queue, so that connections shorter than the pause between two runs are not missed: it costs every connection some 0.5 us, in the context of
//! whoever ends it. Each run walks the kernel's whole hash table, 0.6 us a socket (docs/tables.md).

mod record;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;

use libbpf_rs::{MapCore as _, MapFlags, Object, ObjectBuilder};
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, Result, bpf, system};
use onlooker_responder::home::{BPFFS_ADVICE, open_map, pin};
use onlooker_responder::log::with_log;
use onlooker_responder::{Home, sys};

use crate::collect::object::map_of;
use crate::tracing::{attach, remove_pins};

pub use record::{ESTABLISHED, LISTEN, NEW_SYN_RECEIVED, RECORD_BYTES, Record, TIME_WAIT};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/connections.bpf.o"));
/// Of the home.
const DIRECTORY: &str = "connections";
const ITERATOR: &str = "dump_connections";
const TRACEPOINT: &str = "connection_ended";
const QUEUE: &str = "ended";
const FACTS: &str = "ended_facts";
/// Bytes of `struct onlooker_ended`, and where its fields stand.
const FACTS_BYTES: usize = 24;
const SEEN: usize = 0;
const DROPPED: usize = 8;
const NAMESPACE: usize = 16;
/// What one read takes at most: the kernel's buffer of an iterator is 32 KiB (BPF_ITER's PAGE_SIZE << 3 in kernel/bpf/bpf_iter.c).
const READ_BYTES: usize = 32 << 10;
/// Ended connections taken at once, at most, so that a run ends.
const MOST_ENDED: usize = 8192;

/// Loads the programs and pins what [`Connections`] needs, in place of what an earlier loader has pinned. `with_ended`: the tracepoint, too.
///
/// # Errors
/// [`Error::Load`], [`Error::Bpf`], [`Error::System`].
pub fn install(home: &Home, with_ended: bool) -> Result<()> {
    remove(home)?;
    let object = load(with_ended)?;
    let directory = home.path().join(DIRECTORY);
    fs::create_dir_all(&directory).map_err(system("creating", directory.display().to_string(), BPFFS_ADVICE))?;
    if with_ended {
        let (queue, facts) = (map_of(&object, QUEUE)?, map_of(&object, FACTS)?);
        let mut value = [0; FACTS_BYTES];
        value[NAMESPACE..NAMESPACE + 4].copy_from_slice(&namespace_inode()?.to_le_bytes());
        facts.update(&[0; 4], &value, MapFlags::ANY).map_err(bpf("writing", FACTS, CHECK_KERNEL_LOG))?;
        pin(&queue, &directory.join(QUEUE))?;
        pin(&facts, &directory.join(FACTS))?;
        attach(&object, TRACEPOINT, sys::TRACE_RAW_TP, &directory)?;
    }
    attach(&object, ITERATOR, sys::TRACE_ITER, &directory)
}

/// Removes what is pinned, if anything is.
///
/// # Errors
/// [`Error::System`].
pub fn remove(home: &Home) -> Result<()> {
    remove_pins(&home.path().join(DIRECTORY), &[ITERATOR, TRACEPOINT, QUEUE, FACTS])
}

fn load(with_ended: bool) -> Result<Object> {
    let attempt = || {
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        for mut program in open.progs_mut() {
            let is_wanted = with_ended || program.name() == ITERATOR;
            program.set_autoload(is_wanted);
        }
        for mut map in open.maps_mut() {
            map.set_autocreate(with_ended)?;
        }
        open.load()
    };
    let (result, log) = with_log(attempt);
    result.map_err(|source| Error::Load { source, log })
}

/// Inode of the network namespace that this thread is in.
fn namespace_inode() -> Result<u32> {
    let path = "/proc/thread-self/ns/net";
    let stat = rustix::fs::stat(path).map_err(system("asking", path, "procfs must be mounted"))?;
    // Inodes of namespaces are 32 bits (fs/nsfs.c).
    Ok(u32::try_from(stat.st_ino).unwrap_or(u32::MAX))
}

/// What the tracepoint has done since it was installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ended {
    /// Connections that ended.
    pub seen: u64,
    /// Of these without a record: the queue was full.
    pub dropped: u64,
}

/// What a loader has installed, to be run and read. Holds nothing open between runs: a loader that comes later puts others in the place of all of it.
#[derive(Debug)]
pub struct Connections {
    iterator: PathBuf,
    directory: PathBuf,
    buffer: Box<[u8]>,
}

impl Connections {
    /// For what is, or will be, pinned in a home.
    #[must_use]
    pub fn new(home: &Home) -> Self {
        let directory = home.path().join(DIRECTORY);
        let iterator = directory.join(ITERATOR);
        Self { iterator, directory, buffer: vec![0; READ_BYTES].into() }
    }

    /// Runs the iterator: `take` gets each socket of the calling thread's network namespace. Returns how many there were.
    ///
    /// # Errors
    /// [`Error::System`]: not installed (yet), or it cannot be read to its end.
    pub fn each(&mut self, mut take: impl FnMut(&Record)) -> Result<u64> {
        let object = || self.iterator.display().to_string();
        let mut file = File::open(&self.iterator).map_err(system("opening", object(), "its loader has not run"))?;
        let (mut filled, mut count) = (0, 0);
        loop {
            let got = match file.read(&mut self.buffer[filled..]) {
                Ok(0) => break,
                Ok(got) => got,
                // The kernel was busy enough to be interrupted before it had one record.
                Err(error) if matches!(error.raw_os_error(), Some(4 | 11)) => continue,
                Err(error) => return Err(system("reading", object(), CHECK_KERNEL_LOG)(error)),
            };
            filled += got;
            let (records, _) = self.buffer[..filled].as_chunks::<RECORD_BYTES>();
            records.iter().for_each(|record| take(&Record::decode(record)));
            count += records.len() as u64;
            let used = records.len() * RECORD_BYTES;
            self.buffer.copy_within(used..filled, 0);
            filled -= used;
        }
        Ok(count)
    }

    /// Takes the connections that have ended since the last call; nothing where the tracepoint is not installed.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn each_ended(&mut self, mut take: impl FnMut(&Record)) -> Result<Ended> {
        let path = self.directory.join(QUEUE);
        if !path.exists() {
            return Ok(Ended::default());
        }
        let (queue, facts) = (open_map(&path)?, open_map(&self.directory.join(FACTS))?);
        // Before anything is taken: what was taken and not counted would be lost.
        let facts = facts.lookup(&[0; 4], MapFlags::ANY).map_err(bpf("reading", FACTS, CHECK_KERNEL_LOG))?;
        let facts = facts.unwrap_or_default();
        for _ in 0..MOST_ENDED {
            let value = queue.lookup_and_delete(&[]).map_err(bpf("reading", QUEUE, CHECK_KERNEL_LOG))?;
            let Some(record) = value.as_deref().and_then(|value| value.first_chunk()) else { break };
            take(&Record::decode(record));
        }
        let number =
            |at: usize| facts.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b));
        Ok(Ended { seen: number(SEEN), dropped: number(DROPPED) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracepoint_s_facts_are_as_in_the_header() {
        let header = include_str!("intf.h");
        assert!(header.contains(&format!("CONNECTIONS_SIZE(onlooker_ended, {FACTS_BYTES});")));
        for (field, at) in [("seen", SEEN), ("dropped", DROPPED), ("namespace", NAMESPACE)] {
            assert!(header.contains(&format!("CONNECTIONS_OFFSET(onlooker_ended, {field}, {at});")), "{field}");
        }
    }
}
