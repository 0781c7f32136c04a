// SPDX-License-Identifier: Apache-2.0
//! The controller's own HTTP interface (docs/http.md), as the page uses it: whether values move.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Longest answer that is taken.
const MAX_BYTES: u64 = 4 << 20;

fn get(address: SocketAddr, path: &str) -> io::Result<Value> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /api/onlooker/v1/{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_BYTES).read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").filter(|(head, _)| head.starts_with("HTTP/1.1 200")).map(|(_, body)| body);
    let body =
        body.ok_or_else(|| io::Error::other(format!("{path}: {}", answer.lines().next().unwrap_or_default())))?;
    Ok(serde_json::from_str(body)?)
}

/// One host as `/hosts/{host}` gives it.
pub(super) fn host(address: SocketAddr, name: &str) -> Option<Value> {
    get(address, &format!("hosts/{name}")).ok()
}

/// Values of the series of one metric.
#[derive(Debug, Default)]
pub(super) struct Moving {
    first: BTreeMap<String, f64>,
    /// Of those that have moved, the last one.
    pub(super) seen: Option<String>,
}

impl Moving {
    /// Looks again; whether any of them has moved since the first look.
    pub(super) fn look(&mut self, address: SocketAddr, host: &str, metric: &str) -> bool {
        let Ok(found) = get(address, &format!("hosts/{host}/series?search={metric}&limit=50")) else { return false };
        for series in found["series"].as_array().into_iter().flatten() {
            let (Some(name), Some(value)) = (series["series"].as_str(), series["value"].as_f64()) else { continue };
            let before = *self.first.entry(name.to_owned()).or_insert(value);
            if value > before {
                self.seen = Some(name.to_owned());
            }
        }
        self.seen.is_some()
    }
}
