// SPDX-License-Identifier: Apache-2.0
//! A reader: bootstrap, READs over TCP, directory, schemas, values. Written from docs/format with the checked side of `onlooker-region`.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use onlooker_bootstrap::{Fingerprint, Token};
use onlooker_region::Block;
use onlooker_region::columns::Plan;
use onlooker_region::control::{Directory, RegionEntry, assemble_schema, schema_extent};
use onlooker_testbed::until;
use onlooker_wire::tcp_read::{self, Decoded, Refusal};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use serde_json::{Value, json};

use super::Agent;

pub(crate) struct Reader {
    stream: TcpStream,
    directory: Directory,
    pub(crate) control_va: u64,
    pub(crate) control_rkey: u32,
    control_bytes: u64,
    incarnation: u32,
    next_request: u32,
}

impl Reader {
    pub(crate) fn connect(agent: &Agent) -> Self {
        let answer = bootstrap(agent.bootstrap, &agent.token);
        assert_eq!(answer["ok"], true, "{answer}");
        assert_eq!(answer["responders"][0], json!({"kind": "tcp", "port": agent.tcp.port()}));
        let control = &answer["control"];
        let number = |key: &str| control[key].as_u64().unwrap_or_else(|| panic!("{key} of {answer}"));
        let incarnation = u32::try_from(number("generation")).unwrap();
        Self {
            stream: connect(agent.tcp),
            directory: Directory::new(incarnation),
            control_va: number("va"),
            control_rkey: u32::try_from(number("rkey")).unwrap(),
            control_bytes: number("bytes"),
            incarnation,
            next_request: 0,
        }
    }

    /// READs in one request, each with its outcome.
    pub(crate) fn reads(&mut self, reads: &[tcp_read::Read]) -> Vec<Result<Vec<u8>, Refusal>> {
        self.next_request += 1;
        let mut request = vec![0; tcp_read::LONGEST_REQUEST_BYTES];
        let length = tcp_read::encode_request(self.next_request, reads, &mut request).expect("encodes");
        self.stream.write_all(&request[..length]).expect("writes");
        let expected = tcp_read::Header::new(self.next_request, reads.len()).expect("a header");
        let mut bytes = Vec::new();
        loop {
            match tcp_read::decode_answer_header(&bytes, expected).expect("an answer") {
                Decoded::Complete { consumed_bytes, .. } => break drop(bytes.drain(..consumed_bytes)),
                Decoded::Need { missing_bytes } => self.more(&mut bytes, missing_bytes),
            }
        }
        let mut outcomes = Vec::new();
        for read in reads {
            loop {
                match tcp_read::decode_answer_item(&bytes, read.length_bytes).expect("an item") {
                    Decoded::Complete { value, consumed_bytes } => {
                        outcomes.push(value.map(<[u8]>::to_vec));
                        bytes.drain(..consumed_bytes);
                        break;
                    }
                    Decoded::Need { missing_bytes } => self.more(&mut bytes, missing_bytes),
                }
            }
        }
        outcomes
    }

    fn more(&mut self, bytes: &mut Vec<u8>, missing_bytes: usize) {
        let from = bytes.len();
        bytes.resize(from + missing_bytes, 0);
        self.stream.read_exact(&mut bytes[from..]).expect("reads");
    }

    pub(crate) fn read(&mut self, va: u64, rkey: u32, length_bytes: u32) -> Result<Vec<u8>, Refusal> {
        self.reads(&[tcp_read::Read { va, rkey, length_bytes }]).remove(0)
    }

    pub(crate) fn blocks(&mut self, va: u64, rkey: u32, count: u32) -> Result<Vec<Block>, Refusal> {
        let reads: Vec<_> =
            (0..u64::from(count)).map(|i| tcp_read::Read { va: va + i * 1024, rkey, length_bytes: 1024 }).collect();
        let mut blocks = Vec::new();
        for reads in reads.chunks(tcp_read::MAX_READS_PER_REQUEST) {
            for outcome in self.reads(reads) {
                let mut block = Block::default();
                block.bytes_mut().copy_from_slice(&outcome?);
                blocks.push(block);
            }
        }
        Ok(blocks)
    }

