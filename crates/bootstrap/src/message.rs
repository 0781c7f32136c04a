// SPDX-License-Identifier: Apache-2.0
//! Request, answer and failure.

use crate::{Goodbye, Id, Secret, VERSION, VerbsAnswer, VerbsRequest};
use onlooker_region::limits::{BLOCK_BYTES, MAX_GENERATION, MAX_REGION_BLOCKS};
use serde::{Deserialize, Serialize};

/// Kind of the responder that serves the TCP read.
pub const TCP: &str = "tcp";
/// Kind of the kernel responder.
pub const KERNEL: &str = "kernel";
/// Kind of the responder that is an RDMA device.
pub const VERBS: &str = "verbs";
/// Longest READ of a kernel responder that does not say how long: the profile's, one block.
const KERNEL_MAX_READ_BYTES: u32 = BLOCK;
/// Bytes of a block, as READs count them.
#[allow(clippy::cast_possible_truncation)] // 1024
const BLOCK: u32 = BLOCK_BYTES as u32;
/// Longest name of a reader.
pub const MAX_READER_BYTES: usize = 128;
/// Longest problem of a responder; a reader cuts what is longer.
pub const MAX_PROBLEM_BYTES: usize = 512;
/// Longest name of a host that a reader takes (the kernel's own limit is 64, DNS's 255).
const MAX_HOST_BYTES: usize = 255;
/// Most responders of a host that a reader takes.
const MAX_RESPONDERS: usize = 64;
/// Fewest blocks of a control region: header, an entry block and what a schema needs.
const MIN_CONTROL_BLOCKS: u64 = 3;

/// A reader's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Opens the agent.
    pub secret: Secret,
    /// Who asks, for the agent's log: program and version.
    pub reader: String,
    /// The reader's queue pair, where it wants to be answered by the host's RDMA device.
    pub verbs: Option<VerbsRequest>,
    /// The reader ends. Agents that do not know it refuse the request, which harms nobody.
    pub goodbye: Option<Goodbye>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRequest {
    op: String,
    version: u32,
    token: String,
    reader: String,
    /// Absent where there is none: agents that do not know it refuse it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verbs: Option<VerbsRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    goodbye: Option<Goodbye>,
}

/// Why a request is not understood; [`RequestError::code`] is what the reader is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not a bootstrap request.
    #[error("not a bootstrap request: {0}")]
    Bad(String),
    /// Another version.
    #[error("bootstrap version {0} is not supported, this agent speaks {VERSION}: upgrade the older side")]
    Version(u64),
    /// A token that cannot be one.
    #[error("the token's secret has not the form of one")]
    Secret,
}

impl RequestError {
    /// The failure's code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Bad(_) => Code::BadRequest,
            Self::Version(_) => Code::Version,
            Self::Secret => Code::Denied,
        }
    }
}

impl Request {
    /// As the body of a message.
    ///
    /// # Panics
    /// Never: plain data.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let raw = RawRequest {
            op: "bootstrap".into(),
            version: VERSION,
            token: self.secret.text(),
            reader: self.reader.clone(),
            verbs: self.verbs,
            goodbye: self.goodbye,
        };
        serde_json::to_vec(&raw).expect("plain data")
    }

    /// The agent's side. The version is looked at before anything else, so that a newer reader learns what to do.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn decode(body: &[u8]) -> Result<Self, RequestError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let bad = |error: serde_json::Error| RequestError::Bad(error.to_string());
        let Versioned { version } = serde_json::from_slice(body).map_err(bad)?;
        if version != u64::from(VERSION) {
            return Err(RequestError::Version(version));
        }
        let raw: RawRequest = serde_json::from_slice(body).map_err(bad)?;
        if raw.op != "bootstrap" {
            return Err(RequestError::Bad("op is not `bootstrap`".into()));
        }
        if raw.reader.len() > MAX_READER_BYTES {
            return Err(RequestError::Bad(format!("reader is longer than {MAX_READER_BYTES} bytes")));
        }
        if let Some(Err(what)) = raw.verbs.map(|verbs| verbs.end.check()) {
            return Err(RequestError::Bad(what.into()));
        }
        let secret = Secret::parse(&raw.token).map_err(|_| RequestError::Secret)?;
        Ok(Self { secret, reader: raw.reader, verbs: raw.verbs, goodbye: raw.goodbye })
    }
}

/// Where the control region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Key for READs.
    pub rkey: u32,
    /// Address for READs.
    pub va: u64,
    /// Length.
    pub bytes: u64,
    /// Generation of the control blocks' identities: the agent's incarnation.
    pub generation: u32,
}

