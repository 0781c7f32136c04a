// SPDX-License-Identifier: Apache-2.0
//! TCP connections: a row each in region `tcp_connections`, and what a service port has of them in region `tcp_ports`.
//!
//! Filled from the kernel's sockets in the agent's network namespace ([`crate::connections`]). A row's entity is the socket's cookie, so a tuple that was closed and
//! opened again between two runs is another row generation. What ports have transferred is summed from what each connection has gained since the last run: a connection that
//! nobody has seen counts with all it has. What one transfers between the last run that saw it and its end is missed, unless ends are noticed (`short_lived`).
//!
//! Memory: 160 B a row in the slab, as much again in the agent, and 48 B for each connection's last totals. A connection is found by its cookie, whose row is known then: the
//! key, which has what other hosts choose, is hashed (SipHash) only when a connection gets its row.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv6Addr;

use onlooker_region::Schema;
use onlooker_region::histogram::Shape;
use onlooker_region::schema::{Field, Metric, Type};
use onlooker_region::table::Layout;
use onlooker_settings::units::Span;

use super::hash::ByProduct;
use super::schema::{Column, address, array, counter, fields, gauge, number, summary, table};
use super::sheet::{NO_ROW, Sheet, Unplaced};
use super::{Ground, Region, Source, TOLD_SLOTS, Told};
use crate::connections::{Connections, ESTABLISHED, Ended, LISTEN, Record};

/// Region of single connections.
pub const TABLE: &str = "tcp_connections";
/// Region of ports.
pub const PORTS: &str = "tcp_ports";

/// Of include/net/tcp_states.h from 1 on, as node_exporter calls them; the last one it has not.
pub(crate) const STATES: [&str; 12] = [
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
    "new_syn_recv",
];
/// Microseconds up to 16 s, a bucket for each power of two.
const RTT: Shape = Shape { grouping_power: 0, max_power: 24 };
const RTT_SLOTS: usize = 26;
/// Ports that a run looks at before it takes the others for one.
const MOST_PORTS: usize = 4096;
/// Port of all connections whose local port nobody listens on, or has no row.
const OTHERS: u16 = 0;
/// Words of the key: two addresses, two ports.
const KEY_WORDS: usize = 6;

const COLUMNS: [Column; 13] = [
    gauge("onlooker_tcp_connection_state", "Number of the state in the kernel's net/tcp_states.h; 1 is established."),
    counter("onlooker_tcp_connection_acked_bytes_total", "Bytes that the other end has acknowledged.").bytes(),
    counter("onlooker_tcp_connection_received_bytes_total", "Bytes received in order.").bytes(),
    counter("onlooker_tcp_connection_retransmits_total", "Segments sent again."),
    gauge("onlooker_tcp_connection_rtt_seconds", "Smoothed round trip time; 0: not measured yet.").seconds(1e-6),
    gauge("onlooker_tcp_connection_rttvar_seconds", "Mean deviation of the round trip time.").seconds(1e-6),
    gauge("onlooker_tcp_connection_congestion_window_segments", "Congestion window."),
    gauge("onlooker_tcp_connection_send_queue_bytes", "Bytes that the other end has not acknowledged.").bytes(),
    gauge("onlooker_tcp_connection_receive_queue_bytes", "Bytes that the program has not read.").bytes(),
    counter("onlooker_tcp_connection_sent_segments_total", "Segments sent."),
    counter("onlooker_tcp_connection_received_segments_total", "Segments received."),
    gauge("onlooker_tcp_connection_unacknowledged_segments", "Segments under way."),
    gauge("onlooker_tcp_connection_lost_segments", "Segments under way that are taken for lost."),
];

const SUMMARY: [Column; 4] = [
    counter("onlooker_tcp_connections_seen_total", "Connections that a run has seen for the first time."),
    counter("onlooker_tcp_connections_ended_total", "Connections whose end was noticed ([connections] short_lived)."),
    counter("onlooker_tcp_connections_short_total", "Of these, connections that no run had seen."),
    counter("onlooker_tcp_connections_unnoticed_total", "Ends that came too fast to be noticed."),
];

const STATE_AT: usize = 0;
const QUEUE_AT: usize = STATES.len();
const TOTALS_AT: usize = QUEUE_AT + 2;
const RTT_AT: usize = TOTALS_AT + TOTALS;
const PORT_SLOTS: usize = RTT_AT + RTT_SLOTS;
const TOTALS: usize = 4;

/// What an operator decides of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Time between two runs.
    pub interval: Span,
    /// Rows of connections.
    pub rows: u32,
    /// Rows of ports.
    pub ports: u32,
}

