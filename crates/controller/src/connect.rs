// SPDX-License-Identifier: Apache-2.0
//! Whatever blocks on the way to a host, on a few threads for all hosts: a thousand dead hosts do not make a thousand
//! threads.
//!
//! Two lanes, so that hosts which accept connections and say nothing do not hold up those that are well. A host that
//! has not failed before is tried briskly, for `BRISK` at most; if that was too short it goes to the patient lane,
//! where whoever has failed before is, too, and the whole timeout counts. Patient tries have at most two threads of
//! three. So a first try waits for first tries only: n silent hosts among them cost n x 0.25 s / threads.
//!
//! A host that is to be read by this machine's RDMA device is asked twice: queue pairs are made by whoever has the
//! device, the engine, between the two ([`Step::Told`], [`Connector::pair`]). They are connected here, since that may
//! wait for a neighbour's link-layer address. Goodbyes are said here, too ([`Connector::part`]); at the end all that
//! are left have 0.4 s together.

mod lanes;
mod work;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use onlooker_bootstrap::Id;
use onlooker_reader::bootstrap::{Bootstrapped, Parting};
use onlooker_reader::{Error as HostError, Via};
use onlooker_targets::Target;
use onlooker_transport::Error;
use onlooker_transport::open::Asker;
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::verbs::{self, Card, CardPair, DirectoryCopy, Unconnected};

use crate::niceness::come_after_reading;
use lanes::{Lanes, Queue};
use work::{Done, Job, Task, Work};

/// Name and version told to agents.
pub(crate) const READER: &str = concat!("onlooker controller ", env!("CARGO_PKG_VERSION"));

/// What carries a host's READs.
pub enum Way {
    /// A connected queue pair of this machine's device, and where the host writes its directory to.
    Verbs(Box<CardPair>, DirectoryCopy),
    /// Datagrams to the kernel responder.
    Kernel,
    /// A connection to the agent.
    Tcp(Box<TcpRequester>),
}

/// A host that was asked and told how it is read.
pub struct Connected<W = Way> {
    /// What it told.
    pub told: Bootstrapped,
    /// How.
    pub way: W,
    /// Why it is not this machine's device, where that was tried.
    pub instead: Option<Error>,
    /// Ends the host's queue pair, if it has made one. For [`Connector::part`]: dropping it waits for the host.
    pub parting: Option<Parting>,
}

/// How far a host is.
pub enum Step<W = Way> {
    /// It is to be read by this machine's device: [`Connector::pair`] is next, or [`Connector::rest`] where that cannot
    /// be.
    Told(Box<Bootstrapped>),
    /// It can be read.
    Linked(Box<Connected<W>>),
}

/// What became of a job.
pub enum Answer<W = Way, D = Card> {
    /// Of a host's, by its id.
    Host(u64, Result<Step<W>, Error>),
    /// The device that has an address.
    Device(IpAddr, Result<D, Error>),
    /// What a host says of its clock, by the host's id. Where it says nothing there is no answer.
    Clock(u64, Box<Bootstrapped>),
}

/// How long a first try may take before it has to wait with the patient ones: three round trips around the earth take
/// less.
const BRISK: Duration = Duration::from_millis(250);
/// How long hosts are waited for at the end: a host that does not answer must not hold it up.
const FAREWELL: Duration = Duration::from_millis(400);
/// Hosts that one device is opened for: the completion queue has entries for them (16 each, 4 MiB in all with a card),
/// or as many as the device allows.
const DEVICE_HOSTS: u32 = 4096;

/// The threads.
pub struct Connector {
    queue: Arc<Queue>,
    answers: Receiver<Answer>,
    /// For threads that are not among these.
    answer: Sender<Answer>,
    wake: Box<dyn Fn() -> Wake + Send>,
}

type Wake = Box<dyn FnOnce() + Send>;

