// SPDX-License-Identifier: Apache-2.0
//! `/api/onlooker/v1/boards`: saved boards, as files (`crate::boards`).
//!
//! A change names the version that it is made of, in `If-Match`, or in `If-None-Match: *` that there is none yet: two
//! people who change the same board hear of each other. Who reads may write, by the same token or cookie, from the
//! dashboard's own pages only (`guard`). Without a token only this machine may, whatever the address that we listen at.

use std::net::SocketAddr;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Failure, ms};
use crate::boards::{Base, BoardError};

impl From<BoardError> for Failure {
    fn from(error: BoardError) -> Self {
        let status = match &error {
            BoardError::Name(_) | BoardError::Content(_) => StatusCode::BAD_REQUEST,
            BoardError::None | BoardError::Unknown(_) => StatusCode::NOT_FOUND,
            BoardError::Changed(_) | BoardError::Taken(_) => StatusCode::PRECONDITION_FAILED,
            BoardError::ReadOnly(_) => StatusCode::FORBIDDEN,
            BoardError::Full => StatusCode::INSUFFICIENT_STORAGE,
            BoardError::Long(_) | BoardError::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.to_string())
    }
}

fn may_change(shared: &Shared, peer: SocketAddr) -> Result<(), Failure> {
    if shared.token.is_some() || peer.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let error = "without a token boards are changed on the controller's own machine only: name a file with one in [http] token_file of controller.toml";
    Err(Failure::new(StatusCode::FORBIDDEN, error))
}

/// A tag as a header has it. One that a proxy has packed comes back as a weak one.
fn tag_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let text = headers.get(name)?.to_str().ok()?.trim();
    Some(text.strip_prefix("W/").unwrap_or(text).trim_matches('"'))
}

fn quoted(tag: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{tag}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

fn base(headers: &HeaderMap) -> Result<Base, Failure> {
    match (tag_of(headers, header::IF_MATCH), tag_of(headers, header::IF_NONE_MATCH)) {
        (Some(tag), None) if tag != "*" => Ok(Base::Tag(tag.to_owned())),
        (None, Some("*")) => Ok(Base::New),
        _ => {
            let error = "say which version this is made of: `If-Match` with the ETag of what was read, or `If-None-Match: *` for a new board";
            Err(Failure::new(StatusCode::PRECONDITION_REQUIRED, error))
        }
    }
}

pub(super) async fn list(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
) -> Result<Json<Value>, Failure> {
    let may = may_change(&shared, peer).is_ok();
    let boards: Vec<Value> = shared
        .boards
        .list()?
        .iter()
        .map(|board| {
            json!({
                "name": board.name, "title": board.title, "etag": board.tag, "bytes": board.bytes,
                "modified_ms": ms(board.modified_ns), "writable": may && board.is_writable, "error": board.error,
            })
        })
        .collect();
    Ok(Json(json!({ "boards": boards, "writable": may && shared.boards.is_writable() })))
}

pub(super) async fn read(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let (bytes, tag) = shared.boards.read(&name)?;
    let of_answer = [(header::ETAG, quoted(&tag)), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if tag_of(&headers, header::IF_NONE_MATCH) == Some(&tag) {
        return Ok((StatusCode::NOT_MODIFIED, of_answer).into_response());
    }
    Ok((of_answer, [(header::CONTENT_TYPE, "application/json")], bytes).into_response())
}

pub(super) async fn write(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    may_change(&shared, peer)?;
    let base = base(&headers)?;
    let tag = shared.boards.write(&name, &body, &base)?;
    let status = if base == Base::New { StatusCode::CREATED } else { StatusCode::NO_CONTENT };
    Ok((status, [(header::ETAG, quoted(&tag))]).into_response())
}

pub(super) async fn remove(
    State(shared): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Failure> {
    may_change(&shared, peer)?;
    match base(&headers)? {
        Base::Tag(tag) => shared.boards.remove(&name, &tag)?,
        Base::New => return Err(Failure::bad("a board that is removed has a version: name it in `If-Match`")),
    }
    Ok(StatusCode::NO_CONTENT)
}
