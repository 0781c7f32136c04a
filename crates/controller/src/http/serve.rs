// SPDX-License-Identifier: Apache-2.0
//! Connections: taken, served within their limits ([`super::limits`]), and ended.
//!
//! A task each. What a client does not do in time ends its connection: a TLS handshake, a header, a body, taking what
//! waits for it. When the controller stops, the port closes at once, streams end ([`Ending`]), requests that are under
//! way get a moment, and whatever is left then is dropped.

use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::connect_info::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::limits::{
    BUFFER_BYTES, Full, HANDSHAKE_TIME, HEADER_TIME, Limits, Place, Refusal, SEND_BUFFER_BYTES, STOP_TIME, WRITE_STALL,
};
use super::{Shared, Tls, router};

/// After a connection that the system did not give: it may have no descriptors for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For who finds all places taken.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Whether the controller is about to end: what would last for ever ends itself then.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<watch::Sender<bool>>);

impl Ending {
    fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Ready once it is so.
    pub(super) async fn begun(&self) {
        // The sender is ours: there is no error.
        let _ = self.0.subscribe().wait_for(|ends| *ends).await;
    }
}

struct Server {
    router: Router,
    limits: Arc<Limits>,
    ending: Ending,
    tls: Option<Arc<Tls>>,
    http: http1::Builder,
}

/// Serves until `stop` is ready, and at most [`STOP_TIME`] longer.
pub(super) async fn serve(listener: TcpListener, shared: Shared, stop: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_header_size(BUFFER_BYTES)
        .max_buf_size(BUFFER_BYTES);
    let (limits, ending, tls) = (shared.limits.clone(), shared.ending.clone(), shared.tls.clone());
    let server = Arc::new(Server { router: router(shared), limits, ending, tls, http });
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if let Some(place) = server.place(&stream, peer) {
                        connections.spawn(server.clone().connection(stream, peer, place));
                    }
                }
                Err(error) if is_of_one(&error) => {}
                Err(_) => {
                    server.limits.count(Refusal::Accept);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    server.ending.begin();
    let all = async { while connections.join_next().await.is_some() {} };
    // Whatever is left is dropped with the set.
    let _ = tokio::time::timeout(STOP_TIME, all).await;
}

/// Errors of `accept` that the next connection does not have.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

impl Server {
    fn place(&self, stream: &TcpStream, peer: SocketAddr) -> Option<Place> {
        let full = match self.limits.connections.take(peer.ip(), 1) {
            Ok(place) => return Some(place),
            Err(full) => full,
        };
        self.limits.count(if full == Full::All { Refusal::Connections } else { Refusal::SourceConnections });
        if self.tls.is_none() {
            let _ = stream.try_write(BUSY);
        }
        None
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, _place: Place) {
        let _ = stream.set_nodelay(true);
        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_STALL));
        let stream = Box::pin(stream);
        let Some(tls) = &self.tls else { return self.requests(stream, peer).await };
        let handshake = match self.limits.handshakes.take(peer.ip(), 1) {
            Ok(place) => place,
            Err(Full::All) => return self.limits.count(Refusal::Handshakes),
            Err(Full::Source) => return self.limits.count(Refusal::SourceHandshakes),
        };
        let accepted = TlsAcceptor::from(tls.config()).accept(stream);
        // Who does not speak TLS is none of ours, and learns it from TLS.
        match tokio::time::timeout(HANDSHAKE_TIME, accepted).await {
            Ok(Ok(stream)) => {
                drop(handshake);
                self.requests(stream, peer).await;
            }
            _ => self.limits.count(Refusal::Handshake),
        }
    }

    async fn requests<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, peer: SocketAddr) {
        let service = hyper::service::service_fn(|mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            self.router.clone().call(request)
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            result = connection.as_mut() => result,
            () = self.ending.begun() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            if error.is_timeout() {
                self.limits.count(Refusal::Header);
            } else if has_stalled(&error) {
                self.limits.count(Refusal::Stalled);
            }
        }
    }
}

/// Whether a write got no further for too long.
fn has_stalled(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}