impl Connector {
    /// Starts `threads` of them. `wake` is called after each answer. A bootstrap may take `timeout`.
    ///
    /// # Errors
    /// No threads.
    pub fn new(threads: usize, timeout: Duration, wake: impl Fn() + Send + Clone + 'static) -> std::io::Result<Self> {
        let (answer, answers) = channel();
        let most_patient_threads = (threads * 2 / 3).max(1);
        let queue = Arc::new(Queue::new(most_patient_threads));
        // One alone does everything patiently.
        let brisk = if threads > 1 { timeout.min(BRISK) } else { timeout };
        for number in 0..threads {
            let (queue, answer, wake) = (queue.clone(), answer.clone(), wake.clone());
            let run = move || {
                come_after_reading();
                while let Some((work, is_patient)) = queue.take() {
                    let limit = if is_patient { timeout } else { brisk };
                    let done = work.run(limit, limit == timeout);
                    if is_patient {
                        queue.change(|lanes| lanes.patient_threads -= 1);
                    }
                    if queue.lock().is_over && !matches!(done, Done::Ended) {
                        // Nobody waits for it. A queue pair that it has brought is ended here.
                        continue;
                    }
                    match done {
                        Done::Nothing => {}
                        Done::Ended => queue.change(|lanes| lanes.endings -= 1),
                        Done::TooSlow(job) => queue.change(|lanes| lanes.patient.push_back(Work::Host(job))),
                        Done::Answer(told, parting) => {
                            if let Some(parting) = parting {
                                queue.change(|lanes| lanes.part(parting));
                            }
                            if answer.send(told).is_err() {
                                return;
                            }
                            wake();
                        }
                    }
                }
            };
            thread::Builder::new().name(format!("connect-{number}")).spawn(run)?;
        }
        let wake = Box::new(move || -> Wake { Box::new(wake.clone()) });
        Ok(Self { queue, answers, answer, wake })
    }

    /// Has a host asked; the answer carries `id`. Ways before `first` are left out if the target's choice and the host
    /// allow it. `has_failed`: the last try did not succeed.
    pub fn ask(&self, id: u64, target: Arc<Target>, first: Via, has_failed: bool) {
        let work = Work::Host(Job { id, target, task: Task::Ask { first }, parting: None });
        self.queue.change(|lanes| if has_failed { &mut lanes.patient } else { &mut lanes.brisk }.push_back(work));
    }

    /// Goes on with a host that told of a device: has it asked for a queue pair that is connected to `pair`.
    /// `reader_id`: see [`onlooker_bootstrap::VerbsRequest::reader_id`]. Where that fails and the target's choice
    /// allows it, the host is read another way.
    pub fn pair(
        &self,
        (id, target): (u64, Arc<Target>),
        told: Box<Bootstrapped>,
        (pair, reader_id): (Unconnected, Id),
        (first, has_failed): (Via, bool),
    ) {
        let request = pair.request(reader_id);
        let task = Task::Pair { told, pair: Some(Box::new(pair)), request, first };
        self.next(Work::Host(Job { id, target, task, parting: None }), has_failed);
    }

    /// Goes on with a host that told of a device and is to be read without.
    pub fn rest(&self, id: u64, target: Arc<Target>, told: Box<Bootstrapped>, (first, has_failed): (Via, bool)) {
        self.next(Work::Host(Job { id, target, task: Task::Rest { told, first }, parting: None }), has_failed);
    }

    /// Opens the device that has an address of this machine. On a thread of its own, for which nobody waits: a driver
    /// that hangs holds up no host, and not our end.
    pub fn open(&self, local: IpAddr) {
        let (answer, wake) = (self.answer.clone(), (self.wake)());
        let open = move || {
            // The engine may be over by now.
            if answer.send(Answer::Device(local, verbs::open(local, DEVICE_HOSTS))).is_ok() {
                wake();
            }
        };
        let thread = thread::Builder::new().name("open-device".into()).spawn(open);
        if let Err(source) = thread {
            let operation = "starting a thread to open its RDMA device";
            let error = HostError::System { peer: local.to_string(), operation, source };
            let _ = self.answer.send(Answer::Device(local, Err(error.into())));
            (self.wake)()();
        }
    }

