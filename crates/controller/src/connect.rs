// SPDX-License-Identifier: Apache-2.0
//! Bootstraps, which block, on threads of their own: a few for all hosts, so that a thousand dead hosts do not make a thousand threads, and more than one, so
//! that one dead host does not hold up the others.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

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

/// A target to be asked.
struct Job {
    id: u64,
    target: Arc<Target>,
    avoid_kernel: bool,
}

/// The threads.
pub struct Connector {
    jobs: Option<Sender<Job>>,
    answers: Receiver<Answer>,
    threads: Vec<JoinHandle<()>>,
}

impl Connector {
    /// Starts `threads` of them. `wake` is called after each answer. A bootstrap may take `timeout`.
    ///
    /// # Errors
    /// No threads.
    pub fn new(threads: usize, timeout: Duration, wake: impl Fn() + Send + Clone + 'static) -> std::io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (answer, answers) = channel();
        let todo = Arc::new(Mutex::new(todo));
        let threads = (0..threads).map(|number| {
            let (todo, answer, wake) = (todo.clone(), answer.clone(), wake.clone());
            let run = move || {
                loop {
                    let job = todo.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(job) = job else { return };
                    if answer.send((job.id, connect(&job, timeout))).is_err() {
                        return;
                    }
                    wake();
                }
            };
            thread::Builder::new().name(format!("connect-{number}")).spawn(run)
        });
        let threads = threads.collect::<std::io::Result<_>>()?;
        Ok(Self { jobs: Some(jobs), answers, threads })
    }

    /// Has a host asked; the answer carries `id`. `avoid_kernel`: its kernel responder did not answer, so that TCP is to be used if the target's choice allows it.
    pub fn ask(&self, id: u64, target: Arc<Target>, avoid_kernel: bool) {
        if let Some(jobs) = &self.jobs {
            // The threads live as long as this does.
            let _ = jobs.send(Job { id, target, avoid_kernel });
        }
    }

    /// An answer, if there is one.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.jobs = None;
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
