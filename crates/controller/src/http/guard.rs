// SPDX-License-Identifier: Apache-2.0
//! Which requests are a browser's on behalf of somebody else.
//!
//! A page elsewhere may have a name of its own resolve to us (DNS rebinding) and then reads as if it were ours: its
//! `Host` is that name. Where nobody needs a token, `Host` must therefore be an address, localhost, this machine's
//! name, or one of `[http] names`; with `names` given, always. And a page of another origin may have a browser ask: it
//! says so in `Sec-Fetch-Site`, or in `Origin`. Nobody has to ask us from there, so that is refused for all but the
//! dashboard's own files.

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::net::IpAddr;

use super::Shared;
use super::answer::Failure;
use super::limits::Refusal;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Where targets are changed.
const CHANGES: &str = "/api/onlooker/v1/targets";

/// Names by which browsers may call us.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<String>,
    is_strict: bool,
}

impl Names {
    /// Those that are configured, and this machine's own. Without a token, or with names configured, others are
    /// refused.
    #[must_use]
    pub fn new(configured: &[String], has_token: bool) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let names = configured.iter().map(String::as_str).chain(["localhost", machine.as_str()]);
        Self { names: names.map(str::to_ascii_lowercase).collect(), is_strict: !has_token || !configured.is_empty() }
    }

    fn has(&self, authority: &Authority) -> bool {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let host = host.trim_end_matches('.');
        // Nobody makes an address, or localhost, point elsewhere (RFC 6761 6.3).
        host.parse::<IpAddr>().is_ok() || host.ends_with(".localhost") || self.names.iter().any(|name| name == host)
    }

    /// Whether a request that says it is for this host may be answered. Only old programs say nothing; browsers do.
    fn takes(&self, host: Option<&str>) -> bool {
        let Some(host) = host.filter(|_| self.is_strict) else { return true };
        host.parse().is_ok_and(|authority| self.has(&authority))
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    // What is no text is nobody's name.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Whether a page of another origin asks.
fn is_foreign(headers: &HeaderMap) -> bool {
    match (text(headers, FETCH_SITE), text(headers, header::ORIGIN)) {
        // A proxy before us may have put its own name for us into `Host`; this the browser has found out by itself.
        (Some("same-origin"), _) => false,
        (Some(site), _) if site != "none" => true,
        (_, None) => false,
        (_, Some(origin)) => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            authority.is_none() || authority != text(headers, header::HOST)
        }
    }
}

/// Lets requests pass that nobody else can have made a browser send.
pub(super) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    // Changes are made by programs, with a token that no page has, whatever else is open to all: a host may join by any
    // name of ours.
    let is_change =
        matches!(*request.method(), Method::POST | Method::DELETE) && request.uri().path().starts_with(CHANGES);
    if !is_change && !shared.names.takes(text(headers, header::HOST)) {
        shared.limits.count(Refusal::Host);
        let message = "`Host` is no name of this controller: put the name by which it is reached into [http] names of controller.toml, or use its address";
        return Failure::new(StatusCode::MISDIRECTED_REQUEST, message).into_response();
    }
    let path = request.uri().path();
    let is_ours = ["/api/", "/metrics", "/login"].iter().any(|front| path.starts_with(front));
    if is_ours && is_foreign(headers) {
        shared.limits.count(Refusal::Origin);
        let message = "a page of another origin asks; only the dashboard's own pages may";
        return Failure::new(StatusCode::FORBIDDEN, message).into_response();
    }
    next.run(request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_point_elsewhere_are_refused() {
        let open = Names::new(&[], false);
        for host in ["127.0.0.1:7180", "[::1]:7180", "10.0.0.3", "localhost", "LOCALHOST:1", "a.localhost:7180"] {
            assert!(open.takes(Some(host)), "{host}");
        }
        for host in ["evil.example", "evil.example:7180", "127.0.0.1.evil.example", "localhost.evil.example", "", "?"] {
            assert!(!open.takes(Some(host)), "{host}");
        }
        assert!(open.takes(None));
        // A page that is let in by no token gains nothing; with names given it is refused all the same.
        assert!(Names::new(&[], true).takes(Some("evil.example")));
        let named = Names::new(&["Dash.example".into()], true);
        assert!(named.takes(Some("dash.example:443")) && !named.takes(Some("evil.example")));
        assert!(named.takes(Some(&rustix::system::uname().nodename().to_string_lossy())));
    }

    #[test]
    fn pages_of_other_origins_are_told_apart() {
        for (pairs, foreign) in [
            (vec![], false),
            (vec![("host", "a:1"), ("origin", "http://a:1")], false),
            (vec![("host", "a:1"), ("origin", "http://a:2")], true),
            (vec![("host", "a:1"), ("origin", "null")], true),
            (vec![("host", "proxied"), ("origin", "https://dash"), ("sec-fetch-site", "same-origin")], false),
            (vec![("sec-fetch-site", "none")], false),
            (vec![("sec-fetch-site", "cross-site")], true),
            (vec![("sec-fetch-site", "same-site")], true),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in &pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            assert_eq!(is_foreign(&headers), foreign, "{pairs:?}");
        }
    }
}
