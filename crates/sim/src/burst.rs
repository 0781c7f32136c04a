// SPDX-License-Identifier: Apache-2.0
//! All hosts are read at once, until the last one is: the published experiment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::card::Card;
use crate::cluster::{Cluster, FRAGMENT_BYTES, REQUEST_BYTES};
use crate::port::Port;
use crate::reader::{Reader, Scheme};
use crate::sender::Sender;
use crate::socket::Thread;

/// A READ that was lost is sent again after that, ns.
const REPEATED_NS: u64 = 1_000_000;
/// A thread writes a request to a socket in that, ns.
const WRITTEN_NS: u64 = 1_000;
/// How long a neighbour's packet would wait is looked at so often, ns.
const SAMPLED_NS: u64 = 5_000;
/// A straggler begins each answer that much later in the mean, ns.
const STRAGGLES_NS: f64 = 2_000_000.0;

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Where.
    pub cluster: Cluster,
    /// How.
    pub scheme: Scheme,
    /// How many hosts.
    pub hosts: usize,
    /// Of each.
    pub host_bytes: u64,
    /// One host in so many is of the class before the others.
    pub high_part: Option<usize>,
    /// Packets that are lost, parts of all.
    pub loss: f64,
    /// Hosts that answer slowly, parts of all.
    pub stragglers: f64,
    /// Of everything that is by chance.
    pub seed: u64,
}

impl Burst {
    /// 128 KiB of each host, nothing lost, nobody slow.
    #[must_use]
    pub fn new(cluster: Cluster, scheme: Scheme, hosts: usize) -> Self {
        let (high_part, loss, stragglers, seed) = (None, 0.0, 0.0, 1);
        Self { cluster, scheme, hosts, host_bytes: 128 << 10, high_part, loss, stragglers, seed }
    }
}

/// What came out. Latencies are from the beginning until the last byte of a host has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Until the last host was read, ns.
    pub elapsed_ns: u64,
    /// Latency, mean of all hosts, ns.
    pub mean_ns: f64,
    /// Latency of those of the class before the others, mean, ns.
    pub high_mean_ns: f64,
    /// Latency of all but stragglers, p99, ns.
    pub good_p99_ns: u64,
    /// Payload, parts of the link.
    pub of_link: f64,
    /// Answers marked, parts of all.
    pub marked: f64,
    /// Time that hosts were paused, parts of that in which they had something to send.
    pub paused: f64,
    /// How much later a packet would have been that another program of a host sent to the controller's port, p99, ns.
    pub neighbour_p99_ns: u64,
    /// READs sent again.
    pub repeated: u64,
    /// States of queue pairs that the card fetched.
    pub fetched: u64,
    /// Bytes that might be under way at the end.
    pub total_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request comes to a host.
    Request { host: usize },
    /// A host sends an answer.
    Send { host: usize },
    /// An answer comes to the switch.
    Switch { host: usize },
    /// It comes to the controller.
    Answer { host: usize, is_marked: bool },
    /// A READ is sent again.
    Repeat { host: usize },
    /// The thread has read so much of a socket.
    Read { host: usize, count: u64 },
}

struct World {
    burst: Burst,
    random: fastrand::Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    card: Card,
    port: Port,
    senders: Vec<Sender>,
    is_straggler: Vec<bool>,
    reader: Reader,
    thread: Thread,
    unread: Vec<u64>,
    done_ns: Vec<u64>,
    repeats: Vec<u64>,
    waits_ns: Vec<u64>,
    sampled_ns: u64,
    /// When the last answer left its host.
    sent_ns: u64,
    figures: Figures,
}

impl Burst {
    /// Runs it.
    #[must_use]
    pub fn run(self) -> Figures {
        World::new(self).run()
    }

    fn is_high(self, host: usize) -> bool {
        self.high_part.is_some_and(|part| host % part == part - 1)
    }
}

