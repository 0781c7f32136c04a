// SPDX-License-Identifier: Apache-2.0
//! Whatever blocks on the way to a host, on a few threads for all hosts: a thousand dead hosts do not make a thousand threads.
//!
//! Two lanes, so that hosts which accept connections and say nothing do not hold up those that are well. A host that has not failed before is tried briskly, for
//! `BRISK` at most; if that was too short it goes to the patient lane, where whoever has failed before is, too, and the whole timeout counts. Patient tries have at most
//! two threads of three. So a first try waits for first tries only: n silent hosts among them cost n x 0.25 s / threads.
//!
//! A host that is to be read by this machine's RDMA device is asked twice: queue pairs are made by whoever has the device, the engine, between the two
//! ([`Step::Told`], [`Connector::pair`]). They are connected here, since that may wait for a neighbour's link-layer address. Goodbyes are said here, too
//! ([`Connector::part`]); at the end all that are left have 0.4 s together.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use onlooker_bootstrap::{Id, VerbsRequest};
use onlooker_reader::bootstrap::{Bootstrapped, Parting, resolve};
use onlooker_reader::{Error as HostError, Via};
use onlooker_targets::{Choice, Target};
use onlooker_transport::Error;
use onlooker_transport::open::{Asker, connect_tcp, pick};
use onlooker_transport::tcp::TcpRequester;
use onlooker_transport::verbs::{self, Card, CardPair, DirectoryCopy, Unconnected};

use crate::ways::pairs;

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
pub struct Connected {
    /// What it told.
    pub told: Bootstrapped,
    /// How.
    pub way: Way,
    /// Why it is not this machine's device, where that was tried.
    pub instead: Option<Error>,
    /// Ends the host's queue pair, if it has made one. For [`Connector::part`]: dropping it waits for the host.
    pub parting: Option<Parting>,
}

/// How far a host is.
pub enum Step {
    /// It is to be read by this machine's device: [`Connector::pair`] is next, or [`Connector::rest`] where that cannot be.
    Told(Box<Bootstrapped>),
    /// It can be read.
    Linked(Box<Connected>),
}

/// What became of a job.
pub enum Answer {
    /// Of a host's, by its id.
    Host(u64, Result<Step, Error>),
    /// The device that has an address.
    Device(IpAddr, Result<Card, Error>),
    /// What a host says of its clock, by the host's id. Where it says nothing there is no answer.
    Clock(u64, Box<Bootstrapped>),
}

/// How long a first try may take before it has to wait with the patient ones: three round trips around the earth take less.
const BRISK: Duration = Duration::from_millis(250);
/// How long hosts are waited for at the end: a host that does not answer must not hold it up.
const FAREWELL: Duration = Duration::from_millis(400);
/// Hosts that one device is opened for: the completion queue has entries for them (16 each, 4 MiB in all with a card), or as many as the device allows.
const DEVICE_HOSTS: u32 = 4096;

/// What a host is to be asked.
enum Task {
    /// How it is read.
    Ask { first: Via },
    /// To connect its queue pair to this one.
    Pair { told: Box<Bootstrapped>, pair: Option<Box<Unconnected>>, request: VerbsRequest, first: Via },
    /// Nothing any more: it is read without devices.
    Rest { told: Box<Bootstrapped>, first: Via },
}

struct Job {
    id: u64,
    target: Arc<Target>,
    task: Task,
    /// Of the queue pair that the host was asked for.
    parting: Option<Parting>,
}

enum Work {
    Host(Job),
    /// Asks a host for its clock, at the address where it is read.
    Clock(u64, Arc<Target>, SocketAddr),
    /// Ends something that takes its time.
    End(Box<dyn Send>),
}

#[derive(Default)]
struct Lanes {
    brisk: VecDeque<Work>,
    patient: VecDeque<Work>,
    /// Threads with a patient try.
    patient_threads: usize,
    /// What is to be ended and what is just being ended.
    endings: usize,
    /// Nothing but endings is begun any more.
    is_over: bool,
}

impl Lanes {
    fn end(&mut self, thing: Box<dyn Send>) {
        self.endings += 1;
        self.brisk.push_front(Work::End(thing));
    }

    /// A host that does not answer its goodbye must not hold up first tries.
    fn part(&mut self, parting: Parting) {
        self.endings += 1;
        let lane = if self.is_over { &mut self.brisk } else { &mut self.patient };
        lane.push_back(Work::End(Box::new(parting)));
    }

