// SPDX-License-Identifier: Apache-2.0
//! Hosts for tests: honest and lying endpoints on loopback ports, each connection in a thread of its own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

pub mod memory;

use memory::Memory;
use onlooker_bootstrap::frame::{self, Decoded};
use onlooker_bootstrap::{Fingerprint, Request, Secret, Token};
use onlooker_wire::tcp_read::{self, Request as ReadRequest, encode_item_header};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
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

/// A certificate with its key, as an agent makes one.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["onlooker-agent".to_owned()]).unwrap();
        Self { certificate: made.cert.der().clone(), key: made.signing_key.serialize_der() }
    }

    /// This certificate with another one's key: what an impostor can show.
    pub fn with_key_of(&self, other: &Self) -> Self {
        Self { certificate: self.certificate.clone(), key: other.key.clone() }
    }

    pub fn token(&self) -> Token {
        Token { fingerprint: Some(Fingerprint::of_certificate(&self.certificate)), secret: secret() }
    }

    /// A TLS server's configuration; it does not look whether the key fits.
    pub fn server(&self) -> Arc<ServerConfig> {
        #[derive(Debug)]
        struct Fixed(Arc<rustls::sign::CertifiedKey>);
        impl rustls::server::ResolvesServerCert for Fixed {
            fn resolve(&self, _: rustls::server::ClientHello) -> Option<Arc<rustls::sign::CertifiedKey>> {
                Some(self.0.clone())
            }
        }
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
        let certified = rustls::sign::CertifiedKey::new(vec![self.certificate.clone()], key);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Fixed(Arc::new(certified))));
        Arc::new(config)
    }
}

pub fn secret() -> Secret {
    Secret::new([0x5c; 32])
}

pub fn plain_token() -> Token {
    Token { fingerprint: None, secret: secret() }
}

/// Reads one message.
pub fn read_message(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        match frame::decode(&bytes).ok()? {
            Decoded::Message { body, .. } => return Some(body.to_vec()),
            Decoded::Need { missing_bytes } => {
                let mut more = vec![0; missing_bytes];
                let got = stream.read(&mut more).ok().filter(|got| *got > 0)?;
                bytes.extend_from_slice(&more[..got]);
            }
        }
    }
}

/// A bootstrap endpoint; `respond` gets the request and returns the raw bytes to send.
pub fn endpoint(
    tls: Option<Arc<ServerConfig>>,
    respond: impl Fn(Option<Request>) -> Vec<u8> + Send + Sync + 'static,
) -> SocketAddr {
    serve(move |mut stream| match &tls {
        None => {
            let request = read_message(&mut stream).and_then(|body| Request::decode(&body).ok());
            let _ = stream.write_all(&respond(request));
        }
        Some(config) => {
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            let mut tls = rustls::Stream::new(&mut connection, &mut stream);
            let Some(body) = read_message(&mut tls) else { return };
            let _ = tls.write_all(&respond(Request::decode(&body).ok()));
            connection.send_close_notify();
            let _ = connection.complete_io(&mut stream);
        }
    })
}
