// SPDX-License-Identifier: Apache-2.0
//! Bootstrap endpoints of hosts in memory, over TLS and plain, honest and lying.

use super::stream::serve;
use onlooker_bootstrap::frame::{self, Decoded};
use onlooker_bootstrap::{Fingerprint, Request, Secret, Token};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

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
