// SPDX-License-Identifier: Apache-2.0
//! The TCP requester and the reader against responders on real sockets, honest and not.

#[path = "../../reader/tests/common/memory.rs"]
#[allow(dead_code, unreachable_pub)]
mod memory;
#[path = "../../reader/tests/common/stream.rs"]
#[allow(dead_code, unreachable_pub)]
mod stream;

use memory::{Host, Memory, Shared};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Broken, Completion, Limits, Outcome, Read, Requester, Session, Via};
use onlooker_region::Block;
use onlooker_transport::tcp::TcpRequester;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stream::{answer_stream, responder, serve};

const PATIENCE: Duration = Duration::from_secs(10);
const SECOND_NS: u64 = 1_000_000_000;

fn memory(blocks: usize) -> Arc<Memory> {
    let words = Shared::new(blocks);
    for block in 0..blocks {
        words.set(block, 0, block as u64);
    }
    let memory = Arc::new(Memory::default());
    memory.insert(1, 0, words);
    memory
}

fn connect(address: SocketAddr) -> TcpRequester {
    TcpRequester::connect(address, 64, PATIENCE).unwrap()
}

/// Drives reads to their end.
fn complete(requester: &mut TcpRequester, reads: &[Read], memory: &mut [Block]) -> (Vec<Completion>, Option<Broken>) {
    let (mut sent, mut completions) = (0, Vec::new());
    let begin = Instant::now();
    while completions.len() < reads.len() {
        assert!(begin.elapsed() < PATIENCE, "hangs");
        match requester.submit(&reads[sent..]) {
            Ok(taken) => sent += taken,
            Err(broken) => return (completions, Some(broken)),
        }
        if let Err(broken) = requester.poll(memory, steady_ns(), &mut completions) {
            return (completions, Some(broken));
        }
        requester.wait(Duration::from_millis(5)).unwrap();
    }
    (completions, None)
}

fn reads(count: u64, blocks: u32, deadline_ns: u64) -> Vec<Read> {
    let at = |id: u64| u32::try_from(id).unwrap() * blocks;
    (0..count).map(|id| Read { id, va: u64::from(at(id)) * 1024, rkey: 1, at: at(id), blocks, deadline_ns }).collect()
}

#[test]
fn thousands_of_reads_in_one_stream_all_arrive_at_their_place() {
    let memory = memory(12_000);
    let mut requester = connect(responder(&memory));
    for blocks in [1, 2, 64] {
        let reads = reads(12_000 / u64::from(blocks), blocks, u64::MAX);
        let mut into = vec![Block::default(); 12_000];
        let (completions, broken) = complete(&mut requester, &reads, &mut into);
        assert_eq!((completions.len(), broken, requester.in_flight()), (reads.len(), None, 0));
        assert!(completions.iter().all(|completion| completion.outcome == Outcome::Done));
        let covered = reads.len() * blocks as usize;
        assert!(into[..covered].iter().enumerate().all(|(index, block)| block.0[0] == index as u64));
    }
}

#[test]
fn a_read_without_answer_times_out_and_its_late_answer_changes_nothing() {
    let memory = memory(4);
    let slow = {
        let memory = memory.clone();
        serve(move |stream| {
            answer_stream(&memory, stream, |_, _| {
                std::thread::sleep(Duration::from_millis(200));
                true
            });
        })
    };
    let mut requester = connect(slow);
    let mut into = vec![Block([7; 128]); 4];
    let (completions, _) = complete(&mut requester, &reads(1, 1, steady_ns() + SECOND_NS / 20), &mut into);
    assert_eq!(completions, [Completion { id: 0, outcome: Outcome::Timeout }]);
    let next = Read { id: 9, at: 1, va: 1024, ..reads(1, 1, u64::MAX)[0] };
    let (completions, _) = complete(&mut requester, &[next], &mut into);
    assert_eq!(completions, [Completion { id: 9, outcome: Outcome::Done }]);
    assert_eq!((into[0], into[1].0[0]), (Block([7; 128]), 1), "the first place was not touched");
}

/// A responder that changes its answers' bytes.
fn liar(change: impl Fn(&mut Vec<u8>, &mut TcpStream) -> bool + Send + Sync + 'static) -> SocketAddr {
    let memory = memory(4);
    serve(move |stream| answer_stream(&memory, stream, &change))
}

#[test]
fn streams_out_of_step_break_with_everything_lost() {
    let broken = |address| {
        let mut requester = connect(address);
        let mut into = vec![Block::default(); 4];
        let (completions, broken) = complete(&mut requester, &reads(4, 1, u64::MAX), &mut into);
        assert!(completions.iter().all(|completion| completion.outcome == Outcome::Lost || completion.id == 0));
        assert_eq!((completions.len(), requester.in_flight()), (4, 0));
        let broken = broken.unwrap();
        assert_eq!(requester.submit(&reads(1, 1, 1)), Err(broken), "broken for good");
        broken
    };
    let patch = |at: usize, to: u8| {
        liar(move |bytes, _| {
            bytes[at] = to;
            true
        })
    };
    assert!(matches!(broken(patch(0, 77)), Broken::Garbage(_)), "another request's id");
    assert!(matches!(broken(patch(15, 0x7f)), Broken::Garbage(_)), "a huge length");
    assert!(matches!(broken(patch(8, 5)), Broken::Garbage(_)), "an unknown status");
    let early_end = liar(|bytes, stream| {
        let _ = stream.write_all(&bytes[..1500]);
        false
    });
    assert_eq!(broken(early_end), Broken::Closed);
    assert_eq!(broken(serve(drop)), Broken::Closed);
}

fn read_regions(address: SocketAddr, host: &Host, timeout_ns: u64) -> (Session, Result<(), DriveError>) {
    let mut requester = connect(address);
    let mut session = Session::new(&host.answer(1), Via::Tcp, 64, Limits::default());
    let end = read_host(&mut requester, &mut session, steady_ns() + timeout_ns, steady_ns);
    (session, end)
}

const SCHEMA: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":200,"fields":[{"name":"a_total","metric":"counter","type":"u64"}]}]}"#;

#[test]
fn a_host_is_read_over_a_socket() {
    let mut host = Host::new(64);
    let region = host.region(1, "shop", &[], SCHEMA);
    region.words.set(0, 1, 42);
    let (session, end) = read_regions(responder(&host.memory), &host, 10 * SECOND_NS);
    end.unwrap();
    let mut values = Vec::new();
    session.frames().for_each(|frame| frame.decode(|sample| values.push(sample.scaled())));
    assert_eq!(values, [42.0]);
}

#[test]
fn dripping_and_dying_hosts_end_in_time() {
    let mut host = Host::new(64);
    host.region(1, "shop", &[], SCHEMA);
    let dripping = {
        let memory = host.memory.clone();
        serve(move |stream| {
            answer_stream(&memory, stream, |bytes, stream| {
                for byte in bytes.iter() {
                    std::thread::sleep(Duration::from_millis(1));
                    if stream.write_all(&[*byte]).is_err() {
                        break;
                    }
                }
                false
            });
        })
    };
    let begin = Instant::now();
    let (_, end) = read_regions(dripping, &host, SECOND_NS / 2);
    assert!(matches!(end, Err(DriveError::Read(_))), "{end:?}");
    assert!(begin.elapsed() < Duration::from_secs(3));
    let (_, end) = read_regions(serve(drop), &host, 10 * SECOND_NS);
    assert_eq!(end, Err(DriveError::Broken(Broken::Closed)));
    assert!(end.unwrap_err().to_string().contains("is [tcp] allow in its agent.toml open for this machine?"));
}
