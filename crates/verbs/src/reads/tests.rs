// SPDX-License-Identifier: Apache-2.0
//! [`Reads`] on the strict device of [`crate::fake`].

use std::collections::HashMap;

use super::*;
use crate::endpoint::Endpoint;
use crate::fake::{Agreement, Fake};

#[derive(Default)]
struct Answers(HashMap<(Flow, u64), Vec<Block>>);

impl Memory for Answers {
    fn of(&mut self, flow: Flow, tag: u64, bytes: u32) -> &mut [Block] {
        let place = self.0.entry((flow, tag)).or_default();
        place.resize(bytes.div_ceil(1024) as usize, Block::default());
        place
    }
}

fn read(tag: u64, blocks: u32) -> Read {
    Read { tag, va: tag * 4096, rkey: 1, bytes: blocks * 1024, deadline_ns: u64::MAX }
}

fn is_right(blocks: &[Block], va: u64) -> bool {
    (va..).step_by(1024).zip(blocks).all(|(va, block)| block.0[0] == va && block.0[127] == va + 127 * 8)
}

/// Numbers that repeat from run to run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap_or(0) % below
    }
}

#[test]
fn whatever_is_asked_of_the_queue_it_never_fills_and_every_read_ends_once() {
    for depth in [1, 2, 4, 16, 64] {
        let settings = Settings { depth, max_read_blocks: 4 };
        let mut reads = Reads::new(Fake::new(8 * depth as usize));
        let flows: Vec<_> = (0..8)
            .map(|_| {
                let pair = reads.port_mut().pair(settings, Agreement::default());
                reads.add(pair).unwrap()
            })
            .collect();
        let (mut dice, mut tag, mut ended, mut answers) = (Dice(depth.into()), 0, Vec::new(), Answers::default());
        for _ in 0..4000 {
            let flow = flows[dice.roll(8) as usize];
            let wanted: Vec<_> = (0..dice.roll(12))
                .map(|_| {
                    tag += 1;
                    read(tag, 1 + dice.roll(4))
                })
                .collect();
            // What there is no room for is not asked again here.
            tag -= wanted.len() as u64 - reads.submit(flow, &wanted).unwrap() as u64;
            reads.port_mut().run(dice.roll(6) as usize);
            if dice.roll(3) == 0 {
                reads.poll(&mut answers, 0, &mut ended).unwrap();
            }
        }
        reads.port_mut().run(usize::MAX);
        reads.poll(&mut answers, 0, &mut ended).unwrap();
        let mut tags: Vec<_> = ended.iter().map(|one| one.tag).collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(1..=tag), "depth {depth}");
        assert!(ended.iter().all(|one| one.outcome == Outcome::Done));
        assert!(answers.0.iter().all(|((_, tag), blocks)| is_right(blocks, tag * 4096)));
        assert_eq!((reads.in_flight(), reads.counters().stray, reads.port().lost_completions), (0, 0, 0));
        assert!(tag > 1000 && reads.counters().completions <= reads.counters().posted);
    }
}

#[test]
fn a_batch_of_a_full_queue_has_few_completions() {
    let settings = Settings { depth: 64, max_read_blocks: 1 };
    let mut reads = Reads::new(Fake::new(64));
    let pair = reads.port_mut().pair(settings, Agreement::default());
    let flow = reads.add(pair).unwrap();
    let all: Vec<_> = (1..=64).map(|tag| read(tag, 1)).collect();
    assert_eq!(reads.submit(flow, &all).unwrap(), 64);
    assert_eq!(reads.submit(flow, &all).unwrap(), 0, "no room");
    reads.port_mut().run(64);
    let mut ended = Vec::new();
    reads.poll(&mut Answers::default(), 0, &mut ended).unwrap();
    assert_eq!((ended.len(), reads.counters().completions), (64, 4));
}

