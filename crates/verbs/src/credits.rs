// SPDX-License-Identifier: Apache-2.0
//! What the two ends of requests and answers may send, so that no message ever finds the other end without a RECV.
//!
//! A message that meets no RECV is sent again after a pause, and ends the connection when that has happened too often (IBA 9.7.5.2.8). Each end has `depth` RECVs:
//! - at most `depth` requests are unanswered, and the RECV that took one is posted again before its answer goes out;
//! - an answer's RECV is posted again before another request can be asked.
//!
//! Places in send queues are counted by completions only, as everywhere ([`SendQueue`]); all of these are signalled, since an answer says nothing of the place that its
//! request takes. So an end that answers may have requests that wait for a place.

use std::collections::VecDeque;

use crate::completion::Status;
use crate::send_queue::SendQueue;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) tag: u64,
    pub(crate) bytes: u32,
}

/// The end that asks; it READs by the same queue.
#[derive(Debug)]
pub(crate) struct Requests {
    depth: usize,
    /// READs have a name here, requests have it below.
    places: SendQueue<Option<Asked>>,
    /// In order, which is that of their answers: messages of a connection overtake none (IBA 9.7).
    unanswered: VecDeque<Asked>,
}

impl Requests {
    pub(crate) fn new(depth: u32) -> Self {
        let depth = depth.max(1);
        Self { depth: depth as usize, places: SendQueue::new(depth), unanswered: VecDeque::new() }
    }

    /// READs that may be posted now.
    pub(crate) fn room_for_reads(&self) -> usize {
        self.places.room()
    }

    /// Requests that may be posted now.
    pub(crate) fn room_for_requests(&self) -> usize {
        self.places.room().min(self.depth - self.unanswered.len())
    }

    /// The next READ: its number.
    ///
    /// # Panics
    /// Without room.
    pub(crate) fn read(&mut self, asked: Asked) -> u32 {
        self.places.push(Some(asked), true).0
    }

    /// The next request: its number.
    ///
    /// # Panics
    /// Without room.
    pub(crate) fn request(&mut self, asked: Asked) -> u32 {
        assert!(self.room_for_requests() > 0, "the other end may have no RECV");
        self.unanswered.push_back(asked);
        self.places.push(None, true).0
    }

    /// Takes the completion of one that is done: `read` gets each READ that it stands for. False: of none that is outstanding.
    pub(crate) fn completed(&mut self, number: u32, mut read: impl FnMut(u32, Asked)) -> bool {
        self.places.complete(number, Status::Done, |number, asked, _| {
            if let Some(asked) = asked {
                read(number, asked);
            }
        })
    }

    /// An answer has come: to this; `None`: nobody asked.
    pub(crate) fn answered(&mut self) -> Option<Asked> {
        self.unanswered.pop_front()
    }
}

/// The end that answers.
#[derive(Debug)]
pub(crate) struct Answers {
    places: SendQueue<()>,
    /// RECVs that have taken requests.
    waiting: VecDeque<u32>,
}

impl Answers {
    pub(crate) fn new(depth: u32) -> Self {
        Self { places: SendQueue::new(depth), waiting: VecDeque::new() }
    }

    /// A request has come into this RECV.
    pub(crate) fn requested(&mut self, receive: u32) {
        self.waiting.push_back(receive);
    }

    /// What is to be answered now: the RECV, to be posted again before the answer goes out, and the answer's number.
    pub(crate) fn due(&mut self) -> Option<(u32, u32)> {
        if self.places.room() == 0 {
            return None;
        }
        let receive = self.waiting.pop_front()?;
        Some((receive, self.places.push((), true).0))
    }

    /// Takes the completion of an answer. False: of none that is outstanding.
    pub(crate) fn completed(&mut self, number: u32) -> bool {
        self.places.complete(number, Status::Done, |_, (), _| {})
    }

