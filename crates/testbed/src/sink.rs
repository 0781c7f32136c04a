// SPDX-License-Identifier: Apache-2.0
//! Servers that are sent things: what they do with each request is the test's.

use std::io::{BufRead as _, BufReader, Read as _, Take, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A request's body; its limit is what has not been read of it.
pub type Body<'a> = Take<&'a mut BufReader<TcpStream>>;

/// Starts one that lives as long as the test's process. `take` gets the request line with the headers, and the body. It
/// returns the status of the answer; with `None` the connection is closed without one.
///
/// # Panics
/// No port of loopback is free.
pub fn sink(take: impl Fn(&str, &mut Body<'_>) -> Option<u16> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let take = Arc::new(take);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let take = take.clone();
            thread::spawn(move || serve(BufReader::new(stream.unwrap()), &*take));
        }
    });
    address
}

/// Requests of one connection.
fn serve(mut reader: BufReader<TcpStream>, take: &dyn Fn(&str, &mut Body<'_>) -> Option<u16>) {
    while let Some((head, length)) = head(&mut reader) {
        let mut body = reader.by_ref().take(length);
        let Some(status) = take(&head, &mut body) else { return };
        if write!(reader.get_ref(), "HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// Request line and headers of the next request, and the length of its body.
fn head(reader: &mut BufReader<TcpStream>) -> Option<(String, u64)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let begin = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
        let line = head[begin..].trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            return Some((head, length));
        }
    }
}
