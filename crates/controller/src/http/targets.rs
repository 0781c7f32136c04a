// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/targets`: hosts that are added to and taken from a running controller.
//!
//! Who writes shows a token in the `Authorization` header; the cookie of browsers does not do, so that no page
//! elsewhere can have one's browser add a host. A host is read once before it is accepted, on a thread that may block;
//! a few at a time.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use onlooker_bootstrap::{Token, source};
use onlooker_settings::units::Span;
use onlooker_targets::target::{self, Choice, Target};
use onlooker_targets::{ChangeError, Line, Origin, Priority};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::Failure;
use super::{Shared, is_token};
use crate::trial;

/// `POST`'s body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    name: String,
    address: String,
    token: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    interval: Option<Span>,
    #[serde(default)]
    priority: Priority,
    #[serde(default)]
    via: Choice,
    #[serde(default)]
    replace: bool,
    #[serde(default)]
    dry_run: bool,
}

/// `DELETE`'s body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Leave {
    token: String,
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        let status = match &error {
            ChangeError::Taken { .. } | ChangeError::Twice(_) => StatusCode::CONFLICT,
            ChangeError::Unknown(_) => StatusCode::NOT_FOUND,
            ChangeError::Token(_) => StatusCode::UNAUTHORIZED,
            ChangeError::Full(_) | ChangeError::FullOfSource(_) => StatusCode::INSUFFICIENT_STORAGE,
            ChangeError::TooOften => StatusCode::TOO_MANY_REQUESTS,
            ChangeError::Kept(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

fn bearer(headers: &HeaderMap) -> &str {
    let text = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.strip_prefix("Bearer ").unwrap_or_default()
}

fn may_join(shared: &Shared, headers: &HeaderMap) -> Result<(), Failure> {
    let tokens = || shared.token.iter().chain(&shared.join_token);
    if tokens().next().is_none() {
        let error = "this controller takes no hosts: put a token of at least 16 characters into a file and name that in [http] join_token_file of controller.toml";
        return Err(Failure::new(StatusCode::FORBIDDEN, error));
    }
    if tokens().any(|token| is_token(token, bearer(headers))) {
        return Ok(());
    }
    let error = "a token is needed: `Authorization: Bearer TOKEN`, as [http] join_token_file of controller.toml has it";
    Err(Failure::new(StatusCode::UNAUTHORIZED, error))
}

/// Whether who asks may do everything.
fn is_operator(shared: &Shared, headers: &HeaderMap) -> bool {
    shared.token.as_ref().is_some_and(|token| is_token(token, bearer(headers)))
}

fn target(join: &Join, peer: Option<SocketAddr>, operator: bool, shared: &Shared) -> Result<Target, String> {
    target::check_name(&join.name)?;
    target::check_labels(&join.labels)?;
    let (host, port) = match (join.address.strip_prefix(':'), peer) {
        // A host may be known to itself by other addresses than to us.
        (Some(port), Some(peer)) => {
            let port = port.parse().ok().filter(|port| *port != 0).ok_or("`address`: a port is 1 to 65535")?;
            (peer.ip().to_canonical().to_string(), Some(port))
        }
        _ => target::parse_address(&join.address).map_err(|message| format!("`address`: {message}"))?,
    };
    // Who names none gets what it may have.
    let least = if operator { Duration::ZERO } else { shared.book.joining().min_interval.as_duration() };
    let interval = join.interval.map_or(shared.read_interval.max(least), Span::as_duration);
    if interval < target::MIN_INTERVAL {
        return Err("`interval` must be at least 1ms".into());
    }
    Ok(Target {
        name: join.name.clone(),
        host,
        port: port.unwrap_or(onlooker_bootstrap::DEFAULT_PORT),
        token: Token::parse(join.token.trim()).map_err(|error| format!("`token`: {error}"))?,
        labels: join.labels.clone(),
        interval,
        priority: join.priority,
        choice: join.via,
    })
}

/// Who asks by the token that every host has: what it may not ask for is refused before anything is tried.
fn guest(peer: Option<SocketAddr>, target: &Target, shared: &Shared) -> Result<IpAddr, Failure> {
    let guest = peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.ip().to_canonical());
    let least = shared.book.joining().min_interval;
    if target.interval < least.as_duration() {
        return Err(Failure::bad(format!(
            "`interval` must be at least {least} with this token ([joined] min_interval)"
        )));
    }
    // What is before all others is the operator's to say.
    if target.priority == Priority::High {
        let error = "`priority` must be `normal` or `low` with this token; `high` needs the token of [http] token_file";
        return Err(Failure::bad(error));
    }
    let is_here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified();
    if !guest.is_loopback() && target.host.parse().is_ok_and(|ip: IpAddr| is_here(ip.to_canonical())) {
        return Err(Failure::bad(format!("`address`: {} is the controller's own machine", target.host)));
    }
    Ok(guest)
}

/// Whether a host asks for itself: then it learns nothing that it could not find out without us. What comes from
/// loopback may be a proxy's.
fn is_own(guest: IpAddr, target: &Target) -> bool {
    !guest.is_loopback() && target.host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical() == guest)
}

