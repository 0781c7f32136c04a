// SPDX-License-Identifier: Apache-2.0
//! Bootstraps, which block, on a few threads for all hosts: a thousand dead hosts do not make a thousand threads.
//!
//! Two lanes, so that hosts which accept connections and say nothing do not hold up those that are well. A host that has not failed before is tried briskly, for
//! `BRISK` at most; if that was too short it goes to the patient lane, where whoever has failed before is, too, and the whole timeout counts. Patient tries have at most
//! two threads of three. So a first try waits for first tries only: n silent hosts among them cost n x 0.25 s / threads.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_transport::bootstrap::{Bootstrapped, bootstrap, resolve};
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::{Error, Via};

use crate::target::{Choice, Target};

/// A host that was asked and told how it is read.
pub struct Connected {
    /// What it told.
    pub told: Bootstrapped,
    /// Connection for READs, where they go over TCP.
    pub tcp: Option<TcpRequester>,
}

/// What became of a job.
pub type Answer = (u64, Result<Connected, Error>);

/// How long a first try may take before it has to wait with the patient ones: three round trips around the earth take less.
const BRISK: Duration = Duration::from_millis(250);

/// A target to be asked.
struct Job {
    id: u64,
    target: Arc<Target>,
    avoid_kernel: bool,
}

#[derive(Default)]
struct Lanes {
    brisk: VecDeque<Job>,
    patient: VecDeque<Job>,
    /// Threads with a patient try.
    patient_threads: usize,
    is_over: bool,
}

struct Queue {
    lanes: Mutex<Lanes>,
    news: Condvar,
    most_patient_threads: usize,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job, and whether it is a patient one; `None` at the end.
    fn take(&self) -> Option<(Job, bool)> {
        let mut lanes = self.lock();
        loop {
            if lanes.is_over {
                return None;
            }
            if let Some(job) = lanes.brisk.pop_front() {
                return Some((job, false));
            }
            if lanes.patient_threads < self.most_patient_threads
                && let Some(job) = lanes.patient.pop_front()
            {
                lanes.patient_threads += 1;
                return Some((job, true));
            }
            lanes = self.news.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Lanes)) {
        change(&mut self.lock());
        self.news.notify_all();
    }
}

/// The threads.
pub struct Connector {
    queue: Arc<Queue>,
    answers: Receiver<Answer>,
    threads: Vec<JoinHandle<()>>,
}

impl Connector {
    /// Starts `threads` of them. `wake` is called after each answer. A bootstrap may take `timeout`.
    ///
    /// # Errors
    /// No threads.
    pub fn new(threads: usize, timeout: Duration, wake: impl Fn() + Send + Clone + 'static) -> std::io::Result<Self> {
        let (answer, answers) = channel();
        let most_patient_threads = (threads * 2 / 3).max(1);
        let queue = Arc::new(Queue { lanes: Mutex::default(), news: Condvar::new(), most_patient_threads });
        // One alone does everything patiently.
        let brisk = if threads > 1 { timeout.min(BRISK) } else { timeout };
        let threads = (0..threads).map(|number| {
            let (queue, answer, wake) = (queue.clone(), answer.clone(), wake.clone());
            let run = move || {
                while let Some((job, is_patient)) = queue.take() {
                    let (began, limit) = (Instant::now(), if is_patient { timeout } else { brisk });
                    let connected = connect(&job, limit);
                    if is_patient {
                        queue.change(|lanes| lanes.patient_threads -= 1);
                    } else if connected.is_err() && limit < timeout && began.elapsed() >= limit {
                        // Not refused: it had too little time.
                        queue.change(|lanes| lanes.patient.push_back(job));
                        continue;
                    }
                    if answer.send((job.id, connected)).is_err() {
                        return;
                    }
                    wake();
                }
            };
            thread::Builder::new().name(format!("connect-{number}")).spawn(run)
        });
        let threads = threads.collect::<std::io::Result<_>>()?;
        Ok(Self { queue, answers, threads })
    }

    /// Has a host asked; the answer carries `id`. `avoid_kernel`: its kernel responder did not answer, so that TCP is to be used if the target's choice allows it.
    /// `has_failed`: the last try did not succeed.
    pub fn ask(&self, id: u64, target: Arc<Target>, avoid_kernel: bool, has_failed: bool) {
        let job = Job { id, target, avoid_kernel };
        self.queue.change(|lanes| if has_failed { &mut lanes.patient } else { &mut lanes.brisk }.push_back(job));
    }

    /// An answer, if there is one.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.queue.change(|lanes| lanes.is_over = true);
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to do.
            let _ = thread.join();
        }
    }
}

/// Bootstraps a target.
pub(crate) fn ask(target: &Target, timeout: Duration) -> Result<Bootstrapped, Error> {
    bootstrap(&resolve(&target.host, target.port)?, &target.token, crate::engine::READER, timeout)
}

fn connect(job: &Job, timeout: Duration) -> Result<Connected, Error> {
    let Job { target, avoid_kernel, .. } = job;
    let told = ask(target, timeout)?;
    let has_kernel = told.answer.responder(Via::Kernel.kind()).is_some();
    let use_tcp = match target.choice {
        Choice::Tcp => true,
        Choice::Kernel => false,
        Choice::Auto => !has_kernel || (*avoid_kernel && told.responder(Via::Tcp).is_ok()),
    };
    let tcp = match use_tcp {
        true => {
            let (responder, address) = told.responder(Via::Tcp)?;
            Some(TcpRequester::connect(address, told.answer.max_read_blocks(responder), timeout)?)
        }
        false => told.responder(Via::Kernel).map(|_| None)?,
    };
    Ok(Connected { told, tcp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::{Secret, Token};
    use std::net::TcpListener;

    #[test]
    fn first_tries_do_not_wait_for_those_that_failed_before() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let target = |port| {
            Arc::new(Target {
                name: "x".into(),
                host: "127.0.0.1".into(),
                port,
                token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
                labels: Default::default(),
                interval: Duration::from_secs(1),
                choice: Choice::Auto,
            })
        };
        let (tell, told) = channel();
        let timeout = Duration::from_secs(2);
        let wake = move || {
            let _ = tell.send(());
        };
        let connector = Connector::new(3, timeout, wake).unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        // Two of three threads at most are patient with these.
        (0..20).for_each(|id| connector.ask(id, target(silent_port), false, true));
        let began = Instant::now();
        connector.ask(100, target(silent_port), false, false);
        connector.ask(101, target(closed), false, false);
        told.recv_timeout(timeout).unwrap();
        assert_eq!(connector.answer().map(|(id, answer)| (id, answer.is_err())), Some((101, true)));
        // Behind one brisk try, before any patient one has ended.
        assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
    }
}
