// SPDX-License-Identifier: Apache-2.0
//! Copies of a host's directory: who reads by them, and when they go.

use super::*;
use onlooker_reader::Mirror;
use std::sync::mpsc::{Sender, channel};

/// A copy that says when it is dropped.
struct Watched {
    says: Mutex<Sender<()>>,
    words: Shared,
}

impl Mirror for Watched {
    fn copy(&self, first_block: u32, to: &mut [Block]) {
        for (index, block) in (first_block as usize..).zip(to) {
            block.copy_from(self.words.block(index));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.says.lock().unwrap().send(()).unwrap();
    }
}

#[test]
fn a_session_reads_by_the_copy_that_its_requester_has() {
    let mut host = host();
    host.region(1, "shop", &[], WIDE).words.set(0, 1, 42);
    let (says, said) = channel();
    // The host's memory itself: a copy that is never late.
    let copy = Watched { says: Mutex::new(says), words: host.control_words.clone() };
    let world = World::new();
    let memory = host.memory.clone();
    let mut desk = Desk::new(&world, move |request| {
        let rkey = request.rkey.checked_sub(DEVICE_RKEYS).ok_or(Status::Access)?;
        let read = tcp_read::Read { va: request.va, rkey, length_bytes: request.bytes };
        let bytes = memory.read(&read).map_err(|_| Status::Access)?;
        Ok(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect())
    });
    let pair = desk.fake.pair(Settings::default(), Agreement::default());
    let mut requester = VerbsRequester::with_mirror(desk, pair, 64, Some(Arc::new(copy)));
    let mut session = Session::new(&answer(&host), Via::Verbs, requester.max_read_blocks(), Limits::default());
    session.mirror(requester.mirror().unwrap());
    let mut reading = Reading { session, requester, world };
    reading.read().unwrap();
    let posted = reading.requester.flows().counters().posted;
    host.region(2, "other", &[], WIDE);
    reading.read().unwrap();
    assert_eq!(reading.lines(), ["shop.a_total 42", "other.a_total 0"]);
    assert_eq!(reading.requester.flows().counters().posted - posted, 6, "9 blocks of each, by 4, and nothing else");
    assert_eq!((reading.session.counters().mirror_used, reading.requester.copy_problem()), (1, None));
    drop(reading.requester);
    assert!(said.try_recv().is_err(), "the session has it, too");
    drop(reading.session);
    assert_eq!(said.try_recv(), Ok(()));
}

#[test]
fn a_copy_goes_with_its_flow() {
    let world = World::new();
    let mut desk = Desk::new(&world, own_address);
    let pairs: [FakePair; 2] = std::array::from_fn(|_| desk.fake.pair(Settings::default(), Agreement::default()));
    let mut flows = Flows::new(desk);
    let (says, said) = channel();
    let copy = Watched { says: Mutex::new(says), words: Shared::new(1) };
    let [copied, plain] = pairs;
    let copied = flows.add_with_copy(copied, Arc::new(copy)).unwrap();
    let plain = flows.add(plain).unwrap();
    assert!(flows.mirror(copied).is_some() && flows.mirror(plain).is_none());
    assert!(said.try_recv().is_err());
    flows.remove(copied, &mut Vec::new());
    assert_eq!(said.try_recv(), Ok(()));
    assert!(flows.mirror(copied).is_none() && flows.broken(plain).is_none());
}