    /// Brings the directory up to date; torn blocks are read again.
    pub(crate) fn refresh(&mut self) {
        let (va, rkey) = (self.control_va, self.control_rkey);
        until("a directory", || {
            let header = self.blocks(va, rkey, 1).expect("the header")[0];
            let wanted = self.directory.header(&header).ok()?;
            for index in wanted {
                let block = self.blocks(va + u64::from(index) * 1024, rkey, 1).expect("an entry block")[0];
                self.directory.entry_block(index, &block).ok()?;
            }
            self.directory.complete();
            Some(())
        });
        assert_eq!(self.directory.refused().count(), 0);
    }

    pub(crate) fn regions(&mut self) -> Vec<RegionEntry> {
        self.refresh();
        self.directory.regions().cloned().collect()
    }

    pub(crate) fn region(&mut self, name: &str) -> Option<RegionEntry> {
        self.regions().into_iter().find(|region| region.name == name)
    }

    pub(crate) fn plan(&mut self, region: &RegionEntry) -> Plan {
        let entry = self.directory.schema(region.schema).expect("its schema is in the directory").clone();
        let (first, count) = schema_extent(&entry, self.control_va, self.control_bytes).expect("within");
        let blocks = self.blocks(entry.va, entry.rkey, count).expect("the schema's blocks");
        Plan::new(assemble_schema(&entry, self.incarnation, first, &blocks).expect("a schema"))
    }

    /// Values of a region as `name{label=value}`.
    pub(crate) fn values(&mut self, name: &str) -> BTreeMap<String, f64> {
        let region = self.region(name).unwrap_or_else(|| panic!("no region {name}"));
        let plan = self.plan(&region);
        let count = u32::try_from(region.bytes / 1024).unwrap();
        until("untorn blocks", || {
            let blocks = self.blocks(region.va, region.rkey, count).expect("the region");
            let mut values = BTreeMap::new();
            let refused = plan.decode(region.identity, &blocks, |sample| {
                let labels: Vec<String> =
                    sample.labels().iter().map(|(name, value)| format!("{name}={value}")).collect();
                values.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
            });
            refused.expect("enough blocks").iter().all(|refused| !refused.reject.is_transient()).then_some(values)
        })
    }

    /// A counter of the agent, without `onlooker_agent_`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let values = self.values("onlooker_agent");
        let name =
            if name.contains('{') { format!("onlooker_agent_{name}") } else { format!("onlooker_agent_{name}{{}}") };
        *values.get(&name).unwrap_or_else(|| panic!("no {name} in {values:?}")) as u64
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("sets");
    stream.set_nodelay(true).expect("sets");
    stream
}

/// A connection from another address of this machine.
pub(crate) fn connect_from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((source, 0))).expect("binds");
    rustix::net::connect(&socket, &to).expect("connects");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("sets");
    stream
}

/// One bootstrap, by TLS if the token has a fingerprint.
pub(crate) fn bootstrap(address: SocketAddr, token: &str) -> Value {
    let Token { fingerprint, secret } = Token::parse(token).expect("a token");
    let request = json!({"op": "bootstrap", "version": 1, "token": secret.text(), "reader": "test"});
    converse(address, fingerprint, request.to_string().as_bytes()).expect("an answer")
}

/// One message and its answer.
pub(crate) fn converse(
    address: SocketAddr,
    fingerprint: Option<Fingerprint>,
    request: &[u8],
) -> std::io::Result<Value> {
    let mut stream = connect(address);
    let Some(fingerprint) = fingerprint else { return exchange(&mut stream, request) };
    let name = ServerName::try_from("onlooker-agent").expect("a name");
    let mut connection = rustls::ClientConnection::new(client_config(fingerprint), name).expect("a connection");
    exchange(&mut rustls::Stream::new(&mut connection, &mut stream), request)
}

pub(crate) fn exchange(stream: &mut (impl Read + Write), request: &[u8]) -> std::io::Result<Value> {
    let mut message = u32::try_from(request.len()).expect("short").to_le_bytes().to_vec();
    message.extend_from_slice(request);
    stream.write_all(&message)?;
    stream.flush()?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut answer)?;
    Ok(serde_json::from_slice(&answer).expect("JSON"))
}

fn client_config(fingerprint: Fingerprint) -> Arc<rustls::ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pinned = Pinned { fingerprint, provider: provider.clone() };
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    Arc::new(config)
}

/// Accepts exactly the certificate of the token.
#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if Fingerprint::of_certificate(certificate) == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General("another certificate".into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
