// SPDX-License-Identifier: Apache-2.0
//! The TCP responder: READs of regions over a stream (docs/format/wire.md, `onlooker_wire::tcp_read`).
//!
//! One thread a connection with fixed buffers; what a peer can make the agent hold is bounded by the number of connections. Sources are checked
//! before a thread or buffer exists. Per READ: a lookup and an aligned copy; per request: one lock of the rate table, one or few writes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onlooker_local::deadline::{DeadlineStream, is_timeout};
use onlooker_wire::tcp_read::{
    Decoded, HEADER_BYTES, ITEM_HEADER_BYTES, LONGEST_REQUEST_BYTES, MAX_READ_BYTES, Refusal, Request,
    encode_item_header,
};

use crate::counters::{Counter, Counters};
use crate::host;
use crate::places::{Full, Places};
use crate::prefix::Prefix;
use crate::rate::Rates;
use crate::sampler::{Attached, Sampler};
use crate::served::Served;
use crate::system;

/// Stack of a connection's thread; its buffers are on the heap.
const STACK_BYTES: usize = 128 * 1024;
/// A request that has begun must be whole within this time.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// An answer must be taken within this time.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Answers are gathered up to this length before they are written: the longest item with a request's header before it.
const GATHER_BYTES: usize = HEADER_BYTES + ITEM_HEADER_BYTES + MAX_READ_BYTES as usize;

/// The responder.
pub struct Responder {
    served: Arc<Served>,
    sampler: Arc<Sampler>,
    counters: Counters,
    allow: Vec<Prefix>,
    idle_time: Duration,
    places: Arc<Places>,
    rates: Mutex<Rates>,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Idle,
    Slow,
    Protocol,
    Error,
}

impl Responder {
    /// A responder; [`Responder::accept`] gives it connections.
    #[must_use]
    pub fn new(
        config: &crate::config::Tcp,
        served: Arc<Served>,
        sampler: Arc<Sampler>,
        counters: Counters,
    ) -> Arc<Self> {
        Arc::new(Self {
            served,
            sampler,
            counters,
            allow: config.allow.clone(),
            idle_time: config.idle_timeout.as_duration(),
            places: Places::new(config.max_connections as usize, config.max_connections_per_source as usize),
            rates: Mutex::new(Rates::new(config.max_reads_per_s)),
        })
    }