    /// Whether requests wait for a place.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tag: u64) -> Asked {
        Asked { tag, bytes: 8 }
    }

    /// One direction of a connection: RECVs, and completions of what was sent, which come whenever they like.
    #[derive(Default)]
    struct Way {
        /// Number, and what the message says; `None`: a READ.
        sent: VecDeque<(u32, Option<u64>)>,
        receives: VecDeque<u32>,
        arrived: VecDeque<(u32, u64)>,
        completions: VecDeque<u32>,
    }

    impl Way {
        fn with(depth: u32) -> Self {
            Self { receives: (0..depth).collect(), ..Self::default() }
        }

        fn deliver(&mut self) {
            let Some((number, message)) = self.sent.pop_front() else { return };
            if let Some(tag) = message {
                let receive = self.receives.pop_front().expect("a message without a RECV");
                self.arrived.push_back((receive, tag));
            }
            self.completions.push_back(number);
        }
    }

    /// Both ends of a connection that holds back what it likes.
    struct Connection {
        requests: Requests,
        answers: Answers,
        there: Way,
        back: Way,
        tags: Vec<u64>,
        asked: u64,
        ended: Vec<u64>,
    }

    impl Connection {
        fn new(depth: u32) -> Self {
            let (there, back) = (Way::with(depth), Way::with(depth));
            let (requests, answers) = (Requests::new(depth), Answers::new(depth));
            Self { requests, answers, there, back, tags: vec![0; depth as usize], asked: 0, ended: Vec::new() }
        }

        fn ask(&mut self, is_read: bool) {
            let room = if is_read { self.requests.room_for_reads() } else { self.requests.room_for_requests() };
            if room == 0 {
                return;
            }
            self.asked += 1;
            let asked = asked(self.asked);
            let number = if is_read { self.requests.read(asked) } else { self.requests.request(asked) };
            self.there.sent.push_back((number, (!is_read).then_some(self.asked)));
        }

        fn serve(&mut self) {
            if let Some((receive, tag)) = self.there.arrived.pop_front() {
                self.tags[receive as usize] = tag;
                self.answers.requested(receive);
            }
            while let Some((receive, number)) = self.answers.due() {
                self.there.receives.push_back(receive);
                self.back.sent.push_back((number, Some(self.tags[receive as usize])));
            }
        }

        fn take_answer(&mut self) {
            if let Some((receive, tag)) = self.back.arrived.pop_front() {
                assert_eq!(self.requests.answered(), Some(asked(tag)), "answers in order");
                self.back.receives.push_back(receive);
                self.ended.push(tag);
            }
        }

        fn complete(&mut self) {
            if let Some(number) = self.there.completions.pop_front() {
                let ended = &mut self.ended;
                assert!(self.requests.completed(number, |_, asked| ended.push(asked.tag)));
            }
        }

        fn step(&mut self, which: u32) {
            match which {
                0 | 1 => self.ask(false),
                2 => self.ask(true),
                3 => self.there.deliver(),
                4 => self.back.deliver(),
                5 => self.serve(),
                6 => self.take_answer(),
                7 => self.complete(),
                _ => {
                    if let Some(number) = self.back.completions.pop_front() {
                        assert!(self.answers.completed(number));
                        self.serve();
                    }
                }
            }
        }
    }

    #[test]
    fn no_message_meets_an_end_without_a_recv_whatever_is_late() {
        for depth in [1, 2, 4, 16] {
            let mut connection = Connection::new(depth);
            let mut dice = 1u64;
            for _ in 0..100_000 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                connection.step(u32::try_from(dice >> 33).unwrap() % 9);
                assert!(connection.answers.waiting.len() <= depth as usize);
            }
            for which in (0..8 * depth).flat_map(|_| 3..9) {
                connection.step(which);
            }
            let Connection { mut ended, asked, requests, answers, .. } = connection;
            ended.sort_unstable();
            assert!(ended.into_iter().eq(1..=asked), "depth {depth}: each ends once");
            assert!(asked > 1000 && !answers.is_waiting());
            assert_eq!((requests.room_for_reads(), requests.room_for_requests()), (depth as usize, depth as usize));
        }
    }

    #[test]
    fn an_answer_frees_no_place_and_a_completion_no_answer() {
        let mut requests = Requests::new(2);
        let first = requests.request(asked(1));
        assert_eq!((requests.room_for_reads(), requests.room_for_requests()), (1, 1));
        assert_eq!(requests.answered(), Some(asked(1)));
        assert_eq!((requests.room_for_reads(), requests.room_for_requests()), (1, 1), "its place is taken");
        assert!(requests.completed(first, |_, _| unreachable!("no READ")));
        assert_eq!((requests.room_for_reads(), requests.room_for_requests()), (2, 2));
        let second = requests.request(asked(2));
        assert!(requests.completed(second, |_, _| unreachable!("no READ")));
        assert_eq!((requests.room_for_reads(), requests.room_for_requests()), (2, 1), "it has no answer");
        assert!(!requests.completed(second, |_, _| unreachable!()), "told twice");
        assert_eq!((requests.answered(), requests.answered()), (Some(asked(2)), None));
    }

    #[test]
    fn what_finds_no_place_is_answered_later() {
        let mut answers = Answers::new(1);
        answers.requested(0);
        assert_eq!(answers.due(), Some((0, 0)));
        answers.requested(0);
        assert_eq!((answers.due(), answers.is_waiting()), (None, true), "the first answer has not completed");
        assert!(answers.completed(0));
        assert_eq!((answers.due(), answers.is_waiting()), (Some((0, 1)), false));
        assert!(!answers.completed(0), "told twice");
    }
}
