// SPDX-License-Identifier: Apache-2.0
//! What all answers have in common.

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Whoever is refused for want of room may try again then.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("2");

/// An error as clients see it.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    message: String,
    /// For programs, where they are to tell such failures apart.
    code: Option<&'static str>,
}

/// What was told, beside the answer: for who says it otherwise.
#[derive(Clone, Debug)]
pub(super) struct Told(pub(super) String);

impl Failure {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), code: None }
    }

    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn no_host(name: &str) -> Self {
        let message = format!("no host `{name}` is watched; /api/onlooker/v1/hosts lists those that are");
        Self::new(StatusCode::NOT_FOUND, message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let again = matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let told = Told(self.message.clone());
        let mut body = json!({ "error": self.message });
        if let Some(code) = self.code {
            body["code"] = code.into();
        }
        let mut response = (self.status, Json(body)).into_response();
        response.extensions_mut().insert(told);
        if again {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S);
        }
        response
    }
}

/// Whether one of the choices that a header lists is it, and not refused by a quality of 0.
pub(super) fn accepts(headers: &HeaderMap, name: HeaderName, is_it: impl Fn(&str) -> bool) -> bool {
    let texts = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let is_taken = |choice: &str| {
        let mut parts = choice.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(&is_it);
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse::<f32>().ok());
        is_named && quality.is_none_or(|quality| quality > 0.0)
    };
    texts.flat_map(|text| text.split(',')).any(is_taken)
}

/// Milliseconds, with their fraction, of nanoseconds.
#[allow(clippy::cast_precision_loss)] // for charts
pub(super) fn ms(ns: u64) -> f64 {
    // Whole microseconds: a double has no more of a UTC time.
    (ns / 1_000) as f64 / 1_000.0
}

/// Nanoseconds of milliseconds that a client gave.
pub(super) fn ns(ms: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
    let us = (ms * 1_000.0).round() as u64;
    us.saturating_mul(1_000)
}

/// The parameters of a query, each checked against those that the path knows.
pub(super) fn parameters(query: Option<&str>, known: &[&str]) -> Result<Vec<(String, String)>, Failure> {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    match pairs.iter().find(|(name, _)| !known.contains(&name.as_str())) {
        Some((name, _)) => Err(Failure::bad(format!("unknown parameter `{name}`; known are: {}", known.join(", ")))),
        None => Ok(pairs),
    }
}

/// The value of a parameter that comes at most once.
pub(super) fn one<'a>(pairs: &'a [(String, String)], name: &str) -> Result<Option<&'a str>, Failure> {
    let mut found = pairs.iter().filter(|(other, _)| other == name).map(|(_, value)| value.as_str());
    let first = found.next();
    if found.next().is_some() {
        return Err(Failure::bad(format!("`{name}` is given twice")));
    }
    Ok(first)
}

/// What a client wants to see: series by their texts, and by the names of their metrics.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Texts.
    pub(super) series: Vec<String>,
    names: Vec<String>,
    most: usize,
}

impl Wanted {
    /// From `series=` and `match=`, at most `most` series together.
    pub(super) fn of(pairs: &[(String, String)], most: usize) -> Result<Self, Failure> {
        let all =
            |name: &str| pairs.iter().filter(|(other, _)| other == name).map(|(_, value)| value.clone()).collect();
        let wanted = Self { series: all("series"), names: all("match"), most };
        if wanted.series.is_empty() && wanted.names.is_empty() {
            return Err(Failure::bad("nothing is asked for; give `series=` or `match=`"));
        }
        if let Some(name) = wanted.names.iter().find(|name| name.is_empty() || name.trim_end_matches('*').contains('*'))
        {
            return Err(Failure::bad(format!(
                "`match={name}`: the name of a metric is expected, or its front and `*`"
            )));
        }
        wanted.check()?;
        Ok(wanted)
    }

    fn check(&self) -> Result<(), Failure> {
        let (count, most) = (self.series.len(), self.most);
        if count > most {
            return Err(Failure::bad(format!("{count} series are asked for; at most {most} are possible")));
        }
        Ok(())
    }

