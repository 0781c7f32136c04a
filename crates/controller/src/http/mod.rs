// SPDX-License-Identifier: Apache-2.0
//! The HTTP interface (docs/http.md).
//!
//! Handlers copy what they need of a host under its lock and format it afterwards, so none of them holds up the
//! processing thread for longer than some us. Nothing that a client does is without a bound: `limits` has them all,
//! `serve` keeps those of connections, `turns` and `stream` those of queries, `guard` tells whose requests they are.

mod answer;
mod boards;
mod fold;
mod guard;
mod hosts;
mod limits;
mod live;
mod metrics;
mod prometheus;
mod range;
mod search;
mod series;
mod serve;
mod snapshot;
mod status;
mod stream;
mod summary;
mod targets;
mod telemetry;
mod tls;
mod turns;
mod ui;
mod vitals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use onlooker_framestore::Store;
use onlooker_promql::Helpers;
use onlooker_targets::Book;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

use crate::boards::Boards;
use crate::engine::{Orders, Pressure};
use crate::fleet::{Fleet, ShownVitals};
use crate::forward::Progress;
use crate::keep::Counters;
use crate::rules::View;
use crate::telemetry::Telemetry;
use crate::usage::Usage;
use answer::Failure;
pub use guard::Names;
pub use limits::Limits;
pub use metrics::Recording;
pub use prometheus::helpers;
pub use serve::Ending;
pub use status::Rates;
pub use tls::{Tls, TlsError};

/// What the handlers need.
#[derive(Clone)]
pub struct Shared {
    /// The hosts.
    pub fleet: Arc<Fleet>,
    /// How busy and how full they are.
    pub vitals: Arc<ShownVitals>,
    /// Rows.
    pub store: Store,
    /// What the store has been doing.
    pub counters: Arc<Counters>,
    /// How targets of `[[forward]]` are doing.
    pub forwarding: Arc<[Arc<Progress>]>,
    /// Limit of the log, bytes.
    pub max_store_bytes: u64,
    /// When the controller began, UTC ns.
    pub started_ns: u64,
    /// The way to tell the engine something.
    pub orders: Orders,
    /// What is in flight.
    pub pressure: Arc<Pressure>,
    /// For rates: what was counted a while ago.
    pub rates: Arc<Rates>,
    /// What the controller takes of its machine.
    pub usage: Arc<Usage>,
    /// What clients must show, if anything.
    pub token: Option<Arc<str>>,
    /// Whether clients come by TLS.
    pub tls: Option<Arc<Tls>>,
    /// What may add hosts besides.
    pub join_token: Option<Arc<str>>,
    /// Who is watched.
    pub book: Arc<Book>,
    /// Time between two readings of a host that says nothing else.
    pub read_interval: Duration,
    /// How long a bootstrap, and a reading, may take before a host is accepted.
    pub read_timeout: Duration,
    /// So many hosts are read at a time before they are accepted.
    pub trials: Arc<Semaphore>,
    /// What clients may take.
    pub limits: Arc<Limits>,
    /// Threads that help with queries.
    pub helpers: Helpers,
    /// By which names we are asked.
    pub names: Names,
    /// Hosts that are asked for their telemetry.
    pub telemetry: Arc<Telemetry>,
    /// What is evaluated, and what came of it.
    pub rules: Arc<View>,
    /// Saved boards.
    pub boards: Arc<Boards>,
    /// Whether the controller is about to end.
    pub ending: Ending,
}

