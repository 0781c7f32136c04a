// SPDX-License-Identifier: Apache-2.0
//! The dashboard's files, built from `ui/` and part of the binary.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use rust_embed::RustEmbed;

use super::answer::Failure;

#[derive(RustEmbed)]
#[folder = "$ONLOOKER_UI_DIR"]
struct Files;

/// Names with a hash of their content, which never change.
const HASHED: &str = "assets/";

pub(super) async fn file(uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let Some(file) = Files::get(path) else {
        let message = format!(
            "nothing is at /{path}; the dashboard is at /, the interface at /api/v1, described in /openapi.json"
        );
        return Failure::new(StatusCode::NOT_FOUND, message).into_response();
    };
    let kept = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let kind = file.metadata.mimetype().to_owned();
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, kept.to_owned())], file.data).into_response()
}
