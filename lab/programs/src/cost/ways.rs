// SPDX-License-Identifier: Apache-2.0
//! How the reader asks all instances at once, and takes what has come: over RDMA and over TCP.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use onlooker_verbs::rpc::{Client, end_of};
use onlooker_verbs::{Arrived, CompletionQueue, Device, MAX_POLL, Path, Settings, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{FIRST_PORT, REGION_BYTES, RPC_SETTINGS, Scheme, Talk, word};
use crate::common::{Result, endpoint_line, endpoint_of, numbers, variable};

/// READs outstanding, as of [`Settings::default`].
const READ_SETTINGS: Settings = Settings { depth: 16, max_read_blocks: REGION_BYTES / 1024 };
/// Longer than a device's own patience with an end that is gone.
const PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// What one instance was asked for.
pub(crate) struct Came {
    pub(crate) at: Instant,
    /// `None`: it was refused.
    pub(crate) wrong_words: Option<usize>,
}

/// One scheme's way to all instances.
pub(crate) trait Way {
    /// Asks all of them.
    fn begin(&mut self) -> Result<()>;

    /// Waits until something has come.
    fn take(&mut self, phase: u64, came: &mut Vec<Came>) -> Result<()>;
}

pub(crate) fn way(scheme: Scheme, instances: u16) -> Result<Box<dyn Way>> {
    let host: IpAddr = variable("LAB_PEER_IP4")?.parse()?;
    Ok(match scheme {
        Scheme::Read => Box::new(Rdma::of_reads(host, instances)?),
        Scheme::Rpc => Box::new(Rdma::of_requests(host, instances)?),
        Scheme::Tcp => Box::new(Tcp::new(host, instances)?),
    })
}

fn sleep(fds: &mut [PollFd<'_>]) -> Result<()> {
    match poll(fds, Some(&PATIENCE))? {
        0 => Err(format!("nothing has come for {} s", PATIENCE.tv_sec).into()),
        _ => Ok(()),
    }
}

fn wrong_words(words: impl Iterator<Item = u64>, instance: u64, phase: u64) -> usize {
    let count = REGION_BYTES as usize / 8;
    let right = (0..).zip(words).filter(|(at, value)| *value == word(instance, phase, *at)).count();
    count - right.min(count)
}

/// READs by one queue pair, or requests by one for each instance.
struct Rdma {
    // Go before their queue.
    clients: Vec<Client>,
    queue: CompletionQueue,
    /// Address and key of each instance's memory; none: it is asked itself.
    regions: Vec<(u64, u32)>,
    instances: usize,
    asked: usize,
}

impl Rdma {
    fn with(instances: u16, clients: u16, settings: Settings) -> Result<Self> {
        let device = Device::of(variable("LAB_IP4")?.parse()?)?;
        let queue = CompletionQueue::new(&device, 2 * settings.depth * u32::from(clients))?;
        let clients =
            (0..clients).map(|name| Client::new(&queue, name, settings)).collect::<std::result::Result<_, _>>()?;
        Ok(Self { clients, queue, regions: Vec::new(), instances: instances.into(), asked: instances.into() })
    }

    /// Tells both ends of each other.
    fn connect(client: &mut Client, host: IpAddr, port: u16) -> Result<Talk<TcpStream, TcpStream>> {
        let mut server = Talk::over(TcpStream::connect((host, port))?)?;
        server.tell(&endpoint_line(&client.endpoint()))?;
        client.connect(&endpoint_of(&server.hear()?)?, Path::default())?;
        Ok(server)
    }

    fn of_reads(host: IpAddr, instances: u16) -> Result<Self> {
        let mut way = Self::with(instances, 1, READ_SETTINGS)?;
        let mut holder = Self::connect(&mut way.clients[0], host, FIRST_PORT)?;
        for _ in 0..instances {
            let numbers = numbers(&holder.hear()?)?;
            let [va, rkey] = numbers[..] else { return Err("no address and key".into()) };
            way.regions.push((va.try_into()?, rkey.try_into()?));
        }
        Ok(way)
    }

    fn of_requests(host: IpAddr, instances: u16) -> Result<Self> {
        let mut way = Self::with(instances, instances, RPC_SETTINGS)?;
        for (client, port) in way.clients.iter_mut().zip(FIRST_PORT..) {
            Self::connect(client, host, port)?;
        }
        Ok(way)
    }

    /// As much as there is room for.
    fn post(&mut self) -> Result<()> {
        while self.asked < self.instances {
            let tag = self.asked as u64;
            let is_posted = match self.regions.get(self.asked) {
                Some(region) => self.clients[0].read(tag, *region, REGION_BYTES)?,
                None => self.clients[self.asked].request(tag, 0, REGION_BYTES)?,
            };
            if !is_posted {
                break;
            }
            self.asked += 1;
        }
        Ok(())
    }

    /// Until something completes, or only until an answer comes, if nothing waits for room.
    fn arm(&self) -> Result<()> {
        let is_answers = self.regions.is_empty() && self.asked == self.instances;
        if is_answers {
            self.queue.arm_for_messages()?
        } else {
            self.queue.arm()?
        }
        Ok(())
    }
}

impl Way for Rdma {
    fn begin(&mut self) -> Result<()> {
        self.asked = 0;
        self.post()
    }

    fn take(&mut self, phase: u64, came: &mut Vec<Came>) -> Result<()> {
        let mut arrived = [Arrived { id: 0, status: Status::Done, bytes: 0 }; MAX_POLL];
        while came.is_empty() {
            self.arm()?;
            let count = self.queue.poll_arrived(&mut arrived)?;
            let at = Instant::now();
            for one in &arrived[..count] {
                let client = self.clients.get_mut(usize::from(end_of(one))).ok_or("a completion of nobody")?;
                client.take(*one, |answer| {
                    let value = |word: &AtomicU64| word.load(Ordering::Relaxed);
                    let wrong = answer.words.map(|words| wrong_words(words.iter().map(value), answer.tag, phase));
                    came.push(Came { at, wrong_words: wrong });
                })?;
            }
            self.post()?;
            if count == 0 {
                sleep(&mut [PollFd::new(&self.queue, PollFlags::IN)])?;
            }
        }
        Ok(())
    }
}

/// An instance's connection, and what has come of its answer.
struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
    filled: usize,
}

struct Tcp(Vec<Connection>);

impl Tcp {
    fn new(host: IpAddr, instances: u16) -> Result<Self> {
        let mut connections = Vec::new();
        for port in (FIRST_PORT..).take(instances.into()) {
            let stream = TcpStream::connect((host, port))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let answer = vec![0; REGION_BYTES as usize];
            connections.push(Connection { stream, filled: answer.len(), answer });
        }
        Ok(Self(connections))
    }
}

impl Way for Tcp {
    fn begin(&mut self) -> Result<()> {
        for connection in &mut self.0 {
            connection.filled = 0;
            connection.stream.write_all(&u64::from(REGION_BYTES).to_le_bytes())?;
        }
        Ok(())
    }

    fn take(&mut self, phase: u64, came: &mut Vec<Came>) -> Result<()> {
        let waiting = |connection: &&Connection| connection.filled < connection.answer.len();
        let mut fds: Vec<_> =
            self.0.iter().filter(waiting).map(|one| PollFd::new(&one.stream, PollFlags::IN)).collect();
        sleep(&mut fds)?;
        drop(fds);
        let at = Instant::now();
        for (instance, Connection { stream, answer, filled }) in (0..).zip(&mut self.0) {
            while *filled < answer.len() {
                match stream.read(&mut answer[*filled..]) {
                    Ok(0) => return Err(format!("instance {instance} has closed").into()),
                    Ok(count) => *filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
                if *filled == answer.len() {
                    let words = answer.chunks_exact(8).map(|word| {
                        let mut bytes = [0; 8];
                        bytes.copy_from_slice(word);
                        u64::from_le_bytes(bytes)
                    });
                    came.push(Came { at, wrong_words: Some(wrong_words(words, instance, phase)) });
                }
            }
        }
        Ok(())
    }
}
