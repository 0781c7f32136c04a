// SPDX-License-Identifier: Apache-2.0
//! What the connector's threads do: ask a host, connect its queue pair, ask for its clock, end what takes its time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onlooker_bootstrap::VerbsRequest;
use onlooker_reader::bootstrap::{Bootstrapped, Parting, resolve};
use onlooker_reader::{Error as HostError, Via};
use onlooker_targets::{Choice, Target};
use onlooker_transport::Error;
use onlooker_transport::open::{connect_tcp, pick};
use onlooker_transport::verbs::Unconnected;

use super::{Answer, Connected, READER, Step, Way, asker};
use crate::ways::pairs;

/// What a host is to be asked.
pub(super) enum Task {
    /// How it is read.
    Ask { first: Via },
    /// To connect its queue pair to this one.
    Pair { told: Box<Bootstrapped>, pair: Option<Box<Unconnected>>, request: VerbsRequest, first: Via },
    /// Nothing any more: it is read without devices.
    Rest { told: Box<Bootstrapped>, first: Via },
}

pub(super) struct Job {
    pub(super) id: u64,
    pub(super) target: Arc<Target>,
    pub(super) task: Task,
    /// Of the queue pair that the host was asked for.
    pub(super) parting: Option<Parting>,
}

/// What a thread does at a time.
pub(super) enum Work {
    Host(Job),
    /// Asks a host for its clock, at the address where it is read.
    Clock(u64, Arc<Target>, SocketAddr),
    /// Ends something that takes its time.
    End(Box<dyn Send>),
}

/// How work ended.
pub(super) enum Done {
    Nothing,
    Ended,
    /// It had too little time.
    TooSlow(Job),
    /// With what is to be ended of a host that is not read by its device after all.
    Answer(Answer, Option<Parting>),
}

impl Work {
    /// `is_last`: there will not be more time.
    pub(super) fn run(self, limit: Duration, is_last: bool) -> Done {
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
    use crate::connect::tests::target;
    use onlooker_bootstrap::{Answer as Told, Control, Id, KERNEL, Responder, TCP, VERBS};
    use onlooker_reader::clock::{Moment, Relation};

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
}
