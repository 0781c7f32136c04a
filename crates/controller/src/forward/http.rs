// SPDX-License-Identifier: Apache-2.0
//! Requests to a target.

use std::path::PathBuf;

use onlooker_forward::Protocol;
use onlooker_forward::config::Forward;

use crate::client::{self, AuthoritiesError};

/// Why a target cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The token's file.
    #[error("cannot use token_file {path}: {message}", path = path.display())]
    Token {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Its `ca_file`.
    #[error("ca_file: {0}")]
    Client(#[from] AuthoritiesError),
    /// The way there, or back.
    #[error("{0}")]
    Request(Box<ureq::Error>),
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<String>,
    /// The beginning of what it says.
    pub(super) text: String,
}

pub(super) struct Http {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(String, String)>,
    token_file: PathBuf,
}

impl Http {
    pub(super) fn new(target: &Forward) -> Result<Self, HttpError> {
        let headers = target.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let http = Self {
            agent: client::agent(&target.url, &target.ca_file, target.timeout.as_duration())?,
            url: target.url.clone(),
            headers,
            token_file: target.token_file.clone(),
        };
        http.token()?;
        Ok(http)
    }

    /// The token, as it is now: whoever changes it does not start us again.
    fn token(&self) -> Result<Option<String>, HttpError> {
        if self.token_file.as_os_str().is_empty() {
            return Ok(None);
        }
        let wrong = |message| HttpError::Token { path: self.token_file.clone(), message };
        let text = std::fs::read_to_string(&self.token_file).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(text.trim().to_owned()))
    }

    pub(super) fn post(&self, protocol: Protocol, body: &[u8]) -> Result<Answer, HttpError> {
        let mut request = self.agent.post(&self.url);
        for (name, value) in protocol.headers() {
            request = request.header(*name, *value);
        }
        if let Some(token) = self.token()? {
            let scheme = if protocol == Protocol::LineProtocol { "Token" } else { "Bearer" };
            request = request.header("Authorization", format!("{scheme} {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let failed = |error| HttpError::Request(Box::new(error));
        let mut response = request.send(body).map_err(failed)?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        let retry_after = retry_after.map(str::to_owned);
        Ok(Answer { status, retry_after, text: client::text(&mut response) })
    }
}