fn failed(target: &Target, why: &str) -> Failure {
    Failure::new(StatusCode::BAD_GATEWAY, format!("the test read of {} failed: {why}", target.address()))
}

/// The same whatever answers there, and not before the longest silence would be over: nobody searches our networks by
/// this.
fn unread(target: &Target, began: Instant, timeout: Duration) -> Failure {
    std::thread::sleep((began + timeout).saturating_duration_since(Instant::now()));
    let why = "no agent that takes this host's token is reached there (more is said to who asks from that very address, or shows the token of [http] token_file)";
    failed(target, why)
}

pub(super) async fn join(
    State(shared): State<Shared>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Failure> {
    may_join(&shared, &headers)?;
    let operator = is_operator(&shared, &headers);
    let join: Join = serde_json::from_slice(&body).map_err(|error| Failure::bad(format!("the body: {error}")))?;
    let peer = peer.map(|Extension(ConnectInfo(peer))| peer);
    let target = Arc::new(target(&join, peer, operator, &shared).map_err(Failure::bad)?);
    // Every host has the token that adds hosts: with that alone none takes another's place.
    let replace = join.replace && operator;
    let guest = if operator { None } else { Some(guest(peer, &target, &shared)?) };
    let running = guest.map(|guest| shared.book.begin_trial(source(guest))).transpose()?;
    let permit = shared.trials.clone().acquire_owned().await;
    let work = move || {
        let _running = running;
        let mut origin = Origin { host_id: None, source: guest.map(source) };
        // What cannot be accepted need not be read; and again afterwards, for meanwhile another may have come.
        shared.book.may_join(&target, replace, &origin)?;
        let began = Instant::now();
        let read = trial::read(&target, shared.read_timeout, *shared.fleet.quota());
        drop(permit);
        let report = read.map_err(|error| match guest {
            Some(guest) if !is_own(guest, &target) => unread(&target, began, shared.read_timeout),
            _ => failed(&target, &error.to_string()).with_code(trial::code(&error)),
        })?;
        origin.host_id = Some(report.host_id);
        shared.book.may_join(&target, replace, &origin)?;
        if !join.dry_run {
            shared.book.join(target.clone(), replace, origin)?;
        }
        Ok(Json(json!({
            "name": target.name,
            "address": target.address(),
            "instance": target.name,
            "via": report.pair.via.kind(),
            "requester": report.pair.by.to_string(),
            "regions": report.regions,
            "series": report.series,
            "bootstrap_ms": report.bootstrap.as_secs_f64() * 1e3,
            "read_ms": report.read.as_secs_f64() * 1e3,
            "notes": report.notes,
        })))
    };
    blocking(work).await
}

pub(super) async fn leave(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Failure> {
    let operator = is_operator(&shared, &headers);
    let token = match body.is_empty() {
        true => None,
        false => {
            let leave: Leave =
                serde_json::from_slice(&body).map_err(|error| Failure::bad(format!("the body: {error}")))?;
            Some(Token::parse(leave.token.trim()).map_err(|error| Failure::bad(format!("`token`: {error}")))?)
        }
    };
    if !operator && token.is_none() {
        let error = "the host's join token is needed in the body, `{\"token\":\"onlk1...\"}`, or the token of [http] token_file as `Authorization: Bearer TOKEN`";
        return Err(Failure::new(StatusCode::UNAUTHORIZED, error));
    }
    blocking(move || {
        shared.book.leave(&name, |target| operator || token.as_ref() == Some(&target.token))?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

pub(super) async fn list(State(shared): State<Shared>) -> Json<Value> {
    let targets: Vec<Value> = shared.book.lines().iter().map(line).collect();
    let (files, _) = shared.book.files();
    let files: Vec<Value> = files
        .iter()
        .map(|file| {
            let watched = file.found.iter().filter(|found| found.target.is_some()).count();
            json!({ "path": *file.path, "targets": watched, "dropped": file.dropped, "error": file.error })
        })
        .collect();
    Json(json!({ "targets": targets, "files": files }))
}

fn line(line: &Line) -> Value {
    let target = line.found.target.as_deref();
    json!({
        "name": line.found.name,
        "address": line.found.address,
        "labels": target.map(|target| &target.labels),
        "interval_ms": target.map(|target| target.interval.as_secs_f64() * 1e3),
        "priority": target.map(|target| target.priority),
        "via": target.map(|target| target.choice),
        "from": line.source.to_string(),
        "error": line.found.error,
    })
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}
