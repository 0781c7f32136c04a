// SPDX-License-Identifier: Apache-2.0
//! Sequences: the programs keep no state between packets but scratch and tables, and must behave so. Requests come again, late, turned round and after the
//! tables have changed; after each step both programs must do what the reference does.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use bolero::TypeGenerator;
use onlooker_responder::{Exit, Prefix, Region};
use onlooker_wire::{Ethernet, Frame};

use crate::oracle::{Case, TEST_TIME};
use crate::support::reference::Expected;
use crate::support::{Ask, Outcome, PORT, REQUESTER_IP4, RKEY, Rig, SLAB_BLOCKS, VA, region, unlimited};

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    /// A request, perhaps with mistakes.
    Ask(Box<Case>),
    /// A good request for some block.
    Good(bool, u8),
    /// An earlier frame again.
    Replay(u8),
    /// An answer given earlier is sent back as it is: from us to the requester.
    Return(u8),
    /// An answer given earlier, with its addresses turned round: to us, and not a request.
    Foreign(u8),
    /// An earlier frame with the end of another one.
    Splice(u8, u8, u8),
    /// The region ends.
    Remove,
    /// It is registered at another address, so that late requests miss it by some blocks.
    Register(u8),
    /// Its memory changes.
    Write(u16, u64),
    /// One of the sources may ask, or may not.
    Allow(bool),
    /// The lease begins or ends.
    Lease(bool),
}

/// Addresses, ports and MACs changed for each other.
fn turn_round(frame: &mut [u8]) {
    let Ok((ethernet, _, rest)) = Ethernet::parse(frame) else { return };
    let (ip, end) = (ethernet.len_bytes(), frame.len() - rest.len());
    assert_eq!(ip, end);
    let (addresses, bytes, udp) = if frame[ip] >> 4 == 4 { (ip + 12, 4, ip + 20) } else { (ip + 8, 16, ip + 40) };
    for (first, second, bytes) in [(0, 6, 6), (addresses, addresses + bytes, bytes), (udp, udp + 2, 2)] {
        for at in 0..bytes {
            frame.swap(first + at, second + at);
        }
    }
}

#[allow(clippy::print_stdout)]
#[test]
fn programs_and_reference_agree_over_sequences() {
    let rig = Rig::new(&unlimited(PORT));
    let source = Prefix::host(REQUESTER_IP4.parse().unwrap());
    let source_address: IpAddr = REQUESTER_IP4.parse().unwrap();
    let (steps_run, answered, late) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    let add = |counter: &AtomicU32, count| counter.fetch_add(count, Ordering::Relaxed);
    let generator = bolero::generator::produce::<Vec<Step>>().with().len(1usize..40);
    bolero::check!().with_test_time(TEST_TIME).with_generator(generator).for_each(|steps| {
        rig.responder.add_region(RKEY, &region()).unwrap();
        rig.responder.allow(source).unwrap();
        rig.responder.set_lease(std::time::Duration::from_secs(3600)).unwrap();
        let mut reference = rig.reference();
        let (mut in_lease, mut frames, mut answers): (bool, Vec<Vec<u8>>, Vec<Vec<u8>>) = (true, vec![], vec![]);
        let pick =
            |from: &[Vec<u8>], which: u8| (!from.is_empty()).then(|| from[usize::from(which) % from.len()].clone());
        for step in steps {
            let frame = match step {
                Step::Ask(case) => Some(case.frame()),
                Step::Good(ipv6, block) => {
                    let ask = if *ipv6 { Ask::v6() } else { Ask::v4() };
                    Some(ask.at(1024 * u64::from(block % 16), 1024).frame())
                }
                Step::Replay(which) => pick(&frames, *which),
                Step::Return(which) => pick(&answers, *which),
                Step::Foreign(which) => pick(&answers, *which).map(|mut answer| {
                    turn_round(&mut answer);
                    answer
                }),
                Step::Splice(first, second, at) => {
                    pick(&frames, *first).zip(pick(&frames, *second)).map(|(first, second)| {
                        let at = usize::from(*at).min(first.len()).min(second.len());
                        let mut frame = [&first[..at], &second[at..]].concat();
                        frame.resize(frame.len().max(14), 0);
                        frame
                    })
                }
                Step::Remove => {
                    let removed = rig.responder.remove_region(RKEY).is_ok();
                    assert_eq!(removed, reference.regions.remove(&RKEY).is_some());
                    None
                }
                Step::Register(by) => {
                    let moved = Region { va: VA + 1024 * u64::from(by % 4), ..region() };
                    rig.responder.add_region(RKEY, &moved).unwrap();
                    reference.regions.insert(RKEY, moved);
                    None
                }
                Step::Write(word, value) => {
                    let word = usize::from(*word) % (usize::try_from(SLAB_BLOCKS).unwrap() * 128);
                    rig.memory.words()[word].store(*value, Ordering::Relaxed);
                    reference.slab[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
                    None
                }
                Step::Allow(allowed) => {
                    reference.sources.retain(|known| *known != source_address);
                    if *allowed {
                        rig.responder.allow(source).unwrap();
                        reference.sources.push(source_address);
                    } else {
                        // Not there the second time.
                        let _ = rig.responder.disallow(source);
                    }
                    None
                }
                Step::Lease(on) => {
                    in_lease = *on;
                    rig.responder.set_lease(std::time::Duration::from_secs(if *on { 3600 } else { 0 })).unwrap();
                    None
                }
            };
            add(&steps_run, 1);
            let Some(frame) = frame else { continue };
            if in_lease {
                if let Outcome::Answer(answer) = rig.agree(&reference, &frame) {
                    add(&answered, 1);
                    assert!(Frame::parse(&answer).is_ok());
                    answers.push(answer);
                }
            } else {
                let expected = match reference.respond(&frame) {
                    Expected::Pass => Outcome::Pass,
                    Expected::Passed => Outcome::Passed,
                    Expected::Drop | Expected::Answer(_) => Outcome::Drop(Exit::Lease),
                };
                assert_eq!(rig.run(crate::support::Side::Xdp, &frame), expected);
                add(&late, 1);
            }
            frames.push(frame);
        }
    });
    // Otherwise the generator is at fault.
    let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
    println!("sequences: {} steps, {} answered, {} out of lease", count(&steps_run), count(&answered), count(&late));
    assert!(count(&steps_run) >= 100 && count(&answered) >= 10 && count(&late) >= 10);
}