/// The classes of both regions.
#[must_use]
pub fn regions(options: &Options) -> Vec<Region> {
    let interval_ns = options.interval.as_ns();
    let key = vec![address("local_address"), number("local_port"), address("remote_address"), number("remote_port")];
    let connections = table(key, fields(0, &COLUMNS), options.rows as usize, interval_ns);
    let states = gauge("onlooker_tcp_sockets", "Sockets in this state.");
    let mut more = vec![array(&states, TOLD_SLOTS, "state", &STATES)];
    more.extend(fields(TOLD_SLOTS + STATES.len(), &SUMMARY));
    let of_ports = table(vec![number("port")], port_fields(), options.ports as usize, interval_ns);
    vec![
        Region { name: TABLE, schema: Schema { name: TABLE.into(), groups: vec![connections] } },
        Region {
            name: PORTS,
            schema: Schema { name: PORTS.into(), groups: vec![summary(TABLE, more, interval_ns), of_ports] },
        },
    ]
}

fn port_fields() -> Vec<Field> {
    let states = gauge("onlooker_tcp_port_connections", "Sockets of the local port in this state.");
    let mut all = vec![array(&states, STATE_AT, "state", &STATES)];
    let numbers = [
        gauge("onlooker_tcp_port_accept_queue", "Connections that the program has not accepted."),
        gauge("onlooker_tcp_port_accept_queue_limit", "Connections that can wait to be accepted."),
        counter("onlooker_tcp_port_acked_bytes_total", "Bytes that other ends have acknowledged.").bytes(),
        counter("onlooker_tcp_port_received_bytes_total", "Bytes received in order.").bytes(),
        counter("onlooker_tcp_port_retransmits_total", "Segments sent again."),
        counter("onlooker_tcp_port_sent_segments_total", "Segments sent."),
    ];
    all.extend(fields(QUEUE_AT, &numbers));
    let mut rtt = Field::new("onlooker_tcp_port_rtt_seconds", Metric::Histogram, Type::U64, 0);
    (rtt.slot, rtt.histogram) = (u32::try_from(RTT_AT).unwrap_or(u32::MAX), Some(RTT));
    (rtt.unit, rtt.scale) = ("seconds".into(), 1e-6);
    rtt.help = "Smoothed round trip times of established connections, one for each at each run.".into();
    all.push(rtt);
    all
}

/// Layout of a connection's row.
const LAYOUT: Layout = Layout { key_words: KEY_WORDS, value_words: COLUMNS.len() };
const PORT_LAYOUT: Layout = Layout { key_words: 1, value_words: PORT_SLOTS };
const _: () = assert!(RTT_SLOTS == 24 + 1 + 1, "a bucket for each power of two from 0 to 24, and the sum");

/// What a connection has transferred.
type Totals = [u64; TOTALS];

fn totals(record: &Record) -> Totals {
    let Record { bytes_acked, bytes_received, retransmits, segments_sent, .. } = *record;
    [bytes_acked, bytes_received, retransmits.into(), segments_sent.into()]
}

/// A connection at the last run that saw it.
#[derive(Debug, Clone, Copy)]
struct Tracked {
    run: u32,
    /// Where it was put then, if it was.
    row: u32,
    totals: Totals,
}

/// A port in one run.
#[derive(Debug, Clone, Copy)]
struct Port {
    states: [u64; STATES.len()],
    queue: u64,
    queue_limit: u64,
    gained: Totals,
    rtt: [u64; RTT_SLOTS],
}

impl Port {
    const NEW: Self =
        Self { states: [0; STATES.len()], queue: 0, queue_limit: 0, gained: [0; TOTALS], rtt: [0; RTT_SLOTS] };

    /// Begins a run: forgets all but what has been gained and not written yet.
    fn begin(&mut self) {
        *self = Self { gained: self.gained, ..Self::NEW };
    }

    fn gain(&mut self, totals: Totals, before: Totals) {
        for (gained, (now, before)) in self.gained.iter_mut().zip(totals.into_iter().zip(before)) {
            *gained += now.saturating_sub(before);
        }
    }

    fn observe(&mut self, rtt_us: u32) {
        if rtt_us > 0 {
            self.rtt[RTT.index(rtt_us.into())] += 1;
            self.rtt[RTT_SLOTS - 1] += u64::from(rtt_us);
        }
    }

    fn sockets(&self) -> u64 {
        self.states.iter().sum()
    }

