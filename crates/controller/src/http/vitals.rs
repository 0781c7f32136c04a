// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/vitals`: how busy and how full each host is ([`crate::fleet`] samples it), all hosts at once, so that
//! a page can sort them.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::Shared;
use super::answer::{Failure, parameters};
use super::stream::{Asked, streamed};
use crate::fleet::{VITALS_INTERVAL, Vital};

/// A host's in JSON; shares are from 0 to 1.
#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    cpu: Option<f64>,
    cores: usize,
    load1: Option<f64>,
    memory: Option<f64>,
    swap: Option<f64>,
    filesystem: Option<f64>,
    mountpoint: Option<&'a str>,
    receive_bytes_per_s: Option<f64>,
    transmit_bytes_per_s: Option<f64>,
    retransmit: Option<f64>,
    pressure: Pressure,
}

#[derive(Serialize)]
struct Pressure {
    cpu: Option<f64>,
    memory: Option<f64>,
    io: Option<f64>,
}

impl<'a> Told<'a> {
    fn new(name: &'a str, vital: &'a Vital) -> Self {
        let [cpu, memory, io] = vital.pressure;
        Self {
            name,
            cpu: vital.cpu,
            cores: vital.cores,
            load1: vital.load1,
            memory: vital.memory,
            swap: vital.swap,
            filesystem: vital.filesystem.as_ref().map(|(share, _)| *share),
            mountpoint: vital.filesystem.as_ref().map(|(_, mount)| &**mount),
            receive_bytes_per_s: vital.receive,
            transmit_bytes_per_s: vital.transmit,
            retransmit: vital.retransmit,
            pressure: Pressure { cpu, memory, io },
        }
    }
}

pub(super) async fn vitals(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    parameters(query.as_deref(), &[])?;
    let limits = shared.limits.clone();
    let asked = Asked { limits: &limits, queue: &limits.lists, peer, headers: &headers };
    // What was sampled last is shared by all who ask.
    let found = move || (shared.vitals.get(), 0);
    streamed(asked, "application/json", found, |vitals, out| {
        out.text().push_str(&format!("{{\"every_ms\":{},\"hosts\":[", VITALS_INTERVAL.as_millis()));
        for (at, (name, vital)) in vitals.iter().enumerate() {
            out.text().push_str(if at == 0 { "" } else { "," });
            // Names and numbers are always possible.
            out.text().push_str(&serde_json::to_string(&Told::new(name, vital)).unwrap_or_default());
            out.flush()?;
        }
        out.text().push_str("]}");
        Ok(())
    })
    .await
}
