// SPDX-License-Identifier: Apache-2.0
use super::*;
use onlooker_region::Block;
use onlooker_wire::tcp_read::{Refusal, Request, encode_item_header};

fn read(id: u64, at: u32, blocks: u32) -> Read {
    Read { id, va: id * 0x10_000, rkey: 7, at, blocks, deadline_ns: 1_000 + id }
}

/// What an honest responder answers: each block's words are its address; rkey 9 is refused.
fn answer(mut requests: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Ok(Decoded::Complete { value, consumed_bytes }) = Request::decode(requests) {
        requests = &requests[consumed_bytes..];
        out.extend(value.header.to_bytes());
        for read in value.reads() {
            if read.rkey == 9 {
                out.extend(encode_item_header(Err(Refusal::Access)).unwrap());
                continue;
            }
            out.extend(encode_item_header(Ok(read.length_bytes)).unwrap());
            for word in (read.va..).step_by(8).take(read.length_bytes as usize / 8) {
                out.extend(word.to_le_bytes());
            }
        }
    }
    assert!(requests.is_empty(), "whole requests only");
    out
}

fn take(
    exchange: &mut Exchange,
    mut bytes: &[u8],
    chunk: usize,
    memory: &mut [Block],
) -> Result<Vec<Completion>, Error> {
    let mut completions = Vec::new();
    while !bytes.is_empty() {
        let space = exchange.space();
        let count = bytes.len().min(space.len()).min(chunk.max(1));
        space[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        exchange.received(count, memory, &mut completions)?;
    }
    Ok(completions)
}

fn send_all(exchange: &mut Exchange) -> Vec<u8> {
    let bytes = exchange.outgoing().to_vec();
    exchange.sent(bytes.len());
    bytes
}

#[test]
fn every_read_completes_once_with_its_bytes_however_the_stream_is_cut() {
    bolero::check!().with_type::<(Vec<(u8, bool)>, u16)>().for_each(|(shapes, chunk)| {
        let mut exchange = Exchange::new(64);
        let mut at = 0;
        let reads: Vec<Read> = (0u64..)
            .zip(shapes.iter().take(600))
            .map(|(id, (blocks, refused))| {
                let blocks = u32::from(*blocks % 4) + 1;
                at += blocks;
                Read { rkey: if *refused { 9 } else { 7 }, ..read(id, at - blocks, blocks) }
            })
            .collect();
        let mut memory = vec![Block::default(); at as usize];
        assert_eq!(exchange.submit(&reads), reads.len());
        let bytes = answer(&send_all(&mut exchange));
        let completions = take(&mut exchange, &bytes, usize::from(*chunk), &mut memory).unwrap();
        assert_eq!((completions.len(), exchange.in_flight()), (reads.len(), 0));
        for (read, completion) in reads.iter().zip(&completions) {
            let refused = read.rkey == 9;
            let outcome = if refused { Outcome::Refused(Refusal::Access) } else { Outcome::Done };
            assert_eq!(*completion, Completion { id: read.id, outcome });
            for (number, block) in (0u64..).zip(&memory[read.at as usize..][..read.blocks as usize]) {
                let first = if refused { 0 } else { read.va + number * 1024 };
                assert_eq!((block.0[0], block.0[127]), (first, if refused { 0 } else { first + 127 * 8 }));
            }
        }
    });
}

#[test]
fn a_late_answer_touches_nothing() {
    let mut exchange = Exchange::new(64);
    let mut memory = vec![Block::default(); 2];
    exchange.submit(&[read(1, 0, 1), read(50, 1, 1)]);
    let bytes = answer(&send_all(&mut exchange));
    let mut completions = Vec::new();
    exchange.expire(1_000, &mut completions);
    assert_eq!(completions, []);
    exchange.expire(1_001, &mut completions);
    assert_eq!(completions, [Completion { id: 1, outcome: Outcome::Timeout }]);
    exchange.expire(1_049, &mut completions);
    assert_eq!((completions.len(), exchange.in_flight()), (1, 1));
    let rest = take(&mut exchange, &bytes, 100, &mut memory).unwrap();
    assert_eq!(rest, [Completion { id: 50, outcome: Outcome::Done }]);
    assert_eq!((memory[0], exchange.late()), (Block::default(), 1), "the caller may have given the block away");
    assert_eq!(exchange.in_flight(), 0);
}

#[test]
fn what_is_under_way_is_bounded_and_lost_together() {
    let mut exchange = Exchange::new(64);
    let reads: Vec<Read> = (0..5_000).map(|id| read(id, 0, 1)).collect();
    assert_eq!(exchange.submit(&reads), MAX_IN_FLIGHT);
    assert_eq!(exchange.submit(&reads), 0);
    let mut completions = Vec::new();
    exchange.expire(1_009, &mut completions);
    exchange.lose(&mut completions);
    let timeouts = completions.iter().filter(|c| c.outcome == Outcome::Timeout).count();
    assert_eq!((completions.len(), timeouts, exchange.in_flight()), (MAX_IN_FLIGHT, 10, 0));
    assert!(exchange.outgoing().is_empty());
}

#[test]
fn single_reads_are_bounded_by_their_requests() {
    let mut exchange = Exchange::new(64);
    let taken: usize = (0..1_000).map(|id| exchange.submit(&[read(id, 0, 1)])).sum();
    assert_eq!(taken, MAX_REQUESTS);
}

#[test]
fn answers_that_are_none_are_refused() {
    let submit = || {
        let mut exchange = Exchange::new(64);
        exchange.submit(&[read(1, 0, 1), read(2, 1, 1)]);
        let bytes = answer(&send_all(&mut exchange));
        (exchange, bytes)
    };
    let changed = |at: usize, to: u8| {
        let (mut exchange, mut bytes) = submit();
        bytes[at] = to;
        take(&mut exchange, &bytes, 7, &mut [Block::default(); 2]).unwrap_err()
    };
    assert!(matches!(changed(0, 9), Error::Unexpected { got: 9, expected: 0, .. }), "another request");
    assert!(matches!(changed(4, 1), Error::Unexpected { got_count: 1, .. }));
    assert!(matches!(changed(5, 200), Error::Count(_)));
    assert!(matches!(changed(7, 1), Error::Reserved(_)));
    assert!(matches!(changed(8, 4), Error::Status(4)));
    assert!(matches!(changed(8, 1), Error::ItemLength { expected_bytes: 0, .. }), "a refusal with data");
    assert!(matches!(changed(15, 255), Error::ItemLength { .. }), "a huge length is not waited for");
    let (mut exchange, mut bytes) = submit();
    bytes.push(0);
    let surplus = take(&mut exchange, &bytes, usize::MAX, &mut [Block::default(); 2]).unwrap_err();
    assert!(matches!(surplus, Error::Unexpected { .. }));
}

#[test]
fn any_bytes_are_taken_or_refused() {
    bolero::check!().with_type::<(Vec<u8>, Vec<(u16, u8)>, u8)>().for_each(|(bytes, changes, chunk)| {
        for honest in [false, true] {
            let mut exchange = Exchange::new(64);
            exchange.submit(&[read(1, 0, 1), read(2, 1, 2)]);
            let mut input = if honest { answer(&send_all(&mut exchange)) } else { bytes.clone() };
            for (at, to) in changes {
                if let Some(byte) = input.get_mut(usize::from(*at) % 4096) {
                    *byte = *to;
                }
            }
            let mut memory = vec![Block::default(); 3];
            if let Ok(completions) = take(&mut exchange, &input, usize::from(*chunk), &mut memory) {
                assert_eq!(completions.len() + exchange.in_flight(), 2);
            }
        }
    });
}