/// Who answers READs. Kinds that a reader does not know, and their keys, are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responder {
    /// [`TCP`], [`KERNEL`], [`VERBS`]; later others.
    pub kind: String,
    /// Port; 0 where the kind has none.
    #[serde(default)]
    pub port: u16,
    /// Longest READ that this one answers, where it is below the host's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_read_bytes: Option<u32>,
    /// Of a kernel responder: it answers RDMA devices, too, on RoCEv2's own port.
    #[serde(default, skip_serializing_if = "is_false")]
    pub roce: bool,
    /// Of an RDMA device: its readers may ask for the directory to be written to them ([`VerbsRequest::copy`]).
    #[serde(default, skip_serializing_if = "is_false")]
    pub push: bool,
    /// What an RDMA device tells a reader that has told its own end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbs: Option<VerbsAnswer>,
    /// Why it cannot be used now, for people; at most [`MAX_PROBLEM_BYTES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// What the agent tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Version of the agent's program.
    pub agent: String,
    /// The host's name for people.
    pub host: String,
    /// Made from the machine id.
    pub host_id: Id,
    /// The kernel's boot id.
    pub boot_id: Id,
    /// CLOCK_BOOTTIME when the answer was made.
    pub boot_clock_ns: u64,
    /// CLOCK_REALTIME when the answer was made.
    pub wall_clock_ns: u64,
    /// The control region.
    pub control: Control,
    /// Longest READ that any responder of this host answers.
    pub max_read_bytes: u32,
    /// Who answers READs.
    pub responders: Vec<Responder>,
}

/// Why the agent does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Code.
    #[serde(rename = "error")]
    pub code: Code,
    /// A sentence that says what to do.
    pub message: String,
}

/// Code of a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// The token's secret is not the agent's.
    Denied,
    /// Not understood.
    BadRequest,
    /// The version is not supported.
    Version,
    /// [`crate::MAX_BOOTSTRAPS`] are under way.
    Busy,
    /// One that this crate does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// What is wrong with an agent's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The agent says no.
    #[error("the agent refuses: {}", .0.message)]
    Failure(Failure),
    /// Not a bootstrap answer.
    #[error("not a bootstrap answer: {0}")]
    Bad(String),
    /// Another version.
    #[error("the agent answers in bootstrap version {0}, this reader speaks {VERSION}: upgrade the older side")]
    Version(u64),
    /// A value that cannot be.
    #[error("the agent's answer cannot be right: {0}")]
    Value(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(flatten)]
    content: T,
}

impl Failure {
    /// As the body of a message.
    ///
    /// # Panics
    /// For [`Code::Unknown`], which no agent sends.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { ok: false, version: None, content: self }).expect("a known code")
    }
}

impl Answer {
    /// As the body of a message.
    ///
    /// # Panics
    /// Never: plain data.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&Envelope { ok: true, version: Some(VERSION.into()), content: self }).expect("plain data")
    }

    /// The reader's side: parses and checks. Unknown keys are passed over: an agent may tell more.
    ///
    /// # Errors
    /// [`AnswerError`]; [`AnswerError::Failure`] where that is the agent's answer.
    pub fn decode(body: &[u8]) -> Result<Self, AnswerError> {
        #[derive(Deserialize)]
        struct Verdict {
            ok: bool,
            version: Option<u64>,
        }
        let bad = |error: serde_json::Error| AnswerError::Bad(error.to_string());
        let Verdict { ok, version } = serde_json::from_slice(body).map_err(bad)?;
        if !ok {
            return Err(AnswerError::Failure(serde_json::from_slice(body).map_err(bad)?));
        }
        let version = version.ok_or_else(|| AnswerError::Bad("no version".into()))?;
        if version != u64::from(VERSION) {
            return Err(AnswerError::Version(version));
        }
        let mut answer: Self = serde_json::from_slice(body).map_err(bad)?;
        answer.check()?;
        for problem in answer.responders.iter_mut().filter_map(|responder| responder.problem.as_mut()) {
            cut(problem, MAX_PROBLEM_BYTES);
        }
        Ok(answer)
    }

    fn check(&self) -> Result<(), AnswerError> {
        let block = BLOCK_BYTES as u64;
        let Control { va, bytes, generation, .. } = self.control;
        let blocks = bytes / block;
        let rules = [
            (self.host.len() <= MAX_HOST_BYTES, "the host's name is longer than 255 bytes"),
            (bytes.is_multiple_of(block) && va.is_multiple_of(block), "the control region is not whole blocks"),
            (
                (MIN_CONTROL_BLOCKS..=u64::from(MAX_REGION_BLOCKS)).contains(&blocks),
                "the control region has not 3 to 65536 blocks",
            ),
            (va.checked_add(bytes).is_some(), "the control region's address overflows"),
            ((1..=MAX_GENERATION).contains(&generation), "the control region's generation is not of 24 bits, or 0"),
            (self.max_read_bytes as usize >= BLOCK_BYTES, "max_read_bytes is less than a block"),
            (self.responders.len() <= MAX_RESPONDERS, "more than 64 responders"),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what);
        let mut ends = self.responders.iter().filter_map(|responder| responder.verbs?.check().err());
        broken.or_else(|| ends.next()).map_or(Ok(()), |what| Err(AnswerError::Value(what)))
    }

    /// The first responder of a kind.
    #[must_use]
    pub fn responder(&self, kind: &str) -> Option<&Responder> {
        self.responders.iter().find(|responder| responder.kind == kind)
    }

    /// Longest READ that `responder` answers, in whole blocks; at least 1.
    #[must_use]
    pub fn max_read_blocks(&self, responder: &Responder) -> u32 {
        let unsaid = if responder.kind == KERNEL { KERNEL_MAX_READ_BYTES } else { self.max_read_bytes };
        let bytes = responder.max_read_bytes.unwrap_or(unsaid).min(self.max_read_bytes);
        (bytes / BLOCK).max(1)
    }
}

