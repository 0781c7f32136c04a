// SPDX-License-Identifier: Apache-2.0
//! Queries that cost something: in turn, on threads that may block, and answered with no more than is given memory at
//! once. What may be as long as the fleet is large is made while it is taken instead ([`super::stream`]).
//!
//! A query holds its turn while it works, also when its client has gone: what runs is bounded, whoever waits for it. It
//! hears of that ([`Gone`]) and may end early. Its answer is memory until the client has taken it: that is bounded by
//! bytes, and by time.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::{Frame, SizeHint};
use std::net::{IpAddr, SocketAddr};
use tokio::runtime::Handle;

use super::Shared;
use super::answer::Failure;
use super::limits::{ANSWER_TIME, BODY_TIME, BUFFER_BYTES, Limits, MAX_BODY_BYTES, Place, Queue, Refusal};
use super::stream::{GZIP, VARY, gzip, takes_gzip};
use crate::boards::MAX_BYTES;

/// Whether nobody waits for the answer any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Gone(Arc<AtomicBool>);

impl Gone {
    pub(super) fn is(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For who looks by himself.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

struct Waits(Gone);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A range query's turn.
pub(super) async fn range(
    State(shared): State<Shared>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    in_turn(&shared.limits.ranges, &shared.limits, peer.0.ip(), request, next).await
}

/// A turn of Prometheus' API.
pub(super) async fn query(
    State(shared): State<Shared>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    in_turn(&shared.limits.queries, &shared.limits, peer.0.ip(), request, next).await
}

/// The turn of what tells of one host, or lists its series.
pub(super) async fn list(
    State(shared): State<Shared>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    in_turn(&shared.limits.lists, &shared.limits, peer.0.ip(), request, next).await
}

/// The turn of what waits for the store's lock.
pub(super) async fn status(
    State(shared): State<Shared>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    in_turn(&shared.limits.status, &shared.limits, peer.0.ip(), request, next).await
}

/// The turn of what reads and changes boards.
pub(super) async fn board(
    State(shared): State<Shared>,
    peer: ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    in_turn(&shared.limits.boards, &shared.limits, peer.0.ip(), request, next).await
}

async fn in_turn(queue: &Queue, limits: &Arc<Limits>, address: IpAddr, mut request: Request, next: Next) -> Response {
    let turn = match queue.turn(address).await {
        Ok(turn) => turn,
        Err(refusal) => return limits.busy(refusal).into_response(),
    };
    let gone = Gone::default();
    let _waits = Waits(gone.clone());
    request.extensions_mut().insert(gone);
    let runtime = Handle::current();
    let takes_gzip = takes_gzip(request.headers());
    let work = move || {
        let _turn = turn;
        runtime.block_on(async {
            let response = next.run(request).await;
            if takes_gzip { packed(response).await } else { response }
        })
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(response) => bounded(limits, address, response).await,
        Err(error) => Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Shorter answers go as they are.
const LEAST_PACKED_BYTES: usize = 1 << 10;

/// The response in fewer bytes. It is there already.
async fn packed(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    match to_bytes(body, usize::MAX).await {
        Ok(bytes) if bytes.len() >= LEAST_PACKED_BYTES => {
            parts.headers.remove(header::CONTENT_LENGTH);
            parts.headers.insert(header::CONTENT_ENCODING, GZIP);
            parts.headers.append(header::VARY, VARY);
            Response::from_parts(parts, gzip(&bytes).into())
        }
        Ok(bytes) => Response::from_parts(parts, bytes.into()),
        Err(_) => broken(),
    }
}

fn broken() -> Response {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the answer broke off").into_response()
}

/// The response, where there is room for it until it is taken.
async fn bounded(limits: &Arc<Limits>, address: IpAddr, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    // It is there already.
    let Ok(rest) = to_bytes(body, usize::MAX).await else { return broken() };
    if rest.len() <= BUFFER_BYTES {
        return Response::from_parts(parts, rest.into());
    }
    match limits.answer(address, rest.len()) {
        Err(_) => limits.busy(Refusal::Answers).into_response(),
        Ok(place) => {
            let until = Instant::now() + ANSWER_TIME;
            let answer = Answer { rest, until, limits: limits.clone(), _place: place };
            Response::from_parts(parts, Body::new(answer))
        }
    }
}

/// An answer that is taken piece by piece.
struct Answer {
    rest: Bytes,
    until: Instant,
    limits: Arc<Limits>,
    _place: Place,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if Instant::now() > self.until {
            self.limits.count(Refusal::SlowAnswer);
            return Poll::Ready(Some(Err(std::io::ErrorKind::TimedOut.into())));
        }
        let piece = self.rest.len().min(BUFFER_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Reads a request's body before anybody looks at it: within its time, and its length.
pub(super) async fn whole_body(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    within(&shared, request, next, (MAX_BODY_BYTES, "the body is longer than 64 KiB, or broke off")).await
}

/// The same of a board.
pub(super) async fn board_body(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    within(&shared, request, next, (MAX_BYTES, "the board is longer than 1 MiB, or broke off")).await
}

async fn within(shared: &Shared, request: Request, next: Next, (most, beyond): (usize, &'static str)) -> Response {
    let (parts, body) = request.into_parts();
    let (status, message) = match tokio::time::timeout(BODY_TIME, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => return next.run(Request::from_parts(parts, bytes.into())).await,
        Ok(Err(_)) => (StatusCode::PAYLOAD_TOO_LARGE, beyond),
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    };
    shared.limits.count(Refusal::Body);
    Failure::new(status, message).into_response()
}
