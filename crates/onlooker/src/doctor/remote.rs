// SPDX-License-Identifier: Apache-2.0
//! Checks of the way to a host, step by step; the first that fails ends them.

use super::Check;
use super::served::{self, Row};
use crate::host::{READER, Target, addresses};
use crate::number::span;
use crate::output::shown;
use crate::token;
use onlooker_bootstrap::Token;
use onlooker_reader::bootstrap::{Bootstrapped, connect};
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{read_host, read_one};
use onlooker_reader::{Limits, Outcome, Pair, Requester, Session, Via, header_read, outcome_name};
use onlooker_region::Block;
use onlooker_transport::Error;
use onlooker_transport::open::{Asker, open, soft_kernel};
use onlooker_transport::verbs;
use std::net::SocketAddr;
use std::time::Duration;

/// READs whose times are told.
const READS: u64 = 100;
/// How long one of them may take.
const READ_PATIENCE_NS: u64 = 250_000_000;
/// Clock bound beyond which ages of sampled values mean little.
const MAX_CLOCK_ERROR_NS: u64 = 10_000_000;

/// Appends the checks; returns what the first responder that answers serves, metric by metric.
pub(super) fn checks(target: &Target, source: &token::Source, timeout: Duration, checks: &mut Vec<Check>) -> Vec<Row> {
    let mut rows = Vec::new();
    // Each step needs the one before.
    let _ = resolved(target, checks).and_then(|addresses| {
        reached(&addresses, timeout, checks)?;
        let token = token_of(&addresses, source, checks)?;
        let asker = Asker { token: &token, reader: READER, timeout };
        let told = bootstrapped(&addresses, &asker, checks)?;
        for pair in Pair::ALL {
            responder(&told, pair, &asker, checks, &mut rows);
        }
        clock(&told, checks);
        Some(())
    });
    rows
}

fn resolved(target: &Target, checks: &mut Vec<Check>) -> Option<Vec<SocketAddr>> {
    match addresses(target) {
        Ok(addresses) => {
            let shown: Vec<_> = addresses.iter().map(|address| address.ip().to_string()).collect();
            checks.push(Check::ok("name", format!("{} is {}", target.host, shown.join(", "))));
            Some(addresses)
        }
        Err(error) => {
            checks.push(Check::fail("name", error.to_string(), "check DNS and /etc/hosts"));
            None
        }
    }
}

fn reached(addresses: &[SocketAddr], timeout: Duration, checks: &mut Vec<Check>) -> Option<()> {
    match connect(addresses, "bootstrap endpoint", timeout) {
        Ok((_, address)) => {
            checks.push(Check::ok("bootstrap port", format!("{address} answers")));
            Some(())
        }
        Err(error) => {
            let advice =
                "[bootstrap] listen in agent.toml is loopback unless changed; then look at the firewalls between";
            checks.push(Check::fail("bootstrap port", error.to_string(), advice));
            None
        }
    }
}

fn token_of(addresses: &[SocketAddr], source: &token::Source, checks: &mut Vec<Check>) -> Option<Token> {
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    match source.token(is_local) {
        Ok(token) if token.fingerprint.is_none() && !is_local => {
            let advice = "set tls = true in the agent's [bootstrap] and take a fresh token";
            checks.push(Check::warn("token", "for a plain endpoint: its secret crosses the network readable", advice));
            Some(token)
        }
        Ok(token) => {
            let mode = if token.fingerprint.is_some() { "TLS" } else { "plain" };
            checks.push(Check::ok("token", format!("well formed, for a {mode} endpoint")));
            Some(token)
        }
        Err(error) => {
            checks.push(Check::fail("token", error.to_string(), "run `onlooker-agent token` on that host"));
            None
        }
    }
}

fn bootstrapped(addresses: &[SocketAddr], asker: &Asker, checks: &mut Vec<Check>) -> Option<Bootstrapped> {
    match asker.ask(addresses) {
        Ok(told) => {
            let kinds: Vec<_> = told.answer.responders.iter().map(|responder| shown(&responder.kind)).collect();
            let (host, agent) = (&told.answer.host, &told.answer.agent);
            checks
                .push(Check::ok("bootstrap", format!("host {host}, agent {agent}, responders: {}", kinds.join(", "))));
            Some(told)
        }
        Err(error) => {
            let advice = "`onlooker-agent token` on that host prints the token that it accepts";
            checks.push(Check::fail("bootstrap", error.to_string(), advice));
            None
        }
    }
}

