// SPDX-License-Identifier: Apache-2.0
//! The processes that are watched. Each tells its parent `ready`, is told `setup`, tells `listening` and `connected` if
//! it serves, and then does what it is for until its standard input ends.

use std::fs::File;
use std::io::{Read as _, Write as _, stdin, stdout};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;

use onlooker_region::map::Map;
use onlooker_verbs::rpc::Server;
use onlooker_verbs::{Arrived, CompletionQueue, Device, MAX_POLL, Path, QueuePair, Readable, Status};
use rustix::event::{PollFd, PollFlags, poll};

use super::{FIRST_PORT, REGION_BYTES, RPC_SETTINGS, Scheme, Talk, word};
use crate::common::{Result, endpoint_line, endpoint_of, variable};

type Parent = Talk<std::io::Stdin, std::io::Stdout>;
type Reader = Talk<TcpStream, TcpStream>;

/// Where the holder's regions are: as far apart as nobody reads.
const VA: u64 = 0x5eed_0000_0000_0000;
const VA_STEP: usize = 1 << 20;

fn map(path: &str) -> Result<Map> {
    let memory = File::options().read(true).write(true).open(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(Map::of(&memory, 0, REGION_BYTES.into(), true)?)
}

fn accept(port: u16, parent: &mut Parent) -> Result<Reader> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    parent.tell("listening")?;
    Talk::over(listener.accept()?.0)
}

/// The process with the memory.
pub(crate) fn run(scheme: Scheme, index: u16, path: &str) -> Result<()> {
    let memory = map(path)?;
    let mut parent = Talk::new(stdin(), stdout());
    parent.tell("ready")?;
    if scheme == Scheme::Read {
        count(&memory, index, &mut parent);
        return Ok(());
    }
    parent.expect("setup")?;
    let port = FIRST_PORT + index;
    match scheme {
        Scheme::Rpc => serve_messages(port, memory, index, parent),
        _ => serve_bytes(port, memory, index, parent),
    }
}

/// The program's own work: between phases, when it is told to.
fn count(memory: &Map, index: u16, parent: &mut Parent) {
    while let Ok(phase) = parent.expect("count") {
        let phase = phase.parse().unwrap_or(0);
        for (at, to) in (0..).zip(memory.words()) {
            to.store(word(index.into(), phase, at), Ordering::Relaxed);
        }
        if parent.tell("counted").is_err() {
            break;
        }
    }
}

/// From here on the main thread serves, and another one counts.
fn connected(mut parent: Parent, memory: &Map, index: u16) -> Result<()> {
    parent.tell("connected")?;
    let memory = memory.clone();
    std::thread::spawn(move || {
        count(&memory, index, &mut parent);
        std::process::exit(0);
    });
    Ok(())
}

fn serve_messages(port: u16, memory: Map, index: u16, mut parent: Parent) -> Result<()> {
    let device = Device::of(variable("LAB_IP4")?.parse()?)?;
    let queue = CompletionQueue::new(&device, 2 * RPC_SETTINGS.depth)?;
    let mut server = Server::new(&queue, 0, RPC_SETTINGS)?;
    let mut reader = accept(port, &mut parent)?;
    server.connect(&endpoint_of(&reader.hear()?)?, Path::default())?;
    reader.tell(&endpoint_line(&server.endpoint()))?;
    connected(parent, &memory, index)?;
    let mut arrived = [Arrived { id: 0, status: Status::Done, bytes: 0 }; MAX_POLL];
    loop {
        if server.is_waiting() {
            queue.arm()?
        } else {
            queue.arm_for_messages()?
        }
        let count = queue.poll_arrived(&mut arrived)?;
        for one in &arrived[..count] {
            server.take(*one, memory.words())?;
        }
        if count == 0 {
            poll(&mut [PollFd::new(&queue, PollFlags::IN)], None)?;
        }
    }
}

fn serve_bytes(port: u16, memory: Map, index: u16, mut parent: Parent) -> Result<()> {
    let mut stream = accept(port, &mut parent)?.to;
    connected(parent, &memory, index)?;
    let (mut request, mut answer) = ([0; 8], vec![0; REGION_BYTES as usize]);
    // Until the reader closes: then the process ends.
    while stream.read_exact(&mut request).is_ok() {
        for (to, from) in answer.chunks_exact_mut(8).zip(memory.words()) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_le_bytes());
        }
        stream.write_all(&answer)?;
    }
    Ok(())
}

/// The process with the device: all memory is registered here, for READs.
pub(crate) fn hold(paths: &[&str]) -> Result<()> {
    let memory = paths.iter().map(|path| map(path)).collect::<Result<Vec<_>>>()?;
    let mut parent = Talk::new(stdin(), stdout());
    parent.tell("ready")?;
    parent.expect("setup")?;
    let device = Device::of(variable("LAB_IP4")?.parse()?)?;
    let mut regions = Vec::new();
    for (va, memory) in (VA..).step_by(VA_STEP).zip(memory) {
        regions.push((va, Readable::register(&device, memory, va)?));
    }
    let queue = CompletionQueue::new(&device, 16)?;
    let mut pair = QueuePair::new(&queue, 1)?;
    let mut reader = accept(FIRST_PORT, &mut parent)?;
    pair.connect(&endpoint_of(&reader.hear()?)?, Path::default())?;
    reader.tell(&endpoint_line(&pair.endpoint()))?;
    for (va, region) in &regions {
        reader.tell(&format!("{va} {}", region.rkey()))?;
    }
    parent.tell("connected")?;
    while parent.hear().is_ok() {}
    Ok(())
}
