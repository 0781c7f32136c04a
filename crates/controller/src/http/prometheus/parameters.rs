// SPDX-License-Identifier: Apache-2.0
//! What a request asks for: parameters of its address and, of a form, its body. Unknown ones are ignored, as Prometheus
//! does: Grafana repeats a refused POST as GET.

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::header;
use onlooker_promql::Query;
use onlooker_promql::labels::Matcher;
use onlooker_promql::source::Span;

use super::super::limits::MAX_BODY_BYTES;
use super::times::{duration_ns, time_ns};
use super::{Fault, Kind};

/// Selectors of one request: each is looked for by itself.
const MAX_SELECTORS: usize = 32;

/// Names and values, those of the body first.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

fn pairs(text: &[u8]) -> impl Iterator<Item = (String, String)> + '_ {
    form_urlencoded::parse(text).map(|(name, value)| (name.into_owned(), value.into_owned()))
}

impl<S: Send + Sync> FromRequest<S> for Parameters {
    type Rejection = Fault;

    async fn from_request(request: Request, _: &S) -> Result<Self, Fault> {
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_form = kind.split(';').next().is_some_and(|kind| kind.trim() == "application/x-www-form-urlencoded");
        // It is there already.
        let broken = |_| Fault::new(Kind::BadData, "the body broke off");
        let body = if is_form { to_bytes(body, MAX_BODY_BYTES).await.map_err(broken)? } else { Bytes::new() };
        let query = parts.uri.query().unwrap_or_default().as_bytes();
        Ok(Self(pairs(&body).chain(pairs(query)).collect()))
    }
}

impl Parameters {
    /// Empty where it is not given.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Of a name that may come more than once.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + Clone {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn time_ns(&self, name: &str) -> Result<i64, Fault> {
        let text = self.get(name);
        let why = || Fault::parameter(name, format_args!("cannot parse {text:?} to a valid timestamp"));
        time_ns(text).ok_or_else(why)
    }

    pub(super) fn time_ns_or(&self, name: &str, default_ns: i64) -> Result<i64, Fault> {
        if self.get(name).is_empty() { Ok(default_ns) } else { self.time_ns(name) }
    }

    pub(super) fn duration_ns(&self, name: &str) -> Result<i64, Fault> {
        let text = self.get(name);
        let why = || Fault::parameter(name, format_args!("cannot parse {text:?} to a valid duration"));
        duration_ns(text).ok_or_else(why)
    }

    /// `None` where it is not given, or not positive.
    pub(super) fn lookback_ns(&self, name: &str) -> Result<Option<i64>, Fault> {
        let given = if self.get(name).is_empty() { None } else { Some(self.duration_ns(name)?) };
        Ok(given.filter(|ns| *ns > 0))
    }

    /// `None` where it is not given.
    pub(super) fn positive_ns(&self, name: &str) -> Result<Option<i64>, Fault> {
        match self.get(name) {
            "" => Ok(None),
            _ => match self.duration_ns(name)? {
                ns if ns > 0 => Ok(Some(ns)),
                _ => Err(Fault::parameter(name, "it must be positive")),
            },
        }
    }

    /// How many are told at most; 0 and nothing mean all.
    pub(super) fn most(&self, name: &str) -> Result<usize, Fault> {
        match self.get(name) {
            "" | "0" => Ok(usize::MAX),
            text => text.parse().map_err(|_| Fault::parameter(name, "limit must be a non-negative number")),
        }
    }

    /// A whole number of either sign, if there is one.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Fault> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| Fault::parameter(name, format_args!("{name} must be a number"))),
        }
    }

    /// Matchers of all selectors.
    pub(super) fn selectors(&self) -> Result<Vec<Vec<Matcher>>, Fault> {
        let texts = self.all("match[]");
        if texts.clone().count() > MAX_SELECTORS {
            return Err(Fault::parameter("match[]", format_args!("there are more than {MAX_SELECTORS}")));
        }
        texts.map(|text| Query::selector(text).map_err(|error| Fault::parameter("match[]", error))).collect()
    }

    /// The time of series that are listed, both ends included.
    pub(super) fn span(&self) -> Result<Span, Fault> {
        let (start_ns, until_ns) = (self.time_ns_or("start", 0)?, self.time_ns_or("end", i64::MAX)?);
        if until_ns < start_ns {
            return Err(Fault::parameter("end", "end timestamp must not be before start time"));
        }
        Ok(Span { after_ns: start_ns.saturating_sub(1), until_ns })
    }
}