/// One of the host's responders and who can read from it: whether it answers, what it serves, how fast.
fn responder(told: &Bootstrapped, pair: Pair, asker: &Asker, checks: &mut Vec<Check>, rows: &mut Vec<Row>) {
    let Some(responder) = told.answer.responder(pair.via.kind()) else {
        let what = format!("pair {pair}");
        match pair {
            Pair::SOFT_KERNEL => checks.push(Check::warn(
                what,
                "the host has no kernel responder, so every READ wakes its agent",
                "enable [kernel] in its agent.toml; `onlooker doctor` there says what is missing for it",
            )),
            Pair::TCP => checks.push(Check::ok(what, "the host has no TCP responder")),
            _ => {}
        }
        return;
    };
    match pair {
        // A device would have the port that this one needs.
        Pair::SOFT_VERBS if has_device(told) => return,
        Pair::VERBS_KERNEL if !responder.roce || !has_device(told) => return,
        Pair::SOFT_KERNEL => return by_packets(told, asker.timeout, checks, rows),
        Pair { .. } => {}
    }
    let what = format!("pair {pair}");
    match open(told, &[pair], asker) {
        Ok(mut way) => {
            checks.push(Check::ok(what, format!("{} answers", way.address)));
            served(&way.told, pair, &mut *way.requester, asker.timeout, checks, rows);
        }
        Err(error) if pair == Pair::TCP => checks.push(Check::fail(what, error.to_string(), advice(pair.via))),
        // It is connected, and READs get no answer.
        Err(error @ (Error::Read { .. } | Error::Silent { .. })) => {
            checks.push(Check::fail(what, error.to_string(), advice(pair.via)));
        }
        // Another pair will do.
        Err(error) => checks.push(Check::warn(what, error.to_string(), "")),
    }
}

/// What to look at where READs are not answered.
fn advice(via: Via) -> &'static str {
    match via {
        Via::Verbs => "is UDP port 4791 open in both directions? Try again, or read it another way",
        Via::Kernel => "",
        Via::Tcp => "is [tcp] allow in agent.toml open for this machine, and its port reachable?",
    }
}

/// Whether this machine has an RDMA device at the address that leads to the host.
fn has_device(told: &Bootstrapped) -> bool {
    verbs::open(told.local, 1).is_ok()
}

/// The kernel responder by this process, which counts what becomes of its packets.
fn by_packets(told: &Bootstrapped, timeout: Duration, checks: &mut Vec<Check>, rows: &mut Vec<Row>) {
    let pair = Pair::SOFT_KERNEL;
    let (mut requester, address) = match soft_kernel(told) {
        Ok(connected) => connected,
        Err(error) => return checks.push(Check::fail(format!("pair {pair}"), error.to_string(), "")),
    };
    checks.push(Check::ok(format!("pair {pair}"), format!("{address} answers")));
    served(told, pair, &mut requester, timeout, checks, rows);
    let counters = requester.socket().exchange().counters(requester.flow());
    let dropped = counters.bad_icrc + counters.wrong_length + counters.malformed + counters.unsent;
    if counters.repeated + counters.late + dropped > 0 {
        checks.push(Check::warn(
            format!("{pair} packets"),
            format!(
                "of {} requests {} were repeated; {} answers came late, {dropped} were damaged or foreign",
                counters.sent, counters.repeated, counters.late
            ),
            "a lossy way, an overloaded processor, or the responder's budget: `onlooker doctor` on the host counts what it drops",
        ));
    }
}

