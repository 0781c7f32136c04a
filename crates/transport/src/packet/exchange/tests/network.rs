// SPDX-License-Identifier: Apache-2.0
//! The exchange against a strict device, over a network that loses, doubles, reorders, delays, corrupts and forges.

use super::*;

/// How bad the network is: percentages.
#[derive(Clone, Copy, Debug)]
struct Network {
    loss: u64,
    duplicate: u64,
    corrupt: u64,
    forge: u64,
    delay_ns: u64,
    /// What one packet is slower than another.
    jitter_ns: u64,
}

const CALM: Network = Network { loss: 0, duplicate: 0, corrupt: 0, forge: 0, delay_ns: MS / 5, jitter_ns: 1 };

struct World {
    dice: Dice,
    exchange: Exchange,
    device: Device,
    memory: Vec<Block>,
    now_ns: u64,
    to_device: Vec<(u64, ReadRequest)>,
    to_reader: Vec<(u64, Vec<u8>)>,
    reads: Vec<Read>,
    outcomes: Vec<Option<(Outcome, Vec<u8>)>>,
    completions: Vec<Completion>,
    came: u64,
    /// READs in a hundred that have a wrong key.
    wrong_keys: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed | 1);
        let mtu_bytes = [256, 512, 1024, 1024, 4096][usize::try_from(dice.roll(5)).unwrap()];
        // Near the end of the circle, so that every run wraps.
        let first = 0xff_ffff - u32::try_from(dice.roll(20)).unwrap();
        let (exchange, mut device) = pair(first, mtu_bytes, u8::try_from(1 + dice.roll(20)).unwrap());
        device.goes_on = dice.percent(50);
        let wrong_keys = if dice.percent(20) { 3 } else { 0 };
        Self {
            dice,
            exchange,
            device,
            memory: Vec::new(),
            now_ns: START_NS,
            to_device: Vec::new(),
            to_reader: Vec::new(),
            reads: Vec::new(),
            outcomes: Vec::new(),
            completions: Vec::new(),
            came: 0,
            wrong_keys,
        }
    }

    fn submit(&mut self) {
        if self.exchange.broken().is_some() {
            return;
        }
        let (mut offered, mut at) = (Vec::new(), self.memory.len());
        for _ in 0..self.dice.roll(6) {
            let blocks = 1 + u32::try_from(self.dice.roll(4)).unwrap();
            offered.push(Read {
                id: (self.reads.len() + offered.len()) as u64,
                va: self.dice.roll(1 << 30) << 10,
                rkey: if self.dice.percent(self.wrong_keys) { KEY + 1 } else { KEY },
                at: u32::try_from(at).unwrap(),
                blocks,
                deadline_ns: self.now_ns + self.dice.roll(60 * MS),
            });
            at += blocks as usize;
        }
        let taken = self.exchange.submit(&offered);
        for read in &offered[..taken] {
            self.memory.resize(self.memory.len() + read.blocks as usize, BLANK);
            self.reads.push(*read);
            self.outcomes.push(None);
        }
    }

    /// When something that is sent now arrives; never, once, or twice.
    fn arrivals(&mut self, network: Network) -> Vec<u64> {
        let count = match self.dice.roll(100) {
            roll if roll < network.loss => 0,
            roll if roll < network.loss + network.duplicate => 2,
            _ => 1,
        };
        (0..count).map(|_| self.now_ns + network.delay_ns + self.dice.roll(network.jitter_ns)).collect()
    }

    /// Sends what is staged, sometimes only some of it, sometimes refused by the system.
    fn send(&mut self, network: Network) {
        let staged: Vec<ReadRequest> = self.exchange.stage().iter().map(|bytes| parse(bytes)).collect();
        if staged.is_empty() {
            return;
        }
        if self.dice.percent(3) {
            self.exchange.send_failed(self.now_ns);
            return;
        }
        let count = if self.dice.percent(80) { staged.len() as u64 } else { self.dice.roll(staged.len() as u64 + 1) };
        let count = usize::try_from(count).unwrap();
        self.exchange.sent(count, self.now_ns);
        for request in &staged[..count] {
            for at in self.arrivals(network) {
                self.to_device.push((at, *request));
            }
            if self.dice.percent(network.forge) {
                self.forge(request);
            }
        }
    }

    fn answer(&mut self, network: Network) {
        for request in arrived(&mut self.to_device, self.now_ns) {
            for reply in self.device.answer(&request, &host_memory) {
                let envelope = incoming(u16::try_from(self.dice.roll(1 << 16)).unwrap());
                let mut packet = reply.ip_packet(&envelope, Qpn::wrapping(OWN));
                if self.dice.percent(network.corrupt) {
                    let at = usize::try_from(self.dice.roll(packet.len() as u64)).unwrap();
                    packet[at] ^= 1 << self.dice.roll(8);
                }
                for at in self.arrivals(network) {
                    self.to_reader.push((at, packet.clone()));
                }
            }
        }
    }

    /// What somebody may send who has seen a request, but for answers that are right in everything.
    fn forge(&mut self, request: &ReadRequest) {
        let own = Qpn::wrapping(OWN);
        let payload = vec![0xee; 1024];
        let data = |psn, payload| Reply::Data { opcode: Opcode::Only, psn, payload };
        let aeth = |syndrome| Aeth { syndrome, msn: Msn::default() };
        let psn = request.psn;
        let packet = match self.dice.roll(6) {
            0 => data(psn, payload).ip_packet(&incoming(1), Qpn::wrapping(OWN ^ 1)),
            1 => data(self.exchange.asked, payload).ip_packet(&incoming(1), own),
            2 => data(psn.wrapping_add(1 << 22), payload).ip_packet(&incoming(1), own),
            3 => data(psn, vec![0xee; 100]).ip_packet(&incoming(1), own),
            4 => Reply::Nak { psn, code: NakCode::PsnSequence }.ip_packet(&incoming(1), own),
            _ => {
                let aeth = aeth(Syndrome::RnrNak { timer: 1 });
                ip_packet(&incoming(1), Acknowledge { destination: own, psn, aeth }.into())
            }
        };
        self.to_reader.push((self.now_ns, packet));
    }

    fn settle(&mut self) {
        for Completion { id, outcome } in self.completions.drain(..) {
            let index = usize::try_from(id).unwrap();
            let read = self.reads[index];
            let blocks = &self.memory[read.at as usize..][..read.blocks as usize];
            let bytes: Vec<u8> = blocks.iter().flat_map(|block| block.bytes().to_vec()).collect();
            match outcome {
                Outcome::Done => {
                    assert!(bytes == contents(read.va, bytes.len()), "wrong bytes");
                    assert_eq!(read.rkey, KEY);
                }
                Outcome::Refused(refusal) => assert_eq!((refusal, read.rkey), (Refusal::Access, KEY + 1)),
                Outcome::Timeout => assert!(read.deadline_ns <= self.now_ns, "too early"),
                Outcome::Lost => assert!(self.exchange.broken().is_some()),
            }
            assert!(self.outcomes[index].replace((outcome, bytes)).is_none(), "completed twice");
        }
        let exchange = &self.exchange;
        assert!(exchange.readings.len() <= exchange.window && exchange.window <= self.device.most);
        assert_eq!(exchange.in_flight(), self.outcomes.iter().filter(|outcome| outcome.is_none()).count());
        for (outcome, read) in self.outcomes.iter().zip(&self.reads) {
            assert!(outcome.is_some() || self.now_ns < read.deadline_ns, "overdue");
        }
    }

    fn step(&mut self, network: Network) {
        self.answer(network);
        for packet in arrived(&mut self.to_reader, self.now_ns) {
            self.came += 1;
            self.exchange.received(&packet, self.now_ns, &mut self.memory, &mut self.completions);
        }
        self.exchange.advance(self.now_ns, &mut self.completions);
        self.settle();
        self.send(network);
    }

    /// When something happens next.
    fn next_ns(&self) -> Option<u64> {
        let ways = self.to_device.iter().map(|(at, _)| at).chain(self.to_reader.iter().map(|(at, _)| at));
        let unsent = self.exchange.has_unsent().then_some(self.now_ns + 1);
        ways.copied().chain(self.exchange.wake_ns()).chain(unsent).min()
    }

    /// Lets the rest end, and looks whether anything moved after it had ended.
    fn finish(mut self) {
        let mut steps = 0;
        while let Some(next_ns) = self.next_ns() {
            self.now_ns = self.now_ns.max(next_ns);
            self.step(CALM);
            steps += 1;
            assert!(steps < 20_000, "goes on for ever: {:?}", self.exchange);
        }
        match self.exchange.broken() {
            None => assert!(!self.device.is_in_error),
            Some(Broken::QueuePair(Fault::Access)) => assert!(self.device.is_in_error),
            // Its word may be lost, and whatever is asked then.
            Some(Broken::QueuePair(Fault::NoAnswer)) => assert!(self.exchange.counters().timeouts > 7),
            Some(other) => panic!("{other}"),
        }
        assert!(self.exchange.readings.is_empty() && self.exchange.in_flight() == 0);
        for (outcome, read) in self.outcomes.iter().zip(&self.reads) {
            let (_, bytes) = outcome.as_ref().expect("every READ has ended");
            let blocks = &self.memory[read.at as usize..][..read.blocks as usize];
            assert!(blocks.iter().zip(bytes.chunks(BLOCK)).all(|(block, then)| block.bytes() == then), "written late");
        }
        assert_eq!(came(self.exchange.counters()), self.came, "a packet without a counter");
    }
}