    /// Has a host that is read asked for its clock; behind everybody who waits to be read.
    pub fn clock(&self, id: u64, target: Arc<Target>, peer: SocketAddr) {
        self.queue.change(|lanes| lanes.patient.push_back(Work::Clock(id, target, peer)));
    }

    /// Ends what would keep the caller waiting.
    pub fn end(&self, thing: Box<dyn Send>) {
        self.queue.change(|lanes| lanes.end(thing));
    }

    /// Tells a host to end our queue pair.
    pub fn part(&self, parting: Parting) {
        self.queue.change(|lanes| lanes.part(parting));
    }

    /// Before all others of its lane: somebody waits half-way.
    fn next(&self, work: Work, has_failed: bool) {
        self.queue.change(|lanes| if has_failed { &mut lanes.patient } else { &mut lanes.brisk }.push_front(work));
    }

    /// An answer, if there is one.
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl Drop for Connector {
    /// What is to be ended is, as far as there is time; threads that a host holds up end with their try.
    fn drop(&mut self) {
        self.queue.change(Lanes::close);
        // Answers that nobody has taken have queue pairs, too.
        while let Some(answer) = self.answer() {
            if let Answer::Host(_, Ok(Step::Linked(connected))) = answer {
                connected.parting.into_iter().for_each(|parting| self.part(parting));
            }
        }
        let is_left = |lanes: &mut Lanes| lanes.endings > 0;
        drop(self.queue.news.wait_timeout_while(self.queue.lock(), FAREWELL, is_left));
    }
}

/// Who asks a target's agent.
pub(crate) fn asker(target: &Target, timeout: Duration) -> Asker<'_> {
    Asker { token: &target.token, reader: READER, timeout }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::{Secret, Token};
    use onlooker_targets::{Choice, Priority};
    use std::net::TcpListener;
    use std::time::Instant;

    pub(super) fn target(port: u16, choice: Choice) -> Arc<Target> {
        Arc::new(Target {
            name: "x".into(),
            host: "127.0.0.1".into(),
            port,
            token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
            labels: Default::default(),
            interval: Duration::from_secs(1),
            priority: Priority::Normal,
            choice,
        })
    }

    #[test]
    fn an_address_of_no_device_is_told_as_that() {
        let (tell, told) = channel();
        let wake = move || {
            let _ = tell.send(());
        };
        let connector = Connector::new(1, Duration::from_secs(1), wake).unwrap();
        let local: IpAddr = "127.0.0.1".parse().unwrap();
        connector.end(Box::new(()));
        connector.open(local);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        let Some(Answer::Device(asked, Err(error))) = connector.answer() else { panic!("loopback has a device") };
        assert_eq!(asked, local);
        assert!(matches!(error, Error::Device(_)), "{error}");
        let no_device = onlooker_verbs::Error::NoDevice { address: local, there: "none".into() };
        assert!(Error::from(no_device).is_absence());
        let full = onlooker_verbs::Error::Limit { device: "rxe0".into(), what: "queue pairs", wanted: 2, limit: 1 };
        assert!(!Error::from(full).is_absence());
    }

    #[test]
    fn first_tries_do_not_wait_for_those_that_failed_before() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (tell, told) = channel();
        let timeout = Duration::from_secs(2);
        let wake = move || {
            let _ = tell.send(());
        };
        let connector = Connector::new(3, timeout, wake).unwrap();
        let silent_port = silent.local_addr().unwrap().port();
        // Two of three threads at most are patient with these.
        (0..20).for_each(|id| connector.ask(id, target(silent_port, Choice::Auto), Via::Verbs, true));
        let began = Instant::now();
        connector.ask(100, target(silent_port, Choice::Auto), Via::Verbs, false);
        connector.ask(101, target(closed, Choice::Auto), Via::Verbs, false);
        told.recv_timeout(timeout).unwrap();
        assert!(matches!(connector.answer(), Some(Answer::Host(101, Err(_)))));
        // Behind one brisk try, before any patient one has ended.
        assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
    }
}
