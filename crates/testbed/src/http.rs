// SPDX-License-Identifier: Apache-2.0
//! HTTP as tests want it: one request, one answer, no pooling, every header visible.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::PATIENCE;

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// Body.
    pub body: String,
}

impl Answer {
    /// Its body as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Sends a request with these header lines (each with its CRLF) and body.
#[must_use]
pub fn request(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // HTTP/1.0 has no chunks.
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no HTTP answer: {answer}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// The body of what is at `path`, which must be there.
#[must_use]
pub fn get(address: SocketAddr, path: &str) -> String {
    let answer = request(address, "GET", path, "", "");
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    answer.body
}

/// As [`get`], as JSON.
#[must_use]
pub fn json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(address, path)).unwrap()
}
