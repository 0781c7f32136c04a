// SPDX-License-Identifier: Apache-2.0
//! `/api/v1`: Prometheus' HTTP API (docs/http.md), over what the store has.
//!
//! Whoever asks Prometheus asks us the same way: names of parameters, their forms, what is unknown ignored, errors with
//! Prometheus' types and codes. [`parameters`] reads requests, [`query`], [`printed`], [`lists`], [`targets`] and
//! [`rules`] answer, [`json`] and [`columns`] write. Every request takes its turn on a thread that may block; a query ends
//! when its client has gone.

mod columns;
mod features;
mod json;
mod lists;
mod parameters;
mod printed;
mod query;
mod rules;
mod targets;
mod times;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use onlooker_promql::notes::Note;
pub use query::helpers;
pub(super) use rules::counts;
use serde_json::{Value, json};

use super::answer::Told;
use super::{Shared, turns};

/// Whose language and API this is: what clients choose their features by.
const PROMETHEUS_VERSION: &str = "3.16.0";

/// All of it.
pub(super) fn router(shared: &Shared) -> Router<Shared> {
    Router::new()
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/format_query", get(printed::text).post(printed::text))
        .route("/api/v1/parse_query", get(printed::tree_of).post(printed::tree_of))
        .route("/api/v1/series", get(lists::series).post(lists::series))
        .route("/api/v1/labels", get(lists::labels).post(lists::labels))
        .route("/api/v1/label/{name}/values", get(lists::values))
        .route("/api/v1/metadata", get(lists::metadata))
        .route("/api/v1/rules", get(rules::rules))
        .route("/api/v1/alerts", get(rules::alerts))
        .route("/api/v1/alertmanagers", get(rules::managers))
        .route("/api/v1/targets", get(targets::targets))
        .route("/api/v1/status/buildinfo", get(build_info))
        .route("/api/v1/features", get(features::features))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::query))
        .layer(middleware::from_fn_with_state(shared.clone(), turns::whole_body))
        .layer(middleware::map_response(as_prometheus))
}

async fn build_info() -> Response {
    let revision = concat!("onlooker-", env!("CARGO_PKG_VERSION"));
    let (branch, user, date, go) = ("", "", "", "");
    success(
        &json!({
            "version": PROMETHEUS_VERSION, "revision": revision, "branch": branch, "buildUser": user,
            "buildDate": date, "goVersion": go,
        }),
        &[],
    )
}

/// Why there is no answer, as Prometheus says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BadData,
    Execution,
    Canceled,
    Timeout,
    Internal,
    Unavailable,
}

impl Kind {
    fn name_and_status(self) -> (&'static str, u16) {
        match self {
            Self::BadData => ("bad_data", 400),
            Self::Execution => ("execution", 422),
            // Whoever would hear it has gone.
            Self::Canceled => ("canceled", 499),
            Self::Internal => ("internal", 500),
            Self::Timeout => ("timeout", 503),
            Self::Unavailable => ("unavailable", 503),
        }
    }
}

#[derive(Debug)]
struct Fault {
    kind: Kind,
    message: String,
}

impl Fault {
    fn new(kind: Kind, message: impl ToString) -> Self {
        Self { kind, message: message.to_string() }
    }

    /// A parameter that is not as it must be.
    fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(Kind::BadData, format!("invalid parameter {name:?}: {why}"))
    }
}

fn error(name: &str, message: &str) -> String {
    json!({ "status": "error", "errorType": name, "error": message }).to_string()
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let (name, status) = self.kind.name_and_status();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, [JSON], error(name, &self.message)).into_response()
    }
}

const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/json");

/// What is refused before anybody looks at the query, in Prometheus' words, too.
async fn as_prometheus(response: Response) -> Response {
    let Some(Told(message)) = response.extensions().get::<Told>().cloned() else { return response };
    let (mut parts, _) = response.into_parts();
    let kind = match parts.status.as_u16() {
        500 => Kind::Internal,
        429 | 503 => Kind::Unavailable,
        _ => Kind::BadData,
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, error(kind.name_and_status().0, &message).into())
}

/// An answer that is small.
fn success(data: &Value, warnings: &[&str]) -> Response {
    let mut answer = json!({ "status": "success", "data": data });
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into();
    }
    ([JSON], answer.to_string()).into_response()
}

/// Warnings and infos, each in their list.
fn notes(notes: &[Note]) -> [Vec<String>; 2] {
    let mut lists = [Vec::new(), Vec::new()];
    for note in notes {
        lists[usize::from(matches!(note, Note::Info(_)))].push(note.to_string());
    }
    lists
}

/// Said where not all is told.
const TRUNCATED: &str = "results truncated due to limit";
