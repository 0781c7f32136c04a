// SPDX-License-Identifier: Apache-2.0
//! HTTP requests to whom the configuration names, databases and Alertmanagers.

use std::path::Path;
use std::time::Duration;

pub(crate) use onlooker_client::AuthoritiesError;

/// So much of an answer is read, and shown.
const MAX_ANSWER_BYTES: u64 = 64 << 10;
const SHOWN_CHARS: usize = 300;

/// Whoever asks this URL. An empty path: the system's authorities.
pub(crate) fn agent(url: &str, ca_file: &Path, timeout: Duration) -> Result<ureq::Agent, AuthoritiesError> {
    let ca_file = Some(ca_file).filter(|path| !path.as_os_str().is_empty());
    onlooker_client::agent("onlooker", url.starts_with("https://"), ca_file, timeout)
}

/// The beginning of what an answer says, for people. It is read, so that the connection can be used again.
pub(crate) fn text(answer: &mut ureq::http::Response<ureq::Body>) -> String {
    let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).lossy_utf8(true).read_to_string();
    text.unwrap_or_default().chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}
