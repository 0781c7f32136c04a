// SPDX-License-Identifier: Apache-2.0
//! TLS 1.3 for the HTTP interface: certificate and key from PEM files, looked at again every few seconds, so that a renewed one is used without a restart.
//!
//! Handshakes go on beside each other and have a time limit: who connects and says nothing keeps nobody else waiting.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::serve::{IncomingStream, Listener};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// A handshake may take so long.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at once; whoever comes then waits in the kernel's queue.
const HANDSHAKES: usize = 256;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("cannot read {what} {path}: {message}; PEM is expected, as `-----BEGIN ...`", path = path.display())]
    File {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The two do not make a server.
    #[error("[http] tls_certificate {certificate} and tls_key {key} cannot be used together: {source}", certificate = certificate.display(), key = key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What TLS said.
        source: rustls::Error,
    },
}

/// Certificate and key, as they are now.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

/// What changes when a file is written or replaced.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let config = RwLock::new(read(certificate, key)?);
        Ok(Arc::new(Self { certificate: certificate.into(), key: key.into(), config }))
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        })
    }

    /// Uses the files whenever they have changed; those that cannot be used are told, and the last good ones kept. Never ends.
    pub async fn follow(&self, say: impl Fn(&str)) {
        let mut seen = self.stamp();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.stamp();
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                    say("[http] tls_certificate and tls_key have changed and are used now");
                }
                // Perhaps only one of the two is there yet: the other one's change is seen, too.
                Err(error) => say(&format!("{error}; the ones of before are used further")),
            }
        }
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let file = |what, path: &Path, message: String| TlsError::File { what, path: path.into(), message };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| file("[http] tls_certificate", certificate, error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_file(key);
    let secret = secret.map_err(|error| file("[http] tls_key", key, error.to_string()))?;
    if chain.is_empty() {
        return Err(file("[http] tls_certificate", certificate, "no certificate is in it".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config =
        config.map_err(|source| TlsError::Pair { certificate: certificate.into(), key: key.into(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Connections whose handshake is done.
pub(super) struct Secured {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: io::Result<SocketAddr>,
}

impl Secured {
    pub(super) fn new(listener: TcpListener, tls: Arc<Tls>) -> Self {
        let address = listener.local_addr();
        let (done, ready) = mpsc::channel(1);
        tokio::spawn(accept(listener, tls, done));
        Self { ready, address }
    }
}

async fn accept(mut listener: TcpListener, tls: Arc<Tls>, done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(permit) = handshakes.clone().acquire_owned().await else { return };
        let (stream, peer) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = done.closed() => return,
        };
        let (acceptor, done) = (TlsAcceptor::from(tls.config()), done.clone());
        tokio::spawn(async move {
            // Who does not speak TLS is none of ours, and learns it from TLS.
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                let _ = done.send((stream, peer)).await;
            }
            drop(permit);
        });
    }
}

impl Listener for Secured {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(next) => next,
            // The runtime ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.address.as_ref().copied().map_err(|error| io::Error::from(error.kind()))
    }
}

/// Who connected.
#[derive(Clone, Copy)]
pub(super) struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Secured>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Secured>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Handlers know who connected as without TLS.
pub(super) async fn name_peer(mut request: Request) -> Request {
    if let Some(ConnectInfo(Peer(address))) = request.extensions().get().copied() {
        request.extensions_mut().insert(ConnectInfo(address));
    }
    request
}
