// SPDX-License-Identifier: Apache-2.0
//! One HTTP request to the controller, over TLS where its URL says so.

use std::path::Path;
use std::time::Duration;

use onlooker_client::{AuthoritiesError, explain};
use serde_json::Value;

use crate::JoinError;
use crate::url::Url;

/// For all of a request: a test read has a few seconds at the controller.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// Longest text that is taken from an answer, characters: it is shown to an operator, on a terminal.
const MAX_TEXT_CHARS: usize = 1000;
/// Most entries that are taken of a list or an object.
const MAX_ENTRIES: usize = 64;

/// A controller's answer as it may be shown: nothing in it moves a cursor or fills a screen.
fn tame(value: Value) -> Value {
    let text = |text: &str| -> String {
        let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        text.chars().take(MAX_TEXT_CHARS).map(plain).collect()
    };
    match value {
        Value::String(string) => Value::String(text(&string)),
        Value::Array(list) => list.into_iter().take(MAX_ENTRIES).map(tame).collect(),
        Value::Object(map) => map.into_iter().take(MAX_ENTRIES).map(|(key, value)| (text(&key), tame(value))).collect(),
        other => other,
    }
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// POST.
    Post,
    /// DELETE.
    Delete,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body; `null` where it is no JSON.
    pub body: Value,
}

impl Answer {
    /// Whether it is a controller's refusal: those have a sentence.
    #[must_use]
    pub fn is_controllers(&self) -> bool {
        self.body.get("error").is_some_and(Value::is_string)
    }

    /// The controller's own words on what is wrong.
    #[must_use]
    pub fn error(&self) -> String {
        match self.body.get("error").and_then(Value::as_str) {
            Some(text) => text.to_owned(),
            None => format!("HTTP status {}", self.status),
        }
    }
}

/// The way to ask.
#[derive(Debug)]
pub struct Client {
    url: Url,
    agent: ureq::Agent,
}

impl Client {
    /// One for a controller. `ca`: instead of the system's certificate authorities.
    ///
    /// # Errors
    /// [`JoinError::Usage`]: no certificate authorities.
    pub fn new(url: &Url, ca: Option<&Path>) -> Result<Self, JoinError> {
        Self::within(TIMEOUT, url, ca)
    }

    fn within(timeout: Duration, url: &Url, ca: Option<&Path>) -> Result<Self, JoinError> {
        let agent = onlooker_client::agent("onlooker-agent", url.tls, ca, timeout).map_err(no_authorities)?;
        Ok(Self { url: url.clone(), agent })
    }

    /// Asks. `bearer`: the token to show, where there is one.
    ///
    /// # Errors
    /// [`JoinError::Unreachable`]. Whatever status comes back is an answer.
    pub fn ask(&self, method: Method, path: &str, bearer: Option<&str>, body: &Value) -> Result<Answer, JoinError> {
        let url = self.url.of(path);
        let failed = |error: &ureq::Error| JoinError::Unreachable {
            url: self.url.to_string(),
            what: explain(error, self.url.tls),
        };
        let mut request = match method {
            Method::Post => self.agent.post(&url),
            Method::Delete => self.agent.delete(&url).force_send_body(),
        };
        if let Some(bearer) = bearer {
            request = request.header("Authorization", format!("Bearer {bearer}"));
        }
        let request = request.content_type("application/json");
        let mut response = request.send(body.to_string()).map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        if let Some(place) = response.headers().get("Location").filter(|_| (300..400).contains(&status)) {
            let place = String::from_utf8_lossy(place.as_bytes()).into_owned();
            let what = format!("it answers with a redirection to {place}: give that URL, if you trust it");
            return Err(JoinError::Unreachable { url: self.url.to_string(), what });
        }
        let text = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string();
        let text = text.map_err(|error| failed(&error))?;
        Ok(Answer { status, body: tame(serde_json::from_str(&text).unwrap_or(Value::Null)) })
    }
}