impl World {
    fn new(burst: Burst) -> Self {
        let Burst { cluster, scheme, hosts, host_bytes, .. } = burst;
        let mut random = fastrand::Rng::with_seed(burst.seed);
        let fragments = host_bytes.div_ceil(FRAGMENT_BYTES);
        Self {
            events: BinaryHeap::new(),
            number: 0,
            card: Card::new(hosts),
            port: Port::new(cluster),
            senders: (0..hosts).map(|_| Sender::new()).collect(),
            is_straggler: (0..hosts).map(|_| random.f64() < burst.stragglers).collect(),
            reader: Reader::new(scheme, cluster, hosts, fragments, |host| burst.is_high(host)),
            thread: Thread::new(hosts),
            unread: vec![fragments; hosts],
            done_ns: vec![0; hosts],
            repeats: vec![0; hosts],
            waits_ns: Vec::new(),
            sampled_ns: 0,
            sent_ns: 0,
            figures: Figures::default(),
            random,
            burst,
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at_ns, self.number, event)));
    }

    fn run(mut self) -> Figures {
        let mut asked = Vec::new();
        self.reader.begin(0, &mut asked);
        self.post(&mut asked, 0);
        while let Some(Reverse((now_ns, _, event))) = self.events.pop() {
            self.sample(now_ns);
            match event {
                Event::Request { host } => self.request(host, now_ns),
                Event::Send { host } => self.send(host, now_ns),
                Event::Switch { host } => self.switch(host, now_ns),
                Event::Answer { host, is_marked } => self.answer(host, is_marked, now_ns, &mut asked),
                Event::Repeat { host } => {
                    (self.repeats[host], self.figures.repeated) = (self.repeats[host] + 1, self.figures.repeated + 1);
                    self.post(&mut vec![host], now_ns);
                }
                Event::Read { host, count } => self.read(host, count, now_ns),
            }
        }
        self.settled()
    }

    /// Sends requests.
    fn post(&mut self, asked: &mut Vec<usize>, now_ns: u64) {
        let wire_ns = self.burst.cluster.wire_ns(REQUEST_BYTES);
        let mut written_ns = now_ns;
        let mut last = None;
        for host in asked.drain(..) {
            let left_ns = if self.burst.scheme == Scheme::Tcp {
                // One request for all of a host.
                written_ns += u64::from(last.replace(host) != Some(host)) * WRITTEN_NS;
                written_ns
            } else {
                self.card.post(host, now_ns, wire_ns)
            };
            self.at(left_ns + self.burst.cluster.round_trip_ns / 2, Event::Request { host });
        }
    }

    fn request(&mut self, host: usize, now_ns: u64) {
        let slow_ns = if self.is_straggler[host] { -self.random.f64().max(1e-9).ln() * STRAGGLES_NS } else { 0.0 };
        let sender = &mut self.senders[host];
        sender.waiting += 1;
        if !std::mem::replace(&mut sender.is_busy, true) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds")]
            let at_ns = (now_ns + slow_ns as u64).max(sender.next_ns);
            self.at(at_ns, Event::Send { host });
        }
    }

    fn send(&mut self, host: usize, now_ns: u64) {
        let until_ns = self.port.paused_until_ns();
        if until_ns > now_ns {
            self.at(until_ns, Event::Send { host });
            return;
        }
        let Cluster { round_trip_ns, .. } = self.burst.cluster;
        let wire_ns = self.burst.cluster.answer_ns();
        let sender = &mut self.senders[host];
        sender.waiting -= 1;
        sender.next_ns = now_ns + sender.gap_ns(now_ns, wire_ns);
        sender.is_busy = sender.waiting > 0;
        self.sent_ns = now_ns;
        let next_ns = sender.is_busy.then_some(sender.next_ns);
        self.at(now_ns + wire_ns + round_trip_ns / 4, Event::Switch { host });
        if let Some(next_ns) = next_ns {
            self.at(next_ns, Event::Send { host });
        }
    }

    fn switch(&mut self, host: usize, now_ns: u64) {
        if self.random.f64() < self.burst.loss {
            self.at(now_ns + REPEATED_NS, Event::Repeat { host });
            return;
        }
        let passed = self.port.pass(now_ns, self.burst.cluster.answer_ns(), self.random.f64());
        let at_ns = passed.at_ns + self.burst.cluster.round_trip_ns / 4;
        self.at(at_ns, Event::Answer { host, is_marked: passed.is_marked });
    }

    fn answer(&mut self, host: usize, is_marked: bool, now_ns: u64, asked: &mut Vec<usize>) {
        if self.burst.scheme == Scheme::Tcp {
            self.thread.came(host);
            self.read_next(now_ns);
            return;
        }
        if is_marked {
            self.senders[host].marked(now_ns);
        }
        if self.repeats[host] > 0 {
            self.repeats[host] -= 1;
            self.reader.recovered();
        }
        if self.reader.answered(host, is_marked, now_ns, asked) {
            self.done_ns[host] = now_ns;
        }
        self.post(asked, now_ns);
    }

    fn read_next(&mut self, now_ns: u64) {
        if let Some((host, count)) = self.thread.next() {
            let read_ns = count * FRAGMENT_BYTES * 1_000_000_000 / self.burst.cluster.socket_bytes_per_s;
            self.at(now_ns + read_ns, Event::Read { host, count });
        }
    }

    fn read(&mut self, host: usize, count: u64, now_ns: u64) {
        self.thread.is_busy = false;
        self.unread[host] -= count;
        if self.unread[host] == 0 {
            self.done_ns[host] = now_ns;
            self.thread.is_whole();
        }
        self.read_next(now_ns);
    }

    fn sample(&mut self, now_ns: u64) {
        while self.sampled_ns <= now_ns {
            let paused_ns = self.port.paused_until_ns().saturating_sub(self.sampled_ns);
            self.waits_ns.push(paused_ns + self.port.queue_ns(self.sampled_ns));
            self.sampled_ns += SAMPLED_NS;
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn settled(mut self) -> Figures {
        let Burst { cluster, hosts, host_bytes, .. } = self.burst;
        let mean = |of: &dyn Fn(usize) -> bool| {
            let done: Vec<u64> = (0..hosts).filter(|host| of(*host)).map(|host| self.done_ns[host]).collect();
            done.iter().sum::<u64>() as f64 / done.len().max(1) as f64
        };
        let elapsed_ns = self.done_ns.iter().copied().max().unwrap_or(0);
        let bits = (hosts as u64 * host_bytes * 8) as f64;
        let good = (0..hosts).filter(|host| !self.is_straggler[*host]);
        let mut good: Vec<u64> = good.map(|host| self.done_ns[host]).collect();
        Figures {
            elapsed_ns,
            mean_ns: mean(&|_| true),
            high_mean_ns: mean(&|host| self.burst.is_high(host)),
            good_p99_ns: p99(&mut good),
            of_link: bits / (elapsed_ns as f64 * 1e-9) / cluster.bits_per_s as f64,
            marked: self.port.marked as f64 / self.port.passed as f64,
            paused: (self.port.paused_ns as f64 / self.sent_ns.max(1) as f64).min(1.0),
            neighbour_p99_ns: p99(&mut self.waits_ns),
            fetched: self.card.fetched,
            total_bytes: self.reader.total_bytes(),
            ..self.figures
        }
    }
}

fn p99(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get((values.len() * 99 / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{FAST, SLOW};

    #[test]
    fn one_host_is_read_at_the_rate_of_its_link() {
        for cluster in [SLOW, FAST] {
            let figures = Burst { host_bytes: 4 << 20, ..Burst::new(cluster, Scheme::Unbounded, 1) }.run();
            assert!(figures.of_link > 0.9, "{figures:?}");
            let wire_ns = cluster.answer_ns();
            let single = Burst { host_bytes: FRAGMENT_BYTES, ..Burst::new(cluster, Scheme::Ours, 1) }.run();
            let least_ns = cluster.round_trip_ns + 2 * wire_ns;
            assert!((least_ns - 10..least_ns + 300).contains(&single.elapsed_ns), "{single:?}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_figures() {
        let lossy = Burst { loss: 0.01, stragglers: 0.1, ..Burst::new(FAST, Scheme::Ours, 100) };
        assert_eq!(lossy.run(), lossy.run());
        assert_ne!(lossy.run(), Burst { seed: 2, ..lossy }.run());
        assert!(lossy.run().repeated > 10, "{:?}", lossy.run());
    }

    #[test]
    fn every_scheme_reads_all_hosts() {
        for scheme in Scheme::ALL {
            let figures = Burst::new(SLOW, scheme, 300).run();
            assert!(
                figures.elapsed_ns > 0 && figures.mean_ns > 0.0 && figures.of_link < 0.98,
                "{scheme:?} {figures:?}"
            );
        }
    }

    #[test]
    fn more_hosts_than_bytes_stay_within_the_total() {
        let figures = Burst::new(SLOW, Scheme::Ours, 1_000).run();
        let longest_ns = SLOW.wire_ns(512 << 10);
        assert!(figures.of_link > 0.9 && figures.neighbour_p99_ns < longest_ns, "{figures:?}");
        assert_eq!((figures.marked, figures.paused), (0.0, 0.0));
    }

    #[test]
    fn on_a_long_way_the_total_grows_until_the_link_is_full() {
        let far = Cluster { round_trip_ns: 400_000, ..SLOW };
        let figures = Burst::new(far, Scheme::Ours, 2_000).run();
        // 256 KiB in 400 us are a fifth of it.
        assert!(figures.of_link > 0.8 && figures.total_bytes > 1 << 20, "{figures:?}");
    }
}