/// Reads everything once, and one block often.
fn served(
    told: &Bootstrapped,
    pair: Pair,
    requester: &mut dyn Requester,
    timeout: Duration,
    checks: &mut Vec<Check>,
    rows: &mut Vec<Row>,
) {
    let mut session = Session::new(&told.answer, pair.via, requester.max_read_blocks(), Limits::default());
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    match read_host(requester, &mut session, steady_ns().saturating_add(timeout_ns), steady_ns) {
        Ok(()) => {
            regions(told, pair, &session, checks);
            // The kernel responder has most: what it does not serve over TCP is not new, and a device serves no more than it.
            if rows.is_empty() && pair.via != Via::Verbs {
                *rows = served::rows(told, &session);
            }
        }
        Err(error) => {
            let advice = match pair.via {
                Via::Kernel => {
                    "the first READ was answered: the agent was restarted meanwhile, or the way is bad; try again"
                }
                via => advice(via),
            };
            return checks.push(Check::fail(format!("{pair} regions"), error.to_string(), advice));
        }
    }
    match measure(told, pair.via, requester) {
        Ok((mut took_ns, unanswered)) => {
            took_ns.sort_unstable();
            let at = |part: usize| span(took_ns.get((took_ns.len() - 1) * part / 100).copied().unwrap_or(0).into());
            let detail = format!("{READS} of one block: min {}, p50 {}, max {}", at(0), at(50), at(100));
            checks.push(if unanswered == 0 {
                Check::ok(format!("{pair} READs"), detail)
            } else {
                let advice = "lost on the way, or over the responder's budget";
                Check::warn(format!("{pair} READs"), format!("{detail}; {unanswered} got no answer in 250 ms"), advice)
            });
        }
        Err(what) => {
            checks.push(Check::fail(format!("{pair} READs"), what, "see the agent's log, and [tcp] max_reads_per_s"));
        }
    }
}

/// What the directory says of this responder, and how old its values are.
fn regions(told: &Bootstrapped, pair: Pair, session: &Session, checks: &mut Vec<Check>) {
    let refused = session.control_refused().len() + session.directory().refused().count();
    let all = session.directory().regions().count();
    let (mut served, mut troubled, mut oldest) = (0, Vec::new(), None);
    for frame in session.frames() {
        served += 1;
        let name = shown(&frame.entry().name);
        if let Some(problem) = frame.problem() {
            troubled.push(format!("{name}: {problem}"));
        } else if let Some(refused) = frame.refused().first() {
            troubled.push(format!("{name}: {}", refused.reject));
        }
        let answered_ns = frame.times_ns().1;
        frame.decode(|sample| {
            let age_ns = sample.time_ns.map(|time_ns| told.relation.age_ns(time_ns, answered_ns));
            if let Some(age_ns) = age_ns.filter(|age_ns| oldest.as_ref().is_none_or(|(most, _)| age_ns > most)) {
                oldest = Some((age_ns, name.clone()));
            }
        });
    }
    let oldest =
        oldest.map_or_else(String::new, |(age_ns, name)| format!("; oldest value: {} (of {name})", span(age_ns)));
    let detail = format!("{served} of {all} in the directory, {refused} entries refused{oldest}");
    checks.push(match (troubled.first(), refused) {
        (Some(first), _) => Check::warn(
            format!("{pair} regions"),
            format!("{detail}; {} could not be read, {first}", troubled.len()),
            "`onlooker read` says why for each",
        ),
        (None, 0) => Check::ok(format!("{pair} regions"), detail),
        (None, _) => Check::warn(format!("{pair} regions"), detail, "`onlooker read --regions` says why"),
    });
}

/// Times of single READs of the header, one after the other, ns; and how many were not answered.
fn measure(told: &Bootstrapped, via: Via, requester: &mut dyn Requester) -> Result<(Vec<u64>, u64), String> {
    let mut memory = [Block::default()];
    let (mut took_ns, mut unanswered) = (Vec::new(), 0);
    for id in 0..READS {
        let begin_ns = steady_ns();
        let read = header_read(&told.answer, via, id, begin_ns.saturating_add(READ_PATIENCE_NS));
        match read_one(requester, read, &mut memory, steady_ns).map_err(|broken| broken.to_string())? {
            Outcome::Done => took_ns.push(steady_ns() - begin_ns),
            Outcome::Timeout => unanswered += 1,
            other => return Err(format!("READ {id} ended as `{}`", outcome_name(other))),
        }
        if unanswered > READS / 10 {
            return Err(format!("{unanswered} of the first {} READs got no answer", id + 1));
        }
    }
    Ok((took_ns, unanswered))
}

fn clock(told: &Bootstrapped, checks: &mut Vec<Check>) {
    let relation = &told.relation;
    let error_ns = relation.error_ns(steady_ns());
    let detail = format!("the host's boot clock is known to +-{}", span(error_ns.into()));
    checks.push(if error_ns <= MAX_CLOCK_ERROR_NS {
        Check::ok("clock relation", detail)
    } else {
        Check::warn("clock relation", detail, "ages are no better than that; the way to the host is slow")
    });
}