fn no_authorities(error: AuthoritiesError) -> JoinError {
    JoinError::Usage(match error {
        AuthoritiesError::File { path, what } => format!("--ca {}: {what}", path.display()),
        AuthoritiesError::Nowhere => {
            "this system has no certificate authorities: install ca-certificates, or give the controller's with --ca FILE"
                .to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Arc;

    use super::*;

    /// Answers one request with `answer` and returns what was asked.
    fn exchange(
        answer: &'static str,
        ask: impl FnOnce(&Client) -> Result<Answer, JoinError>,
    ) -> (Result<Answer, JoinError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut asked = Vec::new();
                // The bodies of these tests end with the only brace.
                while !asked.ends_with(b"}") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    asked.push(byte[0]);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                String::from_utf8(asked).unwrap()
            });
            let result = ask(&Client::new(&url, None).unwrap());
            (result, server.join().unwrap())
        })
    }

    #[test]
    fn a_hostile_controller_moves_no_cursor_and_fills_no_screen() {
        let long = "x".repeat(100_000);
        let nasty = serde_json::json!({
            "error": format!("\u{1b}[2J\u{7}\r{long}"), "notes": vec!["\u{9b}31m"; 5_000], "\u{1b}c": {"deep": ["\n"]}, "regions": 7,
        });
        let tamed = tame(nasty);
        let text = tamed.to_string();
        assert!(!text.chars().any(char::is_control) && !text.contains("\\u00") && !text.contains("\\n"), "{text}");
        assert_eq!(tamed["error"].as_str().unwrap().chars().count(), MAX_TEXT_CHARS);
        assert_eq!((tamed["notes"].as_array().unwrap().len(), &tamed["regions"]), (MAX_ENTRIES, &7.into()));
        // Deeper than anybody means it: no answer, and no stack that overflows.
        let deep = "[".repeat(1 << 20);
        assert!(serde_json::from_str::<Value>(&deep).is_err());
    }

    #[test]
    fn a_request_has_its_token_and_body_and_any_status_is_an_answer() {
        let answer = "HTTP/1.1 409 Conflict\r\nContent-Length: 17\r\nConnection: close\r\n\r\n{\"error\":\"taken\"}";
        let body = serde_json::json!({"a": 1});
        let (result, asked) = exchange(answer, |client| {
            client.ask(Method::Delete, "/api/onlooker/v1/targets/web", Some("secret"), &body)
        });
        let result = result.unwrap();
        assert_eq!((result.status, result.error().as_str()), (409, "taken"));
        assert!(
            asked.starts_with("DELETE /api/onlooker/v1/targets/web HTTP/1.1\r\n")
                && asked.ends_with("\r\n\r\n{\"a\":1}"),
            "{asked}"
        );
        assert!(asked.to_lowercase().contains("\r\nauthorization: bearer secret\r\n"), "{asked}");
        let answer = "HTTP/1.1 500 No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhm";
        let (result, asked) = exchange(answer, |client| client.ask(Method::Post, "/", None, &body));
        assert_eq!(result.unwrap().error(), "HTTP status 500");
        assert!(asked.starts_with("POST / ") && !asked.to_lowercase().contains("authorization"), "{asked}");
    }

    /// What becomes of a request to a server that writes `head`, and then `piece` after each `pause` for as long as somebody listens.
    fn endless(head: &'static str, piece: &'static [u8], pause: Duration) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.write_all(head.as_bytes());
                while stream.write_all(piece).is_ok() {
                    std::thread::sleep(pause);
                }
            });
            let timeout = if pause.is_zero() { TIMEOUT } else { Duration::from_secs(2) };
            let client = Client::within(timeout, &url, None).unwrap();
            client.ask(Method::Post, "/", None, &Value::Null).unwrap_err().to_string()
        })
    }

    #[test]
    fn a_controller_that_never_ends_its_answer_has_a_time_and_a_size() {
        let (head, slow) = ("HTTP/1.1 200 OK\r\nConnection: close\r\n", Duration::from_millis(20));
        let body = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        for error in [endless(head, b"a: b\r\n", slow), endless(body, b" ", slow)] {
            assert!(error.contains("timeout"), "{error}");
        }
        let error = endless(body, &[b' '; 1 << 16], Duration::ZERO);
        assert!(error.contains("larger") || error.contains("limit"), "{error}");
    }

    /// A server with a certificate of its own, for one request.
    fn over_tls(ask: impl FnOnce(&Url, &Path) -> Result<Answer, JoinError>) -> Result<Answer, JoinError> {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = Url::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut connection = rustls::ServerConnection::new(Arc::new(config)).unwrap();
                let mut stream = rustls::Stream::new(&mut connection, &mut stream);
                let mut asked = Vec::new();
                let mut byte = [0];
                // Whoever does not trust us goes away.
                while !asked.ends_with(b"}") && stream.read_exact(&mut byte).is_ok() {
                    asked.push(byte[0]);
                }
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            });
            ask(&url, &ca)
        })
    }

    #[test]
    fn a_certificate_must_be_signed_by_an_authority_that_was_given() {
        let body = serde_json::json!({});
        let ask =
            |url: &Url, ca: &Path| Client::new(url, Some(ca)).unwrap().ask(Method::Post, "/", Some("secret"), &body);
        assert_eq!(over_tls(ask).unwrap().status, 204);
        let other = tempfile::tempdir().unwrap();
        let other = other.path().join("other.pem");
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap().cert;
        std::fs::write(&other, certificate.pem()).unwrap();
        let error = over_tls(|url, _| ask(url, &other)).unwrap_err().to_string();
        assert!(error.contains("--ca FILE"), "{error}");
    }

    #[test]
    fn the_token_follows_no_redirection() {
        let answer = "HTTP/1.1 307 Over there\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let (result, _) =
            exchange(answer, |client| client.ask(Method::Post, "/", Some("secret"), &serde_json::json!({})));
        let error = result.unwrap_err().to_string();
        assert!(error.contains("redirection to http://127.0.0.1:1/"), "{error}");
    }

    #[test]
    fn what_is_no_http_and_no_certificate_is_told() {
        let (result, _) =
            exchange("SSH-2.0-x\r\n\r\n", |client| client.ask(Method::Post, "/", None, &serde_json::json!({})));
        let error = result.unwrap_err().to_string();
        assert!(error.contains("https:// instead"), "{error}");
        let url = Url::parse("https://127.0.0.1:1").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        std::fs::write(&path, "none").unwrap();
        for path in [path.as_path(), Path::new("/no/such/ca.pem")] {
            assert!(matches!(Client::new(&url, Some(path)), Err(JoinError::Usage(text)) if text.starts_with("--ca /")));
        }
    }
}