    /// Adds what this has to another, which then stands for both.
    fn give_to(&self, other: &mut Self) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut other.states, &self.states);
        add(&mut other.gained, &self.gained);
        add(&mut other.rtt, &self.rtt);
    }

    fn write(&self, values: &mut [u64]) {
        values[STATE_AT..STATES.len()].copy_from_slice(&self.states);
        values[QUEUE_AT..TOTALS_AT].copy_from_slice(&[self.queue, self.queue_limit]);
        let more = self.gained.iter().chain(&self.rtt);
        values[TOTALS_AT..].iter_mut().zip(more).for_each(|(value, more)| *value = value.wrapping_add(*more));
    }
}

/// Where records come from: the kernel, or a test.
pub trait Sockets {
    /// All sockets that there are.
    ///
    /// # Errors
    /// They cannot be read.
    fn each(&mut self, take: &mut dyn FnMut(&Record)) -> Result<(), String>;

    /// Connections that have ended since the last call.
    ///
    /// # Errors
    /// They cannot be read.
    fn each_ended(&mut self, take: &mut dyn FnMut(&Record)) -> Result<Ended, String>;
}

impl Sockets for Connections {
    fn each(&mut self, take: &mut dyn FnMut(&Record)) -> Result<(), String> {
        Self::each(self, take).map(drop).map_err(|error| error.to_string())
    }

    fn each_ended(&mut self, take: &mut dyn FnMut(&Record)) -> Result<Ended, String> {
        Self::each_ended(self, take).map_err(|error| error.to_string())
    }
}

/// Both regions.
pub struct Table<S> {
    sockets: S,
    connections: Sheet<KEY_WORDS>,
    ports: Sheet<1>,
    summary: Ground,
    most_ports: usize,
    most_tracked: usize,
    tracked: HashMap<u64, Tracked, ByProduct>,
    /// Ports that somebody listens on.
    seen: HashMap<u16, Port, ByProduct>,
    others: Port,
    waiting: Vec<Record>,
    run: u32,
    new: u64,
    short: u64,
    told: Told,
}

impl<S: Sockets> Table<S> {
    /// In the memory of [`regions`].
    #[must_use]
    pub fn new(options: &Options, sockets: S, grounds: &[Ground], now_ns: u64) -> Self {
        let (rows, most_ports) = (options.rows as usize, options.ports as usize);
        let port_blocks = grounds[1].memory.words().len() / onlooker_region::limits::BLOCK_WORDS - 1;
        let (of_all, of_ports) = (&grounds[0], grounds[1].group(1, port_blocks));
        let summary = grounds[1].group(0, 1);
        summary.put(&[], now_ns);
        Self {
            sockets,
            connections: Sheet::new(LAYOUT, rows, of_all.memory.clone(), of_all.identity, now_ns),
            ports: Sheet::new(PORT_LAYOUT, most_ports, of_ports.memory, of_ports.identity, now_ns),
            summary,
            most_ports,
            // Ports are to be right for more connections than there are rows.
            most_tracked: rows * 2,
            tracked: HashMap::default(),
            seen: HashMap::default(),
            others: Port::NEW,
            waiting: Vec::new(),
            run: 0,
            new: 0,
            short: 0,
            told: Told::default(),
        }
    }

    fn write_ports(&mut self, now_ns: u64) {
        let mut others = std::mem::replace(&mut self.others, Port::NEW);
        let mut ranked: Vec<(u64, u16)> = self
            .seen
            .iter()
            .map(|(port, seen)| {
                // One that has a row keeps it until another has twice as many: rows do not go to and fro.
                let weight = 1 + u64::from(self.ports.contains(&[u64::from(*port)]));
                (seen.sockets().saturating_mul(weight), *port)
            })
            .collect();
        ranked.sort_unstable_by_key(|(sockets, port)| (std::cmp::Reverse(*sockets), *port));
        for (_, port) in ranked.iter().skip(self.most_ports - 1) {
            if let Some(port) = self.seen.remove(port) {
                port.give_to(&mut others);
            }
        }
        self.seen.insert(OTHERS, others);
        self.ports.begin();
        let mut wanted: Vec<u16> = self.seen.keys().copied().collect();
        for _ in 0..2 {
            // Those that do not fit at first do when ports that are no more have left.
            wanted.retain(|port| match (self.ports.put(&[u64::from(*port)], 1), self.seen.get(port)) {
                (Ok(placed), Some(seen)) => {
                    seen.write(placed.values);
                    false
                }
                _ => true,
            });
            self.ports.sweep(|_, _| ());
        }
        self.ports.commit(now_ns);
        self.seen.clear();
    }
}