    /// Nothing is left but what is to be ended.
    fn close(&mut self) {
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
    fn take(&self) -> Option<(Work, bool)> {
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

    fn change(&self, change: impl FnOnce(&mut Lanes)) {
        change(&mut self.lock());
        self.news.notify_all();
    }
}

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
        let queue = Arc::new(Queue { lanes: Mutex::default(), news: Condvar::new(), most_patient_threads });
        // One alone does everything patiently.
        let brisk = if threads > 1 { timeout.min(BRISK) } else { timeout };
        for number in 0..threads {
            let (queue, answer, wake) = (queue.clone(), answer.clone(), wake.clone());
            let run = move || {
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

    /// Has a host asked; the answer carries `id`. Ways before `first` are left out if the target's choice and the host allow it. `has_failed`: the last try did not succeed.
    pub fn ask(&self, id: u64, target: Arc<Target>, first: Via, has_failed: bool) {
        let work = Work::Host(Job { id, target, task: Task::Ask { first }, parting: None });
        self.queue.change(|lanes| if has_failed { &mut lanes.patient } else { &mut lanes.brisk }.push_back(work));
    }

    /// Goes on with a host that told of a device: has it asked for a queue pair that is connected to `pair`. `reader_id`: see
    /// [`VerbsRequest::reader_id`]. Where that fails and the target's choice allows it, the host is read another way.
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

    /// Opens the device that has an address of this machine. On a thread of its own, for which nobody waits: a driver that hangs holds up no host, and not our end.
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

/// How work ended.
enum Done {
    Nothing,
    Ended,
    /// It had too little time.
    TooSlow(Job),
    /// With what is to be ended of a host that is not read by its device after all.
    Answer(Answer, Option<Parting>),
}

impl Work {
    /// `is_last`: there will not be more time.
    fn run(self, limit: Duration, is_last: bool) -> Done {
        match self {
            Self::End(thing) => {
                drop(thing);
                Done::Ended
            }
            Self::Clock(id, target, peer) => {
                let told = asker(&target, limit).ask(&[peer]);
                told.map_or(Done::Nothing, |told| Done::Answer(Answer::Clock(id, Box::new(told)), None))
            }
            Self::Host(mut job) => {
                let began = Instant::now();
                let step = job.step(limit, is_last);
                // Not refused: it had too little time.
                let is_slow = step.is_err() && !is_last && began.elapsed() >= limit;
                if is_slow && job.is_whole() {
                    return Done::TooSlow(job);
                }
                Done::Answer(Answer::Host(job.id, step), job.parting)
            }
        }
    }
}

impl Job {
    /// Whether it can be tried again: a queue pair is connected once.
    fn is_whole(&self) -> bool {
        !matches!(self.task, Task::Pair { pair: None, .. })
    }

    fn step(&mut self, limit: Duration, is_last: bool) -> Result<Step, Error> {
        let target = &*self.target;
        match &mut self.task {
            Task::Ask { first } => {
                let told = asker(target, limit).ask(&resolve(&target.host, target.port)?)?;
                go_on(target, told, *first, true, limit)
            }
            Task::Rest { told, first } => go_on(target, (**told).clone(), *first, false, limit),
            Task::Pair { told, pair, request, first } => {
                // From here on the host may have one for it, whatever it answers.
                self.parting.get_or_insert_with(|| parting(target, told, request));
                let error = match connect(target, told, pair, *request, limit) {
                    Ok(connected) => {
                        let parting = self.parting.take();
                        return Ok(Step::Linked(Box::new(Connected { parting, ..connected })));
                    }
                    Err(error) => error,
                };
                let is_slow = matches!(error, Error::Host(HostError::Timeout { .. }));
                if target.choice != Choice::Auto || (is_slow && !is_last) {
                    return Err(error);
                }
                let mut step = go_on(target, (**told).clone(), *first, false, limit)?;
                if let Step::Linked(connected) = &mut step {
                    connected.instead = Some(error);
                }
                Ok(step)
            }
        }
    }
}

/// Ends the queue pair that a target has for this request.
fn parting(target: &Target, told: &Bootstrapped, request: &VerbsRequest) -> Parting {
    Parting::new(told.peer, &target.token, READER, request)
}

/// Who asks a target's agent.
pub(crate) fn asker(target: &Target, timeout: Duration) -> Asker<'_> {
    Asker { token: &target.token, reader: READER, timeout }
}

fn connect(
    target: &Target,
    told: &Bootstrapped,
    pair: &mut Option<Box<Unconnected>>,
    request: VerbsRequest,
    timeout: Duration,
) -> Result<Connected, Error> {
    // The queue pair is of the device that the first one led to.
    let told = Bootstrapped { local: told.local, ..asker(target, timeout).ask_for_pair(told, request)? };
    let pair = pair.take().ok_or_else(|| HostError::NoQueuePair { peer: told.peer.to_string() })?;
    let copy = pair.copy();
    let pair = pair.connect(&told)?;
    Ok(Connected { told, way: Way::Verbs(Box::new(pair), copy), instead: None, parting: None })
}

/// With what a host has told. `has_device`: this machine may have a device that leads there.
fn go_on(target: &Target, told: Bootstrapped, first: Via, has_device: bool, timeout: Duration) -> Result<Step, Error> {
    let is_offered = |via| (has_device || via != Via::Verbs) && told.responder(via).is_ok();
    let way = match pick(pairs(target.choice), first, |pair| is_offered(pair.via)).via {
        Via::Verbs => {
            told.responder(Via::Verbs)?;
            return Ok(Step::Told(Box::new(told)));
        }
        Via::Kernel => {
            told.responder(Via::Kernel)?;
            Way::Kernel
        }
        Via::Tcp => Way::Tcp(Box::new(connect_tcp(&told, timeout)?.0)),
    };
    Ok(Step::Linked(Box::new(Connected { told, way, instead: None, parting: None })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::{Answer as Told, Control, KERNEL, Responder, Secret, TCP, Token, VERBS};
    use onlooker_reader::clock::{Moment, Relation};
    use std::net::TcpListener;

    fn target(port: u16, choice: Choice) -> Arc<Target> {
        Arc::new(Target {
            name: "x".into(),
            host: "127.0.0.1".into(),
            port,
            token: Token { fingerprint: None, secret: Secret::new([7; 32]) },
            labels: Default::default(),
            interval: Duration::from_secs(1),
            choice,
        })
    }

    /// A host with these responders; a problem stands behind a `!`.
    fn told(kinds: &[&str]) -> Bootstrapped {
        let responder = |kind: &&str| {
            let problem = kind.ends_with('!').then(|| "it is away".to_owned());
            Responder { kind: kind.trim_end_matches('!').into(), port: 9, problem, ..Responder::default() }
        };
        let answer = Told {
            agent: "0.1.0".into(),
            host: "x".into(),
            host_id: Id([1; 16]),
            boot_id: Id([2; 16]),
            boot_clock_ns: 1,
            wall_clock_ns: 2,
            control: Control { rkey: 3, va: 4096, bytes: 65_536, generation: 5 },
            max_read_bytes: 65_536,
            responders: kinds.iter().map(responder).collect(),
        };
        let moment = Moment { steady_ns: 0, utc_ns: 0 };
        Bootstrapped {
            answer,
            peer: "127.0.0.1:7177".parse().unwrap(),
            local: "127.0.0.1".parse().unwrap(),
            relation: Relation::new(0, moment, moment),
            round_trip: Duration::ZERO,
        }
    }

    #[test]
    fn what_a_host_tells_decides_how_it_is_read() {
        let go_on = |choice, kinds: &[&str], has_device| {
            go_on(&target(7177, choice), told(kinds), Via::Verbs, has_device, Duration::from_secs(1))
        };
        let is_pairs = |step: Result<Step, Error>| matches!(step, Ok(Step::Told(_)));
        let is_kernels = |step: Result<Step, Error>| match step {
            Ok(Step::Linked(connected)) => matches!(connected.way, Way::Kernel),
            _ => false,
        };
        assert!(is_pairs(go_on(Choice::Auto, &[TCP, KERNEL, VERBS], true)));
        assert!(is_kernels(go_on(Choice::Auto, &[TCP, KERNEL, VERBS], false)));
        assert!(is_kernels(go_on(Choice::Auto, &[TCP, KERNEL, "verbs!"], true)));
        assert!(is_kernels(go_on(Choice::Kernel, &[KERNEL, VERBS], true)));
        assert!(is_pairs(go_on(Choice::Verbs, &[KERNEL, VERBS], true)));
        let missing = go_on(Choice::Verbs, &[TCP, KERNEL], true).err().unwrap();
        assert!(matches!(missing, Error::Host(HostError::NoResponder { wanted: VERBS, .. })), "{missing}");
        let away = go_on(Choice::Verbs, &[TCP, KERNEL, "verbs!"], true).err().unwrap();
        assert!(matches!(away, Error::Host(HostError::Problem { kind: VERBS, .. })), "{away}");
        let nothing = go_on(Choice::Auto, &[VERBS], false).err().unwrap();
        assert!(matches!(nothing, Error::Host(HostError::NoResponder { wanted: TCP, .. })), "{nothing}");
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
