// SPDX-License-Identifier: Apache-2.0
//! The thread that reads the host: at due times while it answers, with growing pauses while it does not.

use super::kind::{Kind, Region};
use super::model::Model;
use super::reason::reason;
use crate::host::{Connection, HostError, Options, Reading, Target};
use crate::read::Due;
use onlooker_bootstrap::Token;
use onlooker_reader::Session;
use onlooker_reader::clock::steady_ns;
use onlooker_series::derive::Derived;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause after the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Longest pause: somebody is waiting in front of the screen.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How long the end waits for the thread, which says goodbye to the host. It may be in the middle of a silence.
const FAREWELL: Duration = Duration::from_millis(500);

/// The thread, and what it has read.
pub(super) struct Reader {
    model: Arc<Mutex<Model>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// Closed when the thread has nothing left to do.
    over: mpsc::Receiver<()>,
}

impl Reader {
    /// Reads the host once, so that a wrong token or address is told at once; then a thread goes on.
    pub(super) fn start(
        model: Model,
        target: Target,
        addresses: Vec<SocketAddr>,
        token: Token,
        options: Options,
    ) -> Result<Self, HostError> {
        let (model, stop) = (Arc::new(Mutex::new(model)), Arc::new(AtomicBool::new(false)));
        let (send, first) = mpsc::sync_channel(1);
        let (going, over) = mpsc::channel();
        let thread = {
            let (model, stop) = (model.clone(), stop.clone());
            // The connection is made where it is used: it need not be able to move between threads.
            std::thread::spawn(move || {
                match connect(&model, &target, addresses, token, options) {
                    Ok((connection, derived)) => {
                        let _ = send.send(Ok(()));
                        go_on(&model, &stop, connection, derived);
                    }
                    Err(error) => drop(send.send(Err(error))),
                }
                drop::<mpsc::Sender<()>>(going);
            })
        };
        match first.recv() {
            Ok(Ok(())) => Ok(Self { model, stop, thread, over }),
            Ok(Err(error)) => Err(error),
            Err(mpsc::RecvError) => Ok(Self { model, stop, thread, over }), // it has panicked, and said so
        }
    }

    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.model)
    }

    /// It should never end by itself.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let _ = self.over.recv_timeout(FAREWELL);
    }
}

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads what the pace wants by now; also says for which view.
fn read(model: &Mutex<Model>, connection: &mut Connection) -> (Kind, Result<Reading, HostError>) {
    let (pace, now_ns) = (Arc::new(lock(model).pace.clone()), steady_ns());
    let kind = pace.kind();
    let clock = connection.told().relation;
    let reading = connection.read(&|session: &mut Session| {
        let pace = pace.clone();
        session.select(move |entry, _| pace.wants(&Region::of(entry), now_ns));
        // What is sampled every few seconds need not be fetched ten times a second.
        session.rest();
        session.know_clock(clock);
    });
    (kind, reading)
}

fn connect(
    model: &Mutex<Model>,
    target: &Target,
    addresses: Vec<SocketAddr>,
    token: Token,
    options: Options,
) -> Result<(Connection, Derived), HostError> {
    let mut connection = Connection::open(target, addresses, token, options)?;
    let ((kind, reading), mut derived) = (read(model, &mut connection), Derived::default());
    lock(model).read(kind, &connection, &reading?, &mut derived, steady_ns());
    Ok((connection, derived))
}

fn go_on(model: &Mutex<Model>, stop: &AtomicBool, mut connection: Connection, mut derived: Derived) {
    let (begin, mut due, mut failures) = (Instant::now(), Due::default(), 0u32);
    let interval = lock(model).interval;
    loop {
        let skipped = due.next(interval, begin.elapsed());
        if failures == 0 && skipped > 0 {
            lock(model).gap("late", skipped);
        }
        sleep(stop, due.wait(interval, begin.elapsed()));
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (kind, reading) = read(model, &mut connection);
        match reading {
            Ok(reading) => {
                failures = 0;
                lock(model).read(kind, &connection, &reading, &mut derived, steady_ns());
            }
            Err(error) => {
                let pause = pause(failures);
                failures += 1;
                let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
                {
                    let mut model = lock(model);
                    model.gap(reason(&error), 1 + skipped);
                    model.failed(error.to_string(), steady_ns().saturating_add(pause_ns));
                }
                sleep(stop, pause);
            }
        }
    }
}

/// Until the time is over or the thread is to stop.
fn sleep(stop: &AtomicBool, time: Duration) {
    let begin = Instant::now();
    while let Some(rest) = time.checked_sub(begin.elapsed()).filter(|rest| !rest.is_zero()) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        std::thread::park_timeout(rest);
    }
}

/// How long to wait after so many failures in a row before this one.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_have_an_end() {
        let pauses: Vec<u128> = (0..7).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(pause(u32::MAX), MAX_PAUSE);
    }

    #[test]
    fn a_sleeper_wakes_when_told_to_stop() {
        let stop = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let stop = stop.clone();
            std::thread::spawn(move || sleep(&stop, Duration::from_secs(60)))
        };
        stop.store(true, Ordering::Relaxed);
        sleeper.thread().unpark();
        sleeper.join().unwrap();
    }

    /// Over a thread that does `last` once it is told to stop.
    fn over(last: impl FnOnce() + Send + 'static) -> Reader {
        let model = Model::new("host".into(), Duration::from_secs(1), (0, 0));
        let (stop, (going, over)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let thread = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                sleep(&stop, Duration::from_secs(60));
                last();
                drop::<mpsc::Sender<()>>(going);
            })
        };
        Reader { model: Arc::new(Mutex::new(model)), stop, thread, over }
    }

    #[test]
    fn the_end_waits_for_a_goodbye_and_not_for_a_silence() {
        let said = Arc::new(AtomicBool::new(false));
        let saying = said.clone();
        drop(over(move || {
            std::thread::sleep(FAREWELL / 5);
            saying.store(true, Ordering::Relaxed);
        }));
        assert!(said.load(Ordering::Relaxed));
        let (_open, silence) = mpsc::channel::<()>();
        let began = Instant::now();
        drop(over(move || {
            let _ = silence.recv();
        }));
        assert!(began.elapsed() >= FAREWELL, "as long as there is hope");
    }
}