/// Puts a connection into its row, whose number it returns; `row`: where it was before.
fn place(connections: &mut Sheet<KEY_WORDS>, record: &Record, row: u32) -> Result<u32, Unplaced> {
    let placed = connections.put_at(row, &key(record), record.cookie)?;
    placed.values.copy_from_slice(&[
        record.state.into(),
        record.bytes_acked,
        record.bytes_received,
        record.retransmits.into(),
        record.srtt_us.into(),
        record.rttvar_us.into(),
        record.congestion_window.into(),
        record.send_queue.into(),
        record.receive_queue.into(),
        record.segments_sent.into(),
        record.segments_received.into(),
        record.unacknowledged.into(),
        record.lost.into(),
    ]);
    Ok(placed.row)
}

fn key(record: &Record) -> [u64; KEY_WORDS] {
    let words = |address: Ipv6Addr| {
        let octets = address.octets();
        let (halves, _) = octets.as_chunks::<8>();
        (u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1]))
    };
    let ((a, b), (c, d)) = (words(record.local), words(record.remote));
    [a, b, record.local_port.into(), c, d, record.remote_port.into()]
}

/// The port that a connection belongs to.
fn port_of<'a>(seen: &'a mut HashMap<u16, Port, ByProduct>, others: &'a mut Port, record: &Record) -> &'a mut Port {
    seen.get_mut(&record.local_port).unwrap_or(others)
}

impl<S: Sockets> Source for Table<S> {
    fn run(&mut self, now_ns: u64) -> Result<(), String> {
        let Self { sockets, connections, tracked, seen, others, waiting, told, new, short, most_tracked, .. } = self;
        self.run = self.run.wrapping_add(1);
        let run = self.run;
        // What a run that failed has left: nothing is to count twice, and what connections have gained, which is in `tracked` already, once.
        seen.values_mut().for_each(Port::begin);
        others.begin();
        waiting.clear();
        connections.begin();
        let mut states = [0; STATES.len()];
        let mut twice = 0;
        sockets.each(&mut |record| {
            let state = (record.state as usize).wrapping_sub(1);
            if let Some(count) = states.get_mut(state) {
                *count += 1;
            }
            // Listening sockets come first (tcp_seek_last_pos in net/ipv4/tcp_ipv4.c).
            if record.state == LISTEN && (seen.len() < MOST_PORTS || seen.contains_key(&record.local_port)) {
                let port = seen.entry(record.local_port).or_insert(Port::NEW);
                port.queue += u64::from(record.receive_queue);
                port.queue_limit += u64::from(record.send_queue);
            }
            let is_of_listener = seen.contains_key(&record.local_port);
            let port = port_of(seen, others, record);
            if let Some(count) = port.states.get_mut(state) {
                *count += 1;
            }
            if !record.is_connection() {
                return;
            }
            if record.state == ESTABLISHED {
                port.observe(record.srtt_us);
            }
            let totals = totals(record);
            let has_room = tracked.len() < *most_tracked;
            // Who is not tracked gains nothing: all that it has would count in each run.
            let mut untracked = Tracked { run, row: NO_ROW, totals };
            let mut is_new = false;
            let known = match tracked.entry(record.cookie) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(vacant) if has_room => {
                    (*new, is_new) = (*new + 1, true);
                    vacant.insert(Tracked { totals: [0; TOTALS], ..untracked })
                }
                Entry::Vacant(_) => &mut untracked,
            };
            known.run = run;
            // Its listener may have begun after the listening sockets were walked: what it has gained is told with the next run, of the right port.
            if is_of_listener || !is_new {
                port.gain(totals, known.totals);
                known.totals = totals;
            }
            match place(connections, record, known.row) {
                Ok(row) => known.row = row,
                Err(Unplaced::Full) if waiting.len() < *most_tracked => waiting.push(*record),
                Err(Unplaced::Full | Unplaced::Twice) => twice += 1,
            }
        })?;
        let ended = sockets.each_ended(&mut |record| {
            let port = port_of(seen, others, record);
            let totals = totals(record);
            if let Some(known) = tracked.get_mut(&record.cookie) {
                port.gain(totals, known.totals);
                known.totals = totals;
            } else {
                port.gain(totals, [0; TOTALS]);
                port.observe(record.srtt_us);
                *short += 1;
            }
        })?;
        tracked.retain(|_, tracked| tracked.run == run);
        connections.sweep(|_, _| ());
        let without = waiting.drain(..).filter(|record| place(connections, record, NO_ROW).is_err()).count();
        connections.commit(now_ns);
        told.rows = connections.len() as u64;
        told.missing = without as u64 + twice;
        let rest = [*new, ended.seen, *short, ended.dropped];
        self.write_ports(now_ns);
        let values: Vec<u64> = self.told.slots().into_iter().chain(states).chain(rest).collect();
        self.summary.put(&values, now_ns);
        Ok(())
    }

    fn told(&mut self) -> &mut Told {
        &mut self.told
    }
}

#[cfg(test)]
mod tests;