    /// Whether something is asked for by name.
    pub(super) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether the metric is asked for by name.
    pub(super) fn matches(&self, name: &str) -> bool {
        let matches = |wanted: &str| match wanted.strip_suffix('*') {
            Some(front) => name.starts_with(front),
            None => name == wanted,
        };
        self.names.iter().any(|wanted| matches(wanted))
    }

    /// Adds what there is of the names, given as name and text.
    pub(super) fn expand<'a>(&mut self, all: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), Failure> {
        if !self.has_names() {
            return Ok(());
        }
        let mut found: Vec<&str> = all.filter(|(name, _)| self.matches(name)).map(|(_, text)| text).collect();
        found.sort_unstable();
        found.dedup();
        found.retain(|text| !self.series.iter().any(|series| series == text));
        self.series.extend(found.into_iter().map(str::to_owned));
        self.check()
    }
}

/// A number within bounds.
pub(super) fn number(pairs: &[(String, String)], name: &str, least: f64, most: f64) -> Result<Option<f64>, Failure> {
    let Some(text) = one(pairs, name)? else { return Ok(None) };
    let value = text.parse::<f64>().ok().filter(|value| (least..=most).contains(value));
    match value {
        Some(value) => Ok(Some(value)),
        None => Err(Failure::bad(format!("`{name}` is `{text}`; a number from {least} to {most} is expected"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_checked() {
        let pairs = parameters(Some("a=1&series=x%7Bb%3D%22c%22%7D&series=y"), &["a", "series"]).unwrap();
        assert_eq!(pairs[1].1, "x{b=\"c\"}");
        assert_eq!(number(&pairs, "a", 0.0, 2.0).unwrap(), Some(1.0));
        assert!(number(&pairs, "a", 2.0, 3.0).is_err() && one(&pairs, "series").is_err());
        assert!(one(&pairs, "b").unwrap().is_none());
        assert!(parameters(Some("c=1"), &["a"]).unwrap_err().message.contains("known are: a"));
        assert_eq!(ns(ms(1_795_300_000_000_123_000)), 1_795_300_000_000_123_000);
        assert!(number(&[("a".into(), "NaN".into())], "a", 0.0, 1.0).is_err());
    }

    #[test]
    fn what_is_accepted_is_named_and_not_refused() {
        for (choices, is_accepted) in [
            ("text/columns", true),
            ("text/html, text/columns;v=1; q=0.5", true),
            ("text/columns;q=0", false),
            ("text/columns; v=1;q=0.000, */*", false),
            ("text/*", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(choices))]);
            assert_eq!(accepts(&headers, header::ACCEPT, |kind| kind == "text/columns"), is_accepted, "{choices}");
        }
        assert!(!accepts(&HeaderMap::new(), header::ACCEPT, |_| true));
        let mut twice = HeaderMap::new();
        twice.append(header::ACCEPT, HeaderValue::from_static("a"));
        twice.append(header::ACCEPT, HeaderValue::from_static("b"));
        assert!(accepts(&twice, header::ACCEPT, |kind| kind == "b"));
    }

    #[test]
    fn names_and_fronts_of_names_are_found() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let all = [("load1", "load1{b}"), ("load1", "load1{a}"), ("load15", "load15"), ("up", "up")];
        let expanded = |pairs: &[(String, String)], most| {
            let mut wanted = Wanted::of(pairs, most)?;
            wanted.expand(all.into_iter())?;
            Ok::<_, Failure>(wanted.series)
        };
        assert_eq!(expanded(&[pair("match", "load1")], 9).unwrap(), ["load1{a}", "load1{b}"]);
        let both = [pair("series", "load15"), pair("match", "load*"), pair("match", "up")];
        assert_eq!(expanded(&both, 4).unwrap(), ["load15", "load1{a}", "load1{b}", "up"]);
        assert!(expanded(&both, 3).unwrap_err().message.contains("4 series"));
        assert_eq!(expanded(&[pair("match", "none")], 9).unwrap(), [""; 0]);
        for bad in ["", "a*b", "*a"] {
            assert!(expanded(&[pair("match", bad)], 9).is_err(), "{bad}");
        }
        assert!(expanded(&[], 9).is_err());
    }
}
