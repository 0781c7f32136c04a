// SPDX-License-Identifier: Apache-2.0
//! Answers that are made while they are taken: `/metrics` and the list of hosts, which are as long as the fleet is
//! large.
//!
//! What an answer is made of is copied first, in the query's turn; from then on no lock is held. A thread that may
//! block writes it in pieces of [`PIECE_BYTES`] into a channel of [`WAITING_PIECES`]; while its client takes nothing,
//! the query rests and others have its turn. So a slow client costs a thread that sleeps, some pieces and what the
//! answer is made of, which counts as an answer that waits ([`super::limits`]); it is cut off after [`ANSWER_TIME`]. An
//! answer that breaks off ends its connection: nobody takes it for whole.
//!
//! Packed by gzip where the client takes that, on the same thread. Not by a layer around the routes (tower-http): that
//! would pack on the two threads on which all connections are served, and wait for no turn.

use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::Frame;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::answer::{Failure, accepts};
use super::limits::{ANSWER_TIME, BUFFER_BYTES, Limits, Place, Queue, Refusal, Turn};

/// An answer goes on its way in pieces of about this length.
pub(super) const PIECE_BYTES: usize = 64 << 10;
/// What is written beyond it before anybody looks.
const SLACK_BYTES: usize = 8 << 10;
/// Pieces that are made before their client has taken those before. One that has to wait waits for half of them to be
/// taken: threads are woken a few times less often.
const WAITING_PIECES: usize = 8;

pub(super) const GZIP: HeaderValue = HeaderValue::from_static("gzip");
pub(super) const VARY: HeaderValue = HeaderValue::from_static("accept-encoding");

/// Whether a client takes gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    accepts(headers, header::ACCEPT_ENCODING, |coding| coding.eq_ignore_ascii_case("gzip") || coding == "*")
}

/// Packs an answer that is there.
pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    // A vector takes everything.
    let written = packed.write_all(bytes);
    debug_assert!(written.is_ok());
    packed.finish().unwrap_or_default()
}

/// Nobody takes the rest.
#[derive(Debug)]
pub(super) struct Stopped;

/// Takes the pieces of an answer, one after the other.
pub(super) type Take<'a> = &'a mut dyn FnMut(Bytes) -> Result<(), Stopped>;

/// Where an answer is written.
pub(super) struct Writer<'a> {
    text: String,
    packed: Option<GzEncoder<Vec<u8>>>,
    take: Take<'a>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(is_packed: bool, take: Take<'a>) -> Self {
        let packed = is_packed.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { text: String::with_capacity(PIECE_BYTES + SLACK_BYTES), packed, take }
    }

    /// What is written now, to append to; `flush` follows before long.
    #[inline]
    pub(super) fn text(&mut self) -> &mut String {
        &mut self.text
    }

    /// Sends what there is once it is enough.
    #[inline]
    pub(super) fn flush(&mut self) -> Result<(), Stopped> {
        if self.text.len() < PIECE_BYTES { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Result<(), Stopped> {
        if self.text.is_empty() {
            return Ok(());
        }
        let Some(packed) = &mut self.packed else {
            let next = String::with_capacity(PIECE_BYTES + SLACK_BYTES);
            return (self.take)(std::mem::replace(&mut self.text, next).into());
        };
        packed.write_all(self.text.as_bytes()).map_err(|_| Stopped)?;
        self.text.clear();
        if packed.get_ref().len() < PIECE_BYTES {
            return Ok(());
        }
        let piece = std::mem::take(packed.get_mut());
        (self.take)(piece.into())
    }

    /// Sends the rest.
    pub(super) fn finish(mut self) -> Result<(), Stopped> {
        self.send()?;
        match self.packed {
            Some(packed) => (self.take)(packed.finish().map_err(|_| Stopped)?.into()),
            None => Ok(()),
        }
    }
}

/// Who asks, and in which queue.
pub(super) struct Asked<'a> {
    pub(super) limits: &'a Arc<Limits>,
    pub(super) queue: &'a Queue,
    pub(super) peer: SocketAddr,
    pub(super) headers: &'a HeaderMap,
}

/// Answers with what `write` writes of what `copy` has copied; that has so many bytes.
pub(super) async fn streamed<T: Send + 'static>(
    Asked { limits, queue, peer, headers }: Asked<'_>,
    content_type: &'static str,
    copy: impl FnOnce() -> (T, usize) + Send + 'static,
    write: impl FnOnce(&T, &mut Writer<'_>) -> Result<(), Stopped> + Send + 'static,
) -> Result<Response, Failure> {
    let turn = queue.turn(peer.ip()).await.map_err(|refusal| limits.busy(refusal))?;
    let copied = spawn_blocking(move || (turn, copy())).await;
    let (turn, (copied, bytes)) =
        copied.map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let place = (bytes > BUFFER_BYTES).then(|| limits.answer(peer.ip(), bytes)).transpose();
    let place = place.map_err(|_| limits.busy(Refusal::Answers))?;
    let (pieces, taken) = channel(WAITING_PIECES);
    let (runtime, until) = (Handle::current(), Instant::now() + ANSWER_TIME);
    let mut client = Client { pieces, turn, until, runtime, limits: limits.clone(), _place: place };
    let is_packed = takes_gzip(headers);
    spawn_blocking(move || {
        let mut take = |piece| client.send(Piece::Part(piece));
        let mut writer = Writer::new(is_packed, &mut take);
        let written = write(&copied, &mut writer).and_then(|()| writer.finish());
        // Whoever waits for the end does not need what it was made of.
        drop(copied);
        // Without its end an answer is broken off.
        let _ = written.and_then(|()| client.send(Piece::End));
    });
    let mut response = Body::new(Pieces { taken, is_over: false }).into_response();
    let response_headers = response.headers_mut();
    response_headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response_headers.insert(header::VARY, VARY);
    if is_packed {
        response_headers.insert(header::CONTENT_ENCODING, GZIP);
    }
    Ok(response)
}

enum Piece {
    Part(Bytes),
    End,
}

/// The writing thread's side.
struct Client {
    pieces: Sender<Piece>,
    turn: Turn,
    until: Instant,
    runtime: Handle,
    limits: Arc<Limits>,
    _place: Option<Place>,
}

impl Client {
    fn send(&mut self, piece: Piece) -> Result<(), Stopped> {
        let piece = match self.pieces.try_send(piece) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Stopped),
            Err(TrySendError::Full(piece)) => piece,
        };
        self.turn.rest();
        let (pieces, turn) = (&self.pieces, &mut self.turn);
        let sent = self.runtime.block_on(timeout_at(self.until, async {
            let mut room = pieces.reserve_many(pieces.max_capacity().div_ceil(2)).await.map_err(|_| Stopped)?;
            room.next().ok_or(Stopped)?.send(piece);
            turn.resume().await;
            Ok(())
        }));
        sent.unwrap_or_else(|_| {
            self.limits.count(Refusal::SlowAnswer);
            Err(Stopped)
        })
    }
}

/// The connection's side.
struct Pieces {
    taken: Receiver<Piece>,
    is_over: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.taken.poll_recv(context)) {
            Some(Piece::Part(piece)) => Some(Ok(Frame::data(piece))),
            Some(Piece::End) => {
                self.is_over = true;
                None
            }
            None => {
                self.is_over = true;
                Some(Err(std::io::ErrorKind::BrokenPipe.into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests;