#[test]
fn one_failure_ends_a_flow_and_no_other() {
    let settings = Settings { depth: 8, max_read_blocks: 1 };
    let mut reads = Reads::new(Fake::new(16));
    let flows: [Flow; 2] = std::array::from_fn(|_| {
        let pair = reads.port_mut().pair(settings, Agreement::default());
        reads.add(pair).unwrap()
    });
    reads.port_mut().bad.push((3 * 4096, Status::Access));
    let all: Vec<_> = (1..=6).map(|tag| read(tag, 1)).collect();
    assert_eq!(reads.submit(flows[0], &all).unwrap(), 6);
    assert_eq!(reads.submit(flows[1], &[read(10, 1)]).unwrap(), 1);
    reads.port_mut().run(8);
    let mut ended = Vec::new();
    reads.poll(&mut Answers::default(), 0, &mut ended).unwrap();
    let of = |flow, ended: &[Ended]| -> Vec<_> {
        ended.iter().filter(|one| one.flow == flow).map(|one| (one.tag, one.outcome)).collect()
    };
    let (done, flushed) = (Outcome::Done, Outcome::Failed(Status::Flushed));
    let expected =
        [(1, done), (2, done), (3, Outcome::Failed(Status::Access)), (4, flushed), (5, flushed), (6, flushed)];
    assert_eq!(of(flows[0], &ended), expected);
    assert_eq!(of(flows[1], &ended), [(10, done)]);
    assert_eq!((reads.failure(flows[0]), reads.failure(flows[1])), (Some(Status::Access), None));
    assert_eq!((reads.room(flows[0]), reads.submit(flows[0], &all).unwrap(), reads.in_flight()), (0, 0, 0));
}

#[test]
fn queue_pairs_that_all_fail_at_once_lose_no_completion() {
    let settings = Settings { depth: 16, max_read_blocks: 1 };
    // As much as is reserved in a completion queue, and no more.
    let mut reads = Reads::new(Fake::new(4 * 16));
    let flows: Vec<_> = (0..4)
        .map(|_| {
            let pair = reads.port_mut().pair(settings, Agreement { packets: (7, 8), ..Agreement::default() });
            reads.add(pair).unwrap()
        })
        .collect();
    let all: Vec<_> = (1..=16).map(|tag| read(tag, 1)).collect();
    for flow in &flows {
        assert_eq!(reads.submit(*flow, &all).unwrap(), 16);
    }
    reads.port_mut().run(16);
    let mut ended = Vec::new();
    reads.poll(&mut Answers::default(), 0, &mut ended).unwrap();
    assert_eq!((ended.len(), reads.port().lost_completions, reads.in_flight()), (64, 0, 0));
    assert_eq!(reads.failure(flows[3]), Some(Status::NoAnswer), "an old packet number is an answer to nothing");
}

#[test]
fn a_responder_asked_for_too_much_ends_the_connection_which_is_why_nobody_does() {
    let settings = Settings { depth: 8, max_read_blocks: 1 };
    let all: Vec<_> = (1..=8).map(|tag| read(tag, 1)).collect();
    let responder = Endpoint { queue_pair: 2, packet: 0, gid: [0; 16], mtu_bytes: 1024, reads_answered: 4 };
    let agreed = u32::from(responder.reads_from(8).unwrap());
    for (reads_sent, expected) in [(8, Some(Status::Invalid)), (agreed, None)] {
        let mut reads = Reads::new(Fake::new(8));
        let agreement = Agreement { reads_sent, reads_answered: 4, ..Agreement::default() };
        let pair = reads.port_mut().pair(settings, agreement);
        let flow = reads.add(pair).unwrap();
        reads.submit(flow, &all).unwrap();
        reads.port_mut().run(8);
        reads.poll(&mut Answers::default(), 0, &mut Vec::new()).unwrap();
        assert_eq!(reads.failure(flow), expected);
    }
}

#[test]
fn what_is_late_is_given_up_and_its_answer_disturbs_nobody() {
    let settings = Settings { depth: 2, max_read_blocks: 1 };
    let mut reads = Reads::new(Fake::new(2));
    let pair = reads.port_mut().pair(settings, Agreement::default());
    let flow = reads.add(pair).unwrap();
    let until = |tag, deadline_ns| Read { deadline_ns, ..read(tag, 1) };
    reads.submit(flow, &[until(1, 100), until(2, 200)]).unwrap();
    assert_eq!(reads.wake_ns(), Some(100));
    let (mut ended, mut answers) = (Vec::new(), Answers::default());
    reads.poll(&mut answers, 100, &mut ended).unwrap();
    assert_eq!(ended, [Ended { flow, tag: 1, outcome: Outcome::Timeout }]);
    assert_eq!((reads.wake_ns(), reads.room(flow), reads.in_flight()), (Some(200), 0, 1), "its place is not free");
    reads.port_mut().run(2);
    reads.poll(&mut answers, 150, &mut ended).unwrap();
    assert_eq!(ended[1..], [Ended { flow, tag: 2, outcome: Outcome::Done }]);
    assert_eq!((answers.0.len(), reads.room(flow), reads.failure(flow)), (1, 2, None));
}

