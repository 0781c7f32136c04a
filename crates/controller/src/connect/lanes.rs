// SPDX-License-Identifier: Apache-2.0
//! The two lanes of work, and the queue that threads take it from.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use onlooker_reader::bootstrap::Parting;

use super::work::{Job, Work};

/// What is to be done.
#[derive(Default)]
pub(super) struct Lanes {
    pub(super) brisk: VecDeque<Work>,
    pub(super) patient: VecDeque<Work>,
    /// Threads with a patient try.
    pub(super) patient_threads: usize,
    /// What is to be ended and what is just being ended.
    pub(super) endings: usize,
    /// Nothing but endings is begun any more.
    pub(super) is_over: bool,
}

impl Lanes {
    pub(super) fn end(&mut self, thing: Box<dyn Send>) {
        self.endings += 1;
        self.brisk.push_front(Work::End(thing));
    }

    /// A host that does not answer its goodbye must not hold up first tries.
    pub(super) fn part(&mut self, parting: Parting) {
        self.endings += 1;
        let lane = if self.is_over { &mut self.brisk } else { &mut self.patient };
        lane.push_back(Work::End(Box::new(parting)));
    }

    /// Nothing is left but what is to be ended.
    pub(super) fn close(&mut self) {
        self.is_over = true;
        let all: Vec<Work> = self.brisk.drain(..).chain(self.patient.drain(..)).collect();
        for work in all {
            match work {
                Work::End(_) => self.brisk.push_back(work),
                Work::Host(Job { parting: Some(parting), .. }) => self.part(parting),
                Work::Host(_) | Work::Clock(..) => {}
            }
        }
    }
}

/// The lanes, shared by the threads and whoever gives them work.
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    pub(super) news: Condvar,
    most_patient_threads: usize,
}

impl Queue {
    pub(super) fn new(most_patient_threads: usize) -> Self {
        Self { lanes: Mutex::default(), news: Condvar::new(), most_patient_threads }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, and whether it is a patient one; `None` at the end.
    pub(super) fn take(&self) -> Option<(Work, bool)> {
        let mut lanes = self.lock();
        loop {
            if let Some(work) = lanes.brisk.pop_front() {
                return Some((work, false));
            }
            if lanes.is_over {
                return None;
            }
            if lanes.patient_threads < self.most_patient_threads
                && let Some(work) = lanes.patient.pop_front()
            {
                lanes.patient_threads += 1;
                return Some((work, true));
            }
            lanes = self.news.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Lanes)) {
        change(&mut self.lock());
        self.news.notify_all();
    }
}