    /// Takes a connection, or closes it at once with a counter. Never blocks.
    pub fn accept(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let source = peer.ip().to_canonical();
        if !self.allow.iter().any(|prefix| prefix.contains(source)) {
            return self.counters.add(Counter::TcpRefusedSource, 1);
        }
        let place = match self.places.take(source) {
            Ok(place) => place,
            Err(Full::All) => return self.counters.add(Counter::TcpRefusedBusy, 1),
            Err(Full::Source) => return self.counters.add(Counter::TcpRefusedSourceBusy, 1),
        };
        // With its place, not when its thread runs: who sees a connection fewer finds a place.
        self.counters.add(Counter::TcpConnections, 1);
        let own = self.clone();
        let thread = std::thread::Builder::new().name("tcp-read".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            system::drop_thread_capabilities();
            // The socket outlives the place: whoever sees the connection closed, or counted so, finds a place.
            let mut stream = DeadlineStream::new(stream, Instant::now() + own.idle_time);
            let end = own.serve(&mut stream, source);
            drop(place);
            own.counters.sub_one(Counter::TcpConnections);
            own.counters.add(
                match end {
                    End::Closed => Counter::TcpClosedEnd,
                    End::Idle => Counter::TcpClosedIdle,
                    End::Slow => Counter::TcpClosedSlow,
                    End::Protocol => Counter::TcpClosedProtocol,
                    End::Error => Counter::TcpClosedError,
                },
                1,
            );
            drop(stream);
        });
        match spawned {
            Ok(_) => self.counters.add(Counter::TcpAccepted, 1),
            Err(_) => {
                self.counters.sub_one(Counter::TcpConnections);
                self.counters.add(Counter::TcpRefusedInternal, 1);
            }
        }
    }

    fn serve(&self, stream: &mut DeadlineStream, source: IpAddr) -> End {
        if stream.stream().set_nonblocking(false).is_err() || stream.stream().set_nodelay(true).is_err() {
            return End::Error;
        }
        let mut attached = None;
        let mut request = vec![0; LONGEST_REQUEST_BYTES];
        let mut answer = vec![0; GATHER_BYTES];
        let mut filled = 0;
        loop {
            stream.allow(if filled == 0 { self.idle_time } else { REQUEST_TIME });
            let decoded = loop {
                match Request::decode(&request[..filled]) {
                    Ok(Decoded::Complete { value, consumed_bytes }) => break (value, consumed_bytes),
                    Ok(Decoded::Need { .. }) => {}
                    Err(_) => return End::Protocol,
                }
                match stream.read(&mut request[filled..]) {
                    Ok(0) => return if filled == 0 { End::Closed } else { End::Protocol },
                    Ok(got) => {
                        if filled == 0 {
                            stream.allow(REQUEST_TIME);
                        }
                        filled += got;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) if is_timeout(&error) => return if filled == 0 { End::Idle } else { End::Slow },
                    Err(_) => return End::Error,
                }
            };
            let (value, consumed_bytes) = decoded;
            stream.allow(ANSWER_TIME);
            match self.answer(stream, &value, source, &mut attached, &mut answer) {
                Ok(()) => {}
                Err(error) if is_timeout(&error) => return End::Slow,
                Err(_) => return End::Error,
            }
            request.copy_within(consumed_bytes..filled, 0);
            filled -= consumed_bytes;
        }
    }

    fn answer(
        &self,
        stream: &mut DeadlineStream,
        request: &Request,
        source: IpAddr,
        attached: &mut Option<Attached>,
        out: &mut [u8],
    ) -> io::Result<()> {
        let count = u32::from(request.header.count());
        let granted =
            self.rates.lock().unwrap_or_else(PoisonError::into_inner).take(source, count, host::boot_time_ns());
        out[..HEADER_BYTES].copy_from_slice(&request.header.to_bytes());
        let mut used = HEADER_BYTES;
        let mut is_sampled = !self.sampler.is_per_read();
        for (number, read) in (0..).zip(request.reads()) {
            let longest = ITEM_HEADER_BYTES + if read.check_length().is_ok() { read.length_bytes as usize } else { 0 };
            if used + longest > out.len() {
                stream.write_all(&out[..used])?;
                used = 0;
            }
            let data = used + ITEM_HEADER_BYTES;
            let mut outcome =
                if number < granted { self.served.read(&read, &mut out[data..]) } else { Err(Refusal::Overloaded) };
            if outcome.is_ok() && attached.is_none() {
                // Only who has a key gets procfs sampled; the sample belongs into this very answer.
                *attached = Some(self.sampler.attach());
                is_sampled = true;
                outcome = self.served.read(&read, &mut out[data..]);
            } else if outcome.is_ok() && !is_sampled {
                self.sampler.sample_now();
                is_sampled = true;
                outcome = self.served.read(&read, &mut out[data..]);
            }
            let outcome = outcome.map(|()| read.length_bytes);
            match outcome {
                Ok(length_bytes) => {
                    self.counters.add(Counter::Reads, 1);
                    self.counters.add(Counter::ReadBytes, u64::from(length_bytes));
                }
                Err(Refusal::Access) => self.counters.add(Counter::RefusedAccess, 1),
                Err(Refusal::InvalidRequest) => self.counters.add(Counter::RefusedInvalid, 1),
                Err(Refusal::Overloaded) => self.counters.add(Counter::RefusedOverloaded, 1),
            }
            let header = encode_item_header(outcome).map_err(io::Error::other)?;
            out[used..data].copy_from_slice(&header);
            used = data + outcome.map_or(0, |length_bytes| length_bytes as usize);
        }
        stream.write_all(&out[..used])
    }
}