#[test]
fn a_flow_that_is_gone_is_nobodys_although_its_place_is_taken_again() {
    let settings = Settings { depth: 4, max_read_blocks: 1 };
    let mut reads = Reads::new(Fake::new(8));
    let pair = reads.port_mut().pair(settings, Agreement::default());
    let old = reads.add(pair).unwrap();
    reads.submit(old, &[read(1, 1)]).unwrap();
    reads.port_mut().run(1);
    let mut ended = Vec::new();
    reads.remove(old, &mut ended);
    assert_eq!(ended, [Ended { flow: old, tag: 1, outcome: Outcome::Failed(Status::Flushed) }]);
    let pair = reads.port_mut().pair(settings, Agreement::default());
    let new = reads.add(pair).unwrap();
    assert_ne!(old, new);
    reads.poll(&mut Answers::default(), 0, &mut ended).unwrap();
    assert_eq!((ended.len(), reads.counters().stray, reads.submit(old, &[read(2, 1)]).unwrap()), (1, 1, 0));
    reads.remove(old, &mut ended);
    assert_eq!((ended.len(), reads.room(new)), (1, 4));
}

#[test]
fn a_batch_that_the_device_refuses_ends_the_flow_and_counts_nothing() {
    let settings = Settings { depth: 4, max_read_blocks: 1 };
    let mut reads = Reads::new(Fake::new(4));
    let pair = reads.port_mut().pair(settings, Agreement::default());
    pair.borrow_mut().refuses = true;
    let flow = reads.add(pair).unwrap();
    assert!(reads.submit(flow, &[read(1, 1)]).is_err());
    assert_eq!((reads.in_flight(), reads.failure(flow), reads.room(flow)), (0, Some(Status::Flushed), 0));
}

#[test]
fn what_one_poll_leaves_is_not_late_and_not_slept_upon() {
    // Every READ of a queue of one is signalled: more completions than one poll takes.
    let settings = Settings { depth: 1, max_read_blocks: 1 };
    let count = MAX_POLLS * MAX_POLL + 100;
    let mut reads = Reads::new(Fake::new(count));
    for _ in 0..count {
        let pair = reads.port_mut().pair(settings, Agreement::default());
        let flow = reads.add(pair).unwrap();
        assert_eq!(reads.submit(flow, &[Read { deadline_ns: 5, ..read(1, 1) }]).unwrap(), 1);
    }
    reads.port_mut().run(1);
    let (mut ended, mut answers) = (Vec::new(), Answers::default());
    reads.poll(&mut answers, 10, &mut ended).unwrap();
    assert_eq!((ended.len(), reads.wake_ns()), (MAX_POLLS * MAX_POLL, Some(0)));
    reads.poll(&mut answers, 10, &mut ended).unwrap();
    assert_eq!((ended.len(), reads.wake_ns()), (count, None));
    assert!(ended.iter().all(|one| one.outcome == Outcome::Done));
}

#[test]
fn a_part_of_a_block_leaves_the_rest_alone() {
    let settings = Settings { depth: 1, max_read_blocks: 2 };
    let mut reads = Reads::new(Fake::new(1));
    let pair = reads.port_mut().pair(settings, Agreement::default());
    let flow = reads.add(pair).unwrap();
    let mut answers = Answers::default();
    answers.0.insert((flow, 1), vec![Block([7; 128]); 2]);
    reads.submit(flow, &[Read { bytes: 1024 + 16, ..read(1, 1) }]).unwrap();
    reads.port_mut().run(1);
    reads.poll(&mut answers, 0, &mut Vec::new()).unwrap();
    let words: Vec<u64> = answers.0[&(flow, 1)].iter().flat_map(|block| block.0).collect();
    assert!(words[..130].iter().zip((4096..).step_by(8)).all(|(word, va)| *word == va));
    assert!(words[130..].iter().all(|word| *word == 7));
}
