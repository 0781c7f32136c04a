// SPDX-License-Identifier: Apache-2.0
//! Checks of the way to a host, step by step; the first that fails ends them.

use super::Check;
use crate::host::{Connection, HostError, Target, addresses};
use crate::number::span;
use crate::token;
use onlooker_bootstrap::Token;
use onlooker_region::Block;
use onlooker_transport::bootstrap::connect;
use onlooker_transport::clock::steady_ns;
use onlooker_transport::reader::Limits;
use onlooker_transport::{Broken, Outcome, Read, Requester};
use std::net::SocketAddr;
use std::time::Duration;

/// READs whose median is told.
const READS: usize = 100;
/// Clock bound beyond which ages of sampled values mean little.
const MAX_CLOCK_ERROR_NS: u64 = 10_000_000;

/// Appends the checks.
pub(super) fn checks(target: &Target, source: &token::Source, timeout: Duration, checks: &mut Vec<Check>) {
    // Each step needs the one before.
    let _ = resolved(target, checks).and_then(|addresses| {
        reached(&addresses, timeout, checks)?;
        let token = token_of(&addresses, source, checks)?;
        let mut connection = bootstrapped(target, addresses, token, timeout, checks)?;
        control(&mut connection, checks)?;
        latency(&mut connection, timeout, checks)?;
        clock(&connection, checks);
        Some(())
    });
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

fn bootstrapped(
    target: &Target,
    addresses: Vec<SocketAddr>,
    token: Token,
    timeout: Duration,
    checks: &mut Vec<Check>,
) -> Option<Connection> {
    match Connection::open(target, addresses, token, timeout, Limits::default()) {
        Ok(connection) => {
            let answer = &connection.told.answer;
            checks.push(Check::ok("bootstrap", format!("host {}, agent {}", answer.host, answer.agent)));
            Some(connection)
        }
        Err(error) => {
            let advice = "`onlooker-agent token` on that host prints the token that it accepts";
            checks.push(Check::fail("bootstrap", error.to_string(), advice));
            None
        }
    }
}

fn control(connection: &mut Connection, checks: &mut Vec<Check>) -> Option<()> {
    match connection.read(&|session| session.select(|_, _| false)) {
        Ok(()) => {
            let directory = connection.session.directory();
            let refused = connection.session.control_refused().len() + directory.refused().count();
            let detail = format!("{} regions, {refused} entries refused", directory.regions().count());
            checks.push(match refused {
                0 => Check::ok("control region", detail),
                _ => Check::warn("control region", detail, "`onlooker read --regions` says why"),
            });
            Some(())
        }
        Err(error) => {
            let advice = match &error {
                HostError::Drive { .. } => {
                    "is [tcp] allow in agent.toml open for this machine, and its port reachable?"
                }
                HostError::Transport(_) | HostError::Token(_) => "see the agent's log",
            };
            checks.push(Check::fail("control region", error.to_string(), advice));
            None
        }
    }
}

fn latency(connection: &mut Connection, timeout: Duration, checks: &mut Vec<Check>) -> Option<()> {
    match measure(connection, timeout) {
        Ok(mut took_ns) => {
            took_ns.sort_unstable();
            let at = |part: usize| span(took_ns.get(took_ns.len() * part / 100).copied().unwrap_or(0).into());
            let detail = format!("{READS} of one block: p50 {}, p90 {}", at(50), at(90));
            checks.push(Check::ok("READs", detail));
            Some(())
        }
        Err(what) => {
            checks.push(Check::fail("READs", what, "see the agent's log, and [tcp] max_reads_per_s"));
            None
        }
    }
}

/// Times of single READs of the header, one after the other, ns.
fn measure(connection: &mut Connection, timeout: Duration) -> Result<Vec<u64>, String> {
    let control = connection.told.answer.control;
    let requester = &mut connection.requester;
    let mut memory = [Block::default()];
    let mut took_ns = Vec::with_capacity(READS);
    let mut completions = Vec::new();
    let broken = |error: Broken| error.to_string();
    let deadline_ns = steady_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
    for number in 0..READS {
        let begin_ns = steady_ns();
        let read = Read { id: number as u64, va: control.va, rkey: control.rkey, at: 0, blocks: 1, deadline_ns };
        requester.submit(&[read]).map_err(broken)?;
        completions.clear();
        while completions.is_empty() {
            requester.wait(Duration::from_millis(20)).map_err(broken)?;
            requester.poll(&mut memory, steady_ns(), &mut completions).map_err(broken)?;
        }
        match completions[0].outcome {
            Outcome::Done => took_ns.push(steady_ns() - begin_ns),
            other => {
                return Err(format!("READ {number} ended as `{}`", onlooker_transport::reader::outcome_name(other)));
            }
        }
    }
    Ok(took_ns)
}

fn clock(connection: &Connection, checks: &mut Vec<Check>) {
    let relation = &connection.told.relation;
    let error_ns = relation.error_ns(steady_ns());
    let detail = format!("the host's boot clock is known to +-{}", span(error_ns.into()));
    checks.push(if error_ns <= MAX_CLOCK_ERROR_NS {
        Check::ok("clock relation", detail)
    } else {
        Check::warn("clock relation", detail, "ages are no better than that; the way to the host is slow")
    });
}
