// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/hosts`: how it goes with each host: all of them, some, or those that are otherwise than they were.
//!
//! A page asks for the whole once and then with `since=` for what has changed ([`crate::fleet`] says what that is), and
//! for the figures of the hosts that it shows with `fresh=`. The answer is written host by host, each copied under its
//! lock and formatted outside of it, and goes out as it is written ([`super::stream`]). Cost: 7 us and 500 bytes a
//! host that is told; 0.1 us for one that is not.

use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use std::net::SocketAddr;

use super::Shared;
use super::answer::{Failure, number, one, parameters};
use super::stream::{Asked, Stopped, Writer, streamed};
use super::summary::{Detail, Summary};
use crate::fleet::{Fleet, Host, Since};
use crate::sink::State as HostState;

const JSON: &str = "application/json";
/// Hosts whose figures are asked for beside those that have changed.
const MAX_FRESH: usize = 500;
/// Numbers of changes are whole, and JSON's are doubles.
const MAX_NUMBER: f64 = (1u64 << 53) as f64;

pub(super) async fn host(State(shared): State<Shared>, Path(name): Path<String>) -> Result<Response, Failure> {
    let host = shared.fleet.host(&name).ok_or_else(|| Failure::no_host(&name))?;
    let (figures, regions) = host.detail();
    Ok(Json(Detail::new(&host, &figures, &regions)).into_response())
}

pub(super) async fn hosts(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let wanted = Wanted::of(query.as_deref())?;
    let limits = shared.limits.clone();
    let asked = Asked { limits: &limits, queue: &limits.lists, peer, headers: &headers };
    // Hosts are copied one by one while they are written: there is no room to be taken for all of them.
    streamed(asked, JSON, move || (wanted.find(&shared.fleet), 0), Found::write).await
}

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// What has changed, and some hosts in any case.
    Changes { since: u64, fresh: Vec<String> },
    /// Hosts that fit, but for the first of them.
    Part { fits: Fits, offset: usize, limit: usize },
}

/// Which hosts: all where nothing is said.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fits {
    states: Vec<String>,
    /// All of them occur in the host's name, address, labels, state or error.
    words: Vec<String>,
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within bounds
impl Wanted {
    fn of(query: Option<&str>) -> Result<Self, Failure> {
        let pairs = parameters(query, &["since", "fresh", "state", "search", "limit", "offset"])?;
        let all = |name: &str| -> Vec<String> {
            pairs.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone()).collect()
        };
        let fresh = all("fresh");
        let Some(since) = number(&pairs, "since", 0.0, MAX_NUMBER)? else {
            if !fresh.is_empty() {
                return Err(Failure::bad("`fresh` goes with `since`; without it all hosts are told anyway"));
            }
            let states = all("state");
            if let Some(state) = states.iter().find(|state| !HostState::NAMES.contains(&state.as_str())) {
                return Err(Failure::bad(format!("`state` is `{state}`; known are: {}", HostState::NAMES.join(", "))));
            }
            let words = one(&pairs, "search")?.unwrap_or_default().split_whitespace().map(str::to_lowercase).collect();
            let whole = |name| number(&pairs, name, 0.0, 1e9);
            let (offset, limit) = (whole("offset")?.unwrap_or(0.0), whole("limit")?.unwrap_or(1e9));
            return Ok(Self::Part { fits: Fits { states, words }, offset: offset as usize, limit: limit as usize });
        };
        if let Some((name, _)) = pairs.iter().find(|(name, _)| name != "since" && name != "fresh") {
            return Err(Failure::bad(format!(
                "`{name}` does not go with `since`: a host that fits no more would stay"
            )));
        }
        if fresh.len() > MAX_FRESH {
            return Err(Failure::bad(format!("{} hosts are `fresh`; at most {MAX_FRESH} are possible", fresh.len())));
        }
        Ok(Self::Changes { since: since as u64, fresh })
    }

    fn find(self, fleet: &Fleet) -> Found {
        match self {
            Self::Part { fits, offset, limit } => {
                // The number first: what changes from now on is told again.
                let Since { number, .. } = fleet.since(0);
                let hosts = fleet.hosts();
                Found { number, hosts, is_whole: fits == Fits::default(), gone: Vec::new(), fits, offset, limit }
            }
            Self::Changes { since, fresh } => {
                let Since { number, hosts, gone } = fleet.since(since);
                let is_whole = hosts.is_none();
                let hosts = hosts.map(|mut hosts| {
                    hosts.extend(fresh.iter().filter_map(|name| fleet.host(name)));
                    hosts.sort_by(|a, b| a.target.name.cmp(&b.target.name));
                    hosts.dedup_by(|a, b| a.target.name == b.target.name);
                    hosts.into()
                });
                let hosts: Arc<[Arc<Host>]> = hosts.unwrap_or_else(|| fleet.hosts());
                Found { number, hosts, is_whole, gone, fits: Fits::default(), offset: 0, limit: usize::MAX }
            }
        }
    }
}

impl Fits {
    fn fits(&self, host: &Host) -> bool {
        if self == &Self::default() {
            return true;
        }
        let state = host.look().state.clone();
        let name = state.name();
        if !self.states.is_empty() && !self.states.iter().any(|wanted| wanted == name) {
            return false;
        }
        let target = &host.target;
        let error = match &state {
            HostState::Silent(error) | HostState::Failed(error) => error,
            HostState::Connecting | HostState::Reading(_) => "",
        };
        let mut text = format!("{} {}:{} {name} {error}", target.name, target.host, target.port);
        target.labels.iter().for_each(|(label, value)| text.extend([" ", label, "=", value]));
        let text = text.to_lowercase();
        self.words.iter().all(|word| text.contains(word))
    }
}

/// What is told.
struct Found {
    number: u64,
    hosts: Arc<[Arc<Host>]>,
    /// These are all hosts that there are.
    is_whole: bool,
    gone: Vec<String>,
    fits: Fits,
    offset: usize,
    limit: usize,
}

impl Found {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), Stopped> {
        out.text().push_str("{\"hosts\":[");
        let (mut total, mut told) = (0, 0);
        for host in self.hosts.iter().filter(|host| self.fits.fits(host)) {
            total += 1;
            if total <= self.offset || told == self.limit {
                continue;
            }
            if told > 0 {
                out.text().push(',');
            }
            told += 1;
            let figures = host.figures();
            out.text().push_str(&json(&Summary::new(host, &figures)));
            out.flush()?;
        }
        let is_whole = self.is_whole && told == total;
        let (gone, number) = (json(&self.gone), self.number);
        let end = format!("],\"gone\":{gone},\"whole\":{is_whole},\"cursor\":{number},\"total\":{total}}}");
        out.text().push_str(&end);
        Ok(())
    }
}

/// What is always possible: names and numbers.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
