// SPDX-License-Identifier: Apache-2.0
//! The dashboard's files, built from `ui/` and part of the binary.

use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use include_dir::{Dir, include_dir};

use super::answer::Failure;

static FILES: Dir = include_dir!("$ONLOOKER_UI_DIR");

/// Names with a hash of their content, which never change.
const HASHED: &str = "assets/";

pub(super) async fn file(uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let path = if path.is_empty() { "index.html" } else { path };
    let Some(file) = FILES.get_file(path) else {
        let message = format!(
            "nothing is at /{path}; the dashboard is at /, the interface at /api/onlooker/v1 (docs/http.md describes it)"
        );
        return Failure::new(StatusCode::NOT_FOUND, message).into_response();
    };
    let kept = if path.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    ([(header::CONTENT_TYPE, kind(path)), (header::CACHE_CONTROL, kept)], file.contents()).into_response()
}

fn kind(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" | "map" => "application/json",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}