/// Shortens a text to `most_bytes`, between two characters.
fn cut(text: &mut String, most_bytes: usize) {
    let end = (0..=most_bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        Answer {
            agent: "0.1.0".into(),
            host: "web-3".into(),
            host_id: Id([1; 16]),
            boot_id: Id([2; 16]),
            boot_clock_ns: u64::MAX,
            wall_clock_ns: 1_700_000_000_000_000_001,
            control: Control { rkey: 305_419_896, va: 1_234_605_616_436_508_672, bytes: 1_048_576, generation: 7123 },
            max_read_bytes: 65_536,
            responders: vec![Responder { kind: TCP.into(), port: 7178, ..Responder::default() }],
        }
    }

    /// The example of docs/format/bootstrap.md.
    const EXAMPLE: &str = r#"{"ok":true,"version":1,"agent":"0.1.0","host":"web-3","host_id":"01010101010101010101010101010101",
        "boot_id":"02020202020202020202020202020202","boot_clock_ns":18446744073709551615,"wall_clock_ns":1700000000000000001,
        "control":{"rkey":305419896,"va":1234605616436508672,"bytes":1048576,"generation":7123},
        "max_read_bytes":65536,"responders":[{"kind":"tcp","port":7178}]}"#;

    fn changed(key: &str, value: &str) -> Result<Answer, AnswerError> {
        let mut json: serde_json::Value = serde_json::from_str(EXAMPLE).unwrap();
        *json.pointer_mut(key).unwrap() = serde_json::from_str(value).unwrap();
        Answer::decode(&serde_json::to_vec(&json).unwrap())
    }

    #[test]
    fn the_pages_example_is_read_and_written() {
        assert_eq!(Answer::decode(EXAMPLE.as_bytes()), Ok(answer()));
        let ours: serde_json::Value = serde_json::from_slice(&answer().encode()).unwrap();
        assert_eq!(ours, serde_json::from_str::<serde_json::Value>(EXAMPLE).unwrap());
    }

    #[test]
    fn unknown_responders_and_keys_are_passed_over() {
        let responders = r#"[{"kind":"verbs","lid":[1,2]},{"kind":"tcp","port":1,"max_read_bytes":5000,"new":{}}]"#;
        let got = changed("/responders", responders).unwrap();
        let tcp = got.responder(TCP).unwrap();
        assert_eq!((tcp.port, got.max_read_blocks(tcp), got.responder(KERNEL)), (1, 4, None));
    }

    #[test]
    fn a_kernel_responder_that_does_not_say_how_long_answers_one_block() {
        for (responders, blocks) in [
            (r#"[{"kind":"kernel","port":7179}]"#, 1),
            (r#"[{"kind":"kernel","port":7179,"max_read_bytes":1024}]"#, 1),
            (r#"[{"kind":"kernel","port":7179,"max_read_bytes":8192}]"#, 8),
        ] {
            let got = changed("/responders", responders).unwrap();
            assert_eq!(got.max_read_blocks(got.responder(KERNEL).unwrap()), blocks, "{responders}");
        }
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        for (key, value) in [
            ("/control/va", "1"),
            ("/control/va", "18446744073709550592"),
            ("/control/bytes", "2048"),
            ("/control/bytes", "67109888"),
            ("/control/bytes", "1048577"),
            ("/control/generation", "0"),
            ("/control/generation", "16777216"),
            ("/max_read_bytes", "1023"),
        ] {
            assert!(matches!(changed(key, value), Err(AnswerError::Value(_))), "{key} {value}");
        }
        for (key, value) in [
            ("/control/va", "-1"),
            ("/boot_clock_ns", "1e3"),
            ("/control/rkey", "4294967296"),
            ("/host_id", "\"xx\""),
            ("/version", "\"1\""),
            ("/responders", "{}"),
        ] {
            assert!(matches!(changed(key, value), Err(AnswerError::Bad(_))), "{key} {value}");
        }
        assert_eq!(changed("/version", "2"), Err(AnswerError::Version(2)));
    }

    #[test]
    fn failures_are_told_apart() {
        for (code, text) in [
            (Code::Denied, "denied"),
            (Code::BadRequest, "bad_request"),
            (Code::Version, "version"),
            (Code::Busy, "busy"),
        ] {
            let failure = Failure { code, message: "do this".into() };
            let body = failure.encode();
            let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(json, serde_json::json!({"ok": false, "error": text, "message": "do this"}));
            assert_eq!(Answer::decode(&body), Err(AnswerError::Failure(failure)));
        }
        let other = Answer::decode(br#"{"ok":false,"error":"tired","message":""}"#);
        assert_eq!(other, Err(AnswerError::Failure(Failure { code: Code::Unknown, message: String::new() })));
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let request =
            Request { secret: Secret::new([3; 32]), reader: "onlooker 0.1.0".into(), verbs: None, goodbye: None };
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn a_goodbye_is_read_as_it_is_written() {
        let goodbye = Goodbye { reader_id: Id([7; 16]), queue_pair: 21 };
        let reader = "onlooker 0.1.0".to_owned();
        let request = Request { secret: Secret::new([3; 32]), reader, verbs: None, goodbye: Some(goodbye) };
        let text = String::from_utf8(request.encode()).unwrap();
        let part = r#""goodbye":{"reader_id":"07070707070707070707070707070707","queue_pair":21}"#;
        assert!(text.contains(part) && !text.contains("verbs"), "{text}");
        assert_eq!(Request::decode(text.as_bytes()).unwrap(), request);
        let odd = text.replace(r#""queue_pair":21"#, r#""queue_pair":-1"#);
        assert!(matches!(Request::decode(odd.as_bytes()), Err(RequestError::Bad(_))));
    }

    #[test]
    fn bad_requests_get_the_code_that_helps() {
        let secret = Secret::new([3; 32]).text();
        for (body, code) in [
            (format!(r#"{{"op":"bootstrap","version":2,"ticket":"{secret}"}}"#), Code::Version),
            (format!(r#"{{"op":"bootstrap","version":1,"token":"{secret}","reader":"x","y":1}}"#), Code::BadRequest),
            (format!(r#"{{"op":"stop","version":1,"token":"{secret}","reader":"x"}}"#), Code::BadRequest),
            (format!(r#"{{"op":"bootstrap","version":1,"token":"{secret}"}}"#), Code::BadRequest),
            (r#"{"op":"bootstrap","version":1,"token":"short","reader":"x"}"#.into(), Code::Denied),
            (
                format!(r#"{{"op":"bootstrap","version":1,"token":"{secret}","reader":"{}"}}"#, "x".repeat(129)),
                Code::BadRequest,
            ),
            ("[".repeat(60_000), Code::BadRequest),
            (String::new(), Code::BadRequest),
        ] {
            assert_eq!(Request::decode(body.as_bytes()).unwrap_err().code(), code, "{body:.80}");
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = Request::decode(bytes);
            let _ = Answer::decode(bytes);
        });
        bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
            let mut bytes = EXAMPLE.as_bytes().to_vec();
            for (at, to) in changes {
                let at = usize::from(*at) % bytes.len();
                bytes[at] = *to;
            }
            if let Ok(answer) = Answer::decode(&bytes) {
                assert!(answer.control.va.checked_add(answer.control.bytes).is_some());
            }
        });
    }
}
