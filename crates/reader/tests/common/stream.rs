// SPDX-License-Identifier: Apache-2.0
//! Connections of hosts in memory: whatever a test serves on a loopback port, each connection in a thread of its own,
//! and the TCP responder.

use super::memory::Memory;
use onlooker_wire::tcp_read::{self, Request as ReadRequest, encode_item_header};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// Serves connections at a port of its own until the test's process ends.
pub fn serve(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    serve_at("127.0.0.1:0".parse().unwrap(), serve)
}

/// Serves connections at an address of the calling thread's network namespace.
pub fn serve_at(address: SocketAddr, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), serve.clone());
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// The bytes that answer one request.
pub fn answer(memory: &Memory, request: &ReadRequest) -> Vec<u8> {
    let mut out = request.header.to_bytes().to_vec();
    for read in request.reads() {
        match memory.read(&read) {
            Ok(bytes) => {
                out.extend(encode_item_header(Ok(read.length_bytes)).unwrap());
                out.extend(bytes);
            }
            Err(refusal) => out.extend(encode_item_header(Err(refusal)).unwrap()),
        }
    }
    out
}

/// Serves a stream's requests; `change` may do to an answer's bytes what it likes, and false ends the connection.
pub fn answer_stream(
    memory: &Memory,
    mut stream: TcpStream,
    mut change: impl FnMut(&mut Vec<u8>, &mut TcpStream) -> bool,
) {
    let mut bytes = Vec::new();
    let mut chunk = [0; 65_536];
    loop {
        while let Ok(tcp_read::Decoded::Complete { value, consumed_bytes }) = ReadRequest::decode(&bytes) {
            let mut out = answer(memory, &value);
            if !change(&mut out, &mut stream) || stream.write_all(&out).is_err() {
                return;
            }
            bytes.drain(..consumed_bytes);
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(got) => bytes.extend_from_slice(&chunk[..got]),
        }
    }
}

/// An honest TCP responder.
pub fn responder(memory: &Arc<Memory>) -> SocketAddr {
    responder_at("127.0.0.1:0".parse().unwrap(), memory)
}

/// An honest TCP responder elsewhere.
pub fn responder_at(address: SocketAddr, memory: &Arc<Memory>) -> SocketAddr {
    let memory = memory.clone();
    serve_at(address, move |stream| answer_stream(&memory, stream, |_, _| true))
}