/// Takes out what has arrived, in order.
fn arrived<T>(ways: &mut Vec<(u64, T)>, now_ns: u64) -> Vec<T> {
    ways.sort_by_key(|(at, _)| *at);
    let count = ways.partition_point(|(at, _)| *at <= now_ns);
    ways.drain(..count).map(|(_, what)| what).collect()
}

#[test]
fn every_read_ends_once_with_the_right_bytes_whatever_the_network_does() {
    bolero::check!().with_type::<u64>().for_each(|seed| {
        let mut world = World::new(*seed);
        let dice = &mut world.dice;
        let delay_ns = [MS / 5, 5 * MS, 40 * MS][usize::try_from(dice.roll(3)).unwrap()];
        let network = Network {
            loss: dice.roll(15),
            duplicate: dice.roll(20),
            corrupt: dice.roll(10),
            forge: dice.roll(10),
            delay_ns,
            jitter_ns: if dice.percent(50) { 1 } else { delay_ns },
        };
        for _ in 0..60 {
            world.submit();
            world.now_ns += world.dice.roll(2 * MS);
            world.step(network);
        }
        world.finish();
    });
}

#[test]
fn losses_alone_cost_time_only() {
    let (mut done, mut timed_out) = (0, 0);
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.wrong_keys = 0;
        let network = Network { loss: 3, ..CALM };
        for _ in 0..100 {
            world.submit();
            world.now_ns += MS;
            world.step(network);
        }
        let Counters { reads_done, reads_timed_out, .. } = *world.exchange.counters();
        (done, timed_out) = (done + reads_done, timed_out + reads_timed_out);
        world.finish();
    }
    assert!(done > 500 && done > timed_out, "{done} done, {timed_out} timed out");
}
