// SPDX-License-Identifier: Apache-2.0
//! `/metrics`: every host's current metrics and the controller's own, for a Prometheus that is already there.
//!
//! Text format 0.0.4, or OpenMetrics 1.0 for who accepts it. No timestamps: a scrape gets what is known now, and a host
//! that has not been read for a while leaves (`onlooker_host_up` says so), as one that Prometheus could not scrape.
//! Nothing is there twice, whatever the watched programs call their metrics: names of the controller's own are its
//! alone, then those of the hosts' agents come, then programs'; what a name is, [`onlooker_series::families`] decides.
//! What is left out is counted.
//!
//! The values of all hosts are copied at the beginning ([`sheet`]), host by host, each under its lock for some us. What
//! is written afterwards holds no lock and goes out piece by piece ([`super::stream`]). `host=NAME` asks for some
//! hosts, without what is the controller's own.

mod own;
mod recorded;
mod sheet;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use onlooker_series::exposition::Format;

use super::Shared;
use super::answer::{Failure, parameters};
use super::stream::{Asked, streamed};
use crate::fleet::Host;
use own::{Lines as _, Own};
pub use recorded::Recording;
use sheet::{Draft, Sheet};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let pairs = parameters(query.as_deref(), &["host"])?;
    let part = match pairs.is_empty() {
        true => None,
        false => Some(pairs.iter().map(|(_, name)| named(&shared, name)).collect::<Result<Vec<_>, _>>()?),
    };
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_open = accept.contains("application/openmetrics-text");
    let format = if is_open { Format::OpenMetrics } else { Format::Text };
    let limits = shared.limits.clone();
    let asked = Asked { limits: &limits, queue: &limits.metrics, peer, headers: &headers };
    let copy = move || {
        let sheet = sheet(&shared, part, format);
        let bytes = sheet.bytes();
        (sheet, bytes)
    };
    streamed(asked, if is_open { OPEN_METRICS } else { TEXT }, copy, Sheet::write).await
}

fn named(shared: &Shared, name: &str) -> Result<Arc<Host>, Failure> {
    shared.fleet.host(name).ok_or_else(|| Failure::no_host(name))
}

fn sheet(shared: &Shared, part: Option<Vec<Arc<Host>>>, format: Format) -> Sheet {
    let mut own = Own::default();
    let hosts = match part {
        Some(mut hosts) => {
            hosts.sort_by(|a, b| a.target.name.cmp(&b.target.name));
            hosts.dedup_by(|a, b| a.target.name == b.target.name);
            hosts.into()
        }
        None => {
            own.controller(shared);
            shared.fleet.hosts()
        }
    };
    let vitals = shared.vitals.get();
    for name in hosts.iter().map(|host| &host.target.name) {
        vitals.get(name).into_iter().for_each(|vital| own.vital(name, vital));
    }
    Draft::of(&hosts, &mut own).settled(&hosts, own, format)
}

#[cfg(test)]
mod tests;
