// SPDX-License-Identifier: Apache-2.0
//! Servers that are sent things: what they do with each request is the test's.

use std::io::{BufRead as _, BufReader, Read, Take, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// With 429 a sink asks to be left alone for so long, in s.
pub const RETRY_AFTER_S: u64 = 3;

/// A connection, as its requests are read.
pub trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A request's body; its limit is what has not been read of it.
pub type Body<'a> = Take<&'a mut BufReader<Box<dyn Stream>>>;

/// Starts one that lives as long as the test's process. `take` gets the request line with the headers, and the body. It
/// returns the status of the answer; with `None` the connection is closed without one.
///
/// # Panics
/// No port of loopback is free.
pub fn sink(take: impl Fn(&str, &mut Body<'_>) -> Option<u16> + Send + Sync + 'static) -> SocketAddr {
    sink_over(|stream| Box::new(stream), take)
}

/// The same over what `wrap` makes of each connection.
///
/// # Panics
/// No port of loopback is free.
pub fn sink_over(
    wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + Sync + 'static,
    take: impl Fn(&str, &mut Body<'_>) -> Option<u16> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let own = Arc::new((wrap, take));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let own = own.clone();
            thread::spawn(move || serve(BufReader::new(own.0(stream.unwrap())), &own.1));
        }
    });
    address
}

/// Requests of one connection.
fn serve(mut reader: BufReader<Box<dyn Stream>>, take: &dyn Fn(&str, &mut Body<'_>) -> Option<u16>) {
    while let Some((head, length)) = head(&mut reader) {
        let mut body = reader.by_ref().take(length);
        let Some(status) = take(&head, &mut body) else { return };
        let later = if status == 429 { format!("Retry-After: {RETRY_AFTER_S}\r\n") } else { String::new() };
        let answer = format!("HTTP/1.1 {status} Said\r\n{later}Content-Length: 0\r\n\r\n");
        if reader.get_mut().write_all(answer.as_bytes()).and_then(|()| reader.get_mut().flush()).is_err() {
            return;
        }
    }
}

/// Request line and headers of the next request, and the length of its body.
fn head(reader: &mut BufReader<Box<dyn Stream>>) -> Option<(String, u64)> {
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