/// Everything under `/`.
fn router(shared: Shared) -> Router {
    // They take their turns themselves: what they answer is made while it is taken.
    let streams = Router::new()
        .route("/metrics", get(metrics::metrics))
        .route("/api/onlooker/v1/hosts", get(hosts::hosts))
        .route("/api/onlooker/v1/vitals", get(vitals::vitals));
    let ranges = Router::new()
        .route("/api/onlooker/v1/hosts/{host}/range", get(range::range))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::range));
    let status = Router::new()
        .route("/api/onlooker/v1/status", get(status::status))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::status));
    let lists = Router::new()
        .route("/api/onlooker/v1/hosts/{host}", get(hosts::host))
        .route("/api/onlooker/v1/hosts/{host}/series", get(series::series))
        .route("/api/onlooker/v1/hosts/{host}/telemetry", get(telemetry::tables))
        .route("/api/onlooker/v1/hosts/{host}/telemetry/{table}", get(telemetry::keys))
        .route("/api/onlooker/v1/hosts/{host}/telemetry/{table}/entries", get(telemetry::entries))
        .route("/api/onlooker/v1/search", get(search::search))
        .route("/api/onlooker/v1/metrics/{metric}/hosts", get(search::hosts))
        .route("/api/onlooker/v1/snapshot", get(snapshot::snapshot))
        .route("/api/onlooker/v1/targets", get(targets::list))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::list));
    // A body's memory is taken in turn, after the token was looked at.
    let boards = Router::new()
        .route("/api/onlooker/v1/boards", get(boards::list))
        .route("/api/onlooker/v1/boards/{name}", get(boards::read))
        .route("/api/onlooker/v1/boards/{name}", put(boards::write))
        .route("/api/onlooker/v1/boards/{name}", delete(boards::remove))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::board_body))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::board));
    let api = Router::new()
        .merge(streams)
        .merge(prometheus::router(&shared))
        .merge(ranges)
        .merge(lists)
        .merge(boards)
        .merge(status)
        .route("/api/onlooker/v1/live", get(live::live))
        .route("/api/onlooker/v1/openapi.json", get(openapi))
        .layer(middleware::from_fn_with_state(shared.clone(), admit));
    // They look at the request's token themselves.
    let changes = Router::new()
        .route("/api/onlooker/v1/targets", post(targets::join))
        .route("/api/onlooker/v1/targets/{name}", delete(targets::leave))
        .route("/login", post(login))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::whole_body));
    Router::new()
        .merge(changes)
        .merge(api)
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(status::ready))
        .fallback(ui::file)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::check))
        .layer(middleware::map_response(secure))
        .with_state(shared)
}

/// `/api/onlooker/v1/openapi.json`.
async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], include_str!("openapi.json")).into_response()
}

/// Name of the cookie that browsers show, whose event streams cannot send a header.
const COOKIE: &str = "onlooker_token";

fn is_token(token: &str, shown: &str) -> bool {
    shown.as_bytes().ct_eq(token.as_bytes()).into()
}

/// Whether a request's headers show the token.
fn shows(headers: &HeaderMap, token: &str) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let bearer = text(header::AUTHORIZATION).strip_prefix("Bearer ");
    let cookies = text(header::COOKIE).split(';').filter_map(|pair| pair.trim().split_once('='));
    let cookie = cookies.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value);
    bearer.into_iter().chain(cookie).any(|shown| is_token(token, shown))
}

/// Lets in who shows the token.
async fn admit(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if shared.token.as_ref().is_none_or(|token| shows(request.headers(), token)) {
        return next.run(request).await;
    }
    let error = "a token is needed: `Authorization: Bearer TOKEN`, as [http] token_file of controller.toml has it";
    Failure::new(StatusCode::UNAUTHORIZED, error).into_response()
}

/// `POST /login`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    token: String,
}

/// Gives a browser the cookie; `Secure` where it came by TLS. (A proxy in front that does TLS adds it itself.)
async fn login(State(shared): State<Shared>, Json(Login { token: shown }): Json<Login>) -> Response {
    let good = shared.token.as_ref().is_none_or(|token| is_token(token, &shown));
    let secure = if shared.tls.is_some() { "; Secure" } else { "" };
    let cookie = HeaderValue::from_str(&format!("{COOKIE}={shown}; Path=/; HttpOnly; SameSite=Strict{secure}"));
    match (good, cookie) {
        (true, Ok(cookie)) => (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response(),
        _ => Failure::new(StatusCode::UNAUTHORIZED, "wrong token").into_response(),
    }
}

/// Headers that every answer has: nothing is loaded from elsewhere, and nobody frames the dashboard.
async fn secure(mut response: Response) -> Response {
    let policy = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'";
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address.
    #[error(
        "cannot listen on {address} ([http] listen): {source}; is another controller running, or the address not this machine's?"
    )]
    Bind {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its address cannot be told.
    #[error("HTTP: {0}")]
    Address(#[from] std::io::Error),
}

/// Binds; the address may have port 0.
///
/// # Errors
/// [`ServeError::Bind`].
pub async fn bind(address: SocketAddr) -> Result<tokio::net::TcpListener, ServeError> {
    tokio::net::TcpListener::bind(address).await.map_err(|source| ServeError::Bind { address, source })
}

/// Serves until `stop` is ready; then ends all that is open, within half a second.
pub async fn serve(listener: tokio::net::TcpListener, shared: Shared, stop: impl Future<Output = ()>) {
    serve::serve(listener, shared, stop).await;
}
