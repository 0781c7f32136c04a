// SPDX-License-Identifier: Apache-2.0
//! Series of a selector, one after the other; where there is much to do, several threads share them.
//!
//! They come in the order of their keys: neighbours share what the source has decoded. So a thread takes some that follow
//! one another, and when it is done takes some more.

use std::iter::Peekable;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::vec;

use super::{Eval, Matrix};
use crate::error::QueryError;
use crate::source::Found;
use crate::value::Grid;

/// Values of the answer that are worth a thread, which takes some 50 us to start; what it costs to read a series counts
/// as so many.
const WORTH: usize = 1 << 13;
const SERIES: usize = 1 << 7;
/// How often a thread takes series, so that all end at about the same time.
const TURNS: usize = 8;
/// So many times as many series as that may stay together.
const TOGETHER: usize = 2;

/// What is done with each series. The one that evaluates is another one on each thread.
pub(super) type Each<'a> = dyn Fn(&Eval<'_>, &mut Matrix, Found) -> Result<(), QueryError> + Sync + 'a;

/// Series that nobody has taken.
struct Left {
    found: Mutex<Peekable<vec::IntoIter<Found>>>,
    at_once: usize,
}

impl Left {
    fn take(&self) -> Vec<Found> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut some: Vec<Found> = found.by_ref().take(self.at_once).collect();
        // What neighbours share would be decoded by two threads; but one thread must not have all of it.
        let is_shared = |some: &[Found], next: &Found| some.last().is_some_and(|last| last.is_neighbour(next));
        while some.len() < TOGETHER * self.at_once
            && let Some(next) = found.next_if(|next| is_shared(&some, next))
        {
            some.push(next);
        }
        some
    }

    /// One has failed: the others need do no more.
    fn drop_all(&self) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).by_ref().for_each(drop);
    }
}

impl Eval<'_> {
    /// What `each` adds for all of them, in the order of their labels.
    pub(super) fn each_found(&mut self, found: Vec<Found>, grid: Grid, each: &Each<'_>) -> Result<Matrix, QueryError> {
        let worth = found.len().saturating_mul(SERIES + grid.count) / WORTH;
        let helpers = self.options.helpers.take(worth.min(found.len() / 2));
        let sources: Vec<_> = (0..helpers.count).map_while(|_| self.source.share()).collect();
        let at_once = (found.len() / (TURNS * (sources.len() + 1))).max(1);
        let left = Left { found: found.into_iter().peekable().into(), at_once };
        let (left, options, mut notes) = (&left, self.options, Vec::new());
        let matrix = thread::scope(|scope| {
            let threads = sources.into_iter().filter_map(|source| {
                let budget = self.budget.share();
                let help = move || {
                    let source = source();
                    let eval = Eval::new(&*source, options, budget);
                    eval.some_found(left, each).map(|matrix| (matrix, eval.notes))
                };
                // Where no thread can be had, the others do more.
                thread::Builder::new().name("query".to_owned()).spawn_scoped(scope, help).ok()
            });
            let threads: Vec<_> = threads.collect();
            let mut all = self.some_found(left, each);
            for thread in threads {
                let other = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                all = all.and_then(|mut all| {
                    let (matrix, of_thread) = other?;
                    all.extend(matrix);
                    notes.push(of_thread);
                    Ok(all)
                });
            }
            all
        })?;
        notes.into_iter().for_each(|of_thread| self.notes.extend(of_thread));
        matrix.by_labels(&self.budget)
    }

    /// The same, of what no other thread takes.
    fn some_found(&self, left: &Left, each: &Each<'_>) -> Result<Matrix, QueryError> {
        let mut matrix = self.empty()?;
        loop {
            let some = left.take();
            if some.is_empty() {
                self.spare.take();
                return Ok(matrix);
            }
            for found in some {
                if let Err(error) = each(self, &mut matrix, found) {
                    left.drop_all();
                    return Err(error);
                }
            }
        }
    }
}
