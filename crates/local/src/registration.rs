// SPDX-License-Identifier: Apache-2.0
//! Packets of the registration socket (docs/format/registration.md), for both sides. No I/O.
//!
//! The agent reads a request in two steps, the operation first and then exactly that operation's keys, so that it
//! refuses unknown keys by name. The schema stays raw text until [`onlooker_region::Schema::parse`] has it: a packet
//! costs no more memory than its own size. A program passes over keys of answers that a later agent adds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Protocol version of `hello`.
pub const VERSION: u32 = 1;
/// Where the agent listens unless it is told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/onlooker/agent.sock";
/// Environment variable that tells programs another place.
pub const SOCKET_VARIABLE: &str = "ONLOOKER_SOCKET";
/// Longest packet, bytes.
pub const MAX_PACKET_BYTES: usize = 131_072;
/// After so many packets in a row that were not understood the agent closes the connection.
pub const MAX_BAD_PACKETS: u32 = 16;
/// Longest `instance`, bytes: it becomes a label value.
pub const MAX_INSTANCE_BYTES: usize = onlooker_region::limits::MAX_LABEL_VALUE_BYTES;
/// Longest piece of an error's text that a packet can have a say in, characters.
const MAX_QUOTED_CHARS: usize = 512;
/// What an agent of another version may leave out: no user has this uid.
const NO_UID: u32 = u32::MAX;

crate::codes! {
    /// Error codes of registration.md.
    Code {
        BadRequest = "bad_request",
        Version = "version",
        Schema = "schema",
        Duplicate = "duplicate",
        Quota = "quota",
        Denied = "denied",
        NotFound = "not_found",
        BadDescriptor = "bad_descriptor",
        Internal = "internal",
    }
}

/// A request that the agent refuses.
pub type Refusal = crate::Refusal<Code>;

/// A refusal as a program receives it: a later agent may have codes that are not in [`Code`].
pub type Refused = crate::Refusal<String>;

/// Labels of a region.
pub type Labels = BTreeMap<String, String>;

/// A request.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request<'a> {
    /// First packet.
    Hello {
        /// Protocol version.
        version: u32,
        /// Who asks, for people.
        sdk: Cow<'a, str>,
    },
    /// A new region in the user's slab.
    Create(Create<'a>),
    /// Makes a region visible.
    Publish {
        /// Region id.
        region: u32,
    },
    /// New labels or schema.
    Update(Update<'a>),
    /// Ends a region.
    Remove {
        /// Region id.
        region: u32,
    },
    /// Memory of the program's own.
    Adopt(Adopt<'a>),
}

impl Request<'_> {
    /// Its `op`.
    #[must_use]
    pub const fn op(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Create(_) => "create",
            Self::Publish { .. } => "publish",
            Self::Update(_) => "update",
            Self::Remove { .. } => "remove",
            Self::Adopt(_) => "adopt",
        }
    }
}

/// `create`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Create<'a> {
    #[serde(rename = "op", skip_serializing)]
    _op: IgnoredText,
    /// Region name.
    pub name: String,
    /// Instance within the process.
    #[serde(default)]
    pub instance: String,
    /// Labels of every series.
    #[serde(default)]
    pub labels: Labels,
    /// Schema, unparsed.
    #[serde(borrow)]
    pub schema: &'a RawValue,
}

impl<'a> Create<'a> {
    /// A request for a region.
    #[must_use]
    pub fn new(name: String, instance: String, labels: Labels, schema: &'a RawValue) -> Self {
        Self { _op: IgnoredText, name, instance, labels, schema }
    }
}

/// `update`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update<'a> {
    #[serde(rename = "op", skip_serializing)]
    _op: IgnoredText,
    /// Region id.
    pub region: u32,
    /// Replace all labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// Replaces the schema.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub schema: Option<&'a RawValue>,
}

/// `adopt`
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt<'a> {
    #[serde(rename = "op", skip_serializing)]
    _op: IgnoredText,
    /// Region name.
    pub name: String,
    /// Instance within the process.
    #[serde(default)]
    pub instance: String,
    /// Labels of every series.
    #[serde(default)]
    pub labels: Labels,
    /// Schema, unparsed.
    #[serde(borrow)]
    pub schema: &'a RawValue,
    /// Where the region begins in the descriptor.
    #[serde(default)]
    pub offset: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hello<'a> {
    #[serde(rename = "op")]
    _op: IgnoredText,
    version: u32,
    #[serde(borrow, default)]
    sdk: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneRegion {
    #[serde(rename = "op")]
    _op: IgnoredText,
    region: u32,
}

/// A text that is checked to be one and thrown away.
#[derive(Debug)]
struct IgnoredText;

impl<'de> Deserialize<'de> for IgnoredText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|_| Self)
    }
}

#[derive(Deserialize)]
struct Head {
    op: Op,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Hello,
    Create,
    Publish,
    Update,
    Remove,
    Adopt,
}

/// The agent's side: a request.
///
/// # Errors
/// What was not understood, in serde's words: `bad_request`.
pub fn decode(packet: &[u8]) -> Result<Request<'_>, String> {
    // serde would also read a structure from a list of its values.
    if packet.trim_ascii_start().first() != Some(&b'{') {
        return Err("this is not a JSON object".to_owned());
    }
    let Head { op } = parse(packet)?;
    match op {
        Op::Hello => parse(packet).map(|Hello { version, sdk, .. }| Request::Hello { version, sdk }),
        Op::Create => parse(packet).map(Request::Create),
        Op::Publish => parse(packet).map(|OneRegion { region, .. }| Request::Publish { region }),
        Op::Update => parse(packet).map(Request::Update),
        Op::Remove => parse(packet).map(|OneRegion { region, .. }| Request::Remove { region }),
        Op::Adopt => parse(packet).map(Request::Adopt),
    }
}

fn parse<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(packet).map_err(|error| error.to_string().chars().take(MAX_QUOTED_CHARS).collect())
}

/// A region as `create` and `adopt` answer it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionAnswer {
    /// Region id.
    pub id: u32,
    /// Its generation.
    pub generation: u32,
    /// Where it begins in the slab's descriptor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Length of the region.
    pub bytes: u64,
    /// Length of the range, whole pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapped_bytes: Option<u64>,
    /// Length of the slab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slab_bytes: Option<u64>,
    /// Whether it is the old region of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<bool>,
}

/// A successful answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To `hello`.
    Hello {
        /// Protocol version of the agent.
        version: u32,
        /// The agent's own version.
        agent: String,
        /// The uid that the agent sees; no user's where an agent of another version does not say it.
        socket_uid: u32,
    },
    /// To `create` and `adopt`.
    Region(RegionAnswer),
    /// To all others.
    Done,
}

/// An answer as it stands in a packet.
#[derive(Default, Serialize, Deserialize)]
struct Packet {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    socket_uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<RegionAnswer>,
}

/// The agent's side: the packet of an answer.
#[must_use]
pub fn encode(answer: &Result<Answer, Refusal>) -> Vec<u8> {
    let packet = match answer.clone() {
        Ok(Answer::Hello { version, agent, socket_uid }) => Packet {
            ok: true,
            version: Some(version),
            agent: Some(agent),
            socket_uid: Some(socket_uid),
            ..Packet::default()
        },
        Ok(Answer::Region(region)) => Packet { ok: true, region: Some(region), ..Packet::default() },
        Ok(Answer::Done) => Packet { ok: true, ..Packet::default() },
        Err(Refusal { code, message }) => {
            Packet { error: Some(code.name().to_owned()), message: Some(message), ..Packet::default() }
        }
    };
    let text = serde_json::to_vec(&packet);
    text.unwrap_or_else(|_| br#"{"ok":false,"error":"internal","message":"the answer could not be encoded"}"#.to_vec())
}

/// The program's side: an answer or a refusal.
///
/// # Errors
/// The packet is no answer.
pub fn decode_answer(packet: &[u8]) -> Result<Result<Answer, Refused>, serde_json::Error> {
    let Packet { ok, error, message, version, agent, socket_uid, region } = serde_json::from_slice(packet)?;
    Ok(match (ok, version, region) {
        (false, ..) => Err(Refused::new(error.unwrap_or_default(), message.unwrap_or_default())),
        (true, _, Some(region)) => Ok(Answer::Region(region)),
        (true, Some(version), None) => {
            let (agent, socket_uid) = (agent.unwrap_or_default(), socket_uid.unwrap_or(NO_UID));
            Ok(Answer::Hello { version, agent, socket_uid })
        }
        (true, None, None) => Ok(Answer::Done),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(packet: &str) -> String {
        decode(packet.as_bytes()).expect_err(packet)
    }

    #[test]
    fn requests_of_the_format_page_decode() {
        assert!(matches!(
            decode(br#"{"op":"hello","version":1,"sdk":"c 0.1.0"}"#),
            Ok(Request::Hello { version: 1, .. })
        ));
        let create = br#"{"op":"create","name":"shop","labels":{"shard":"3"},"schema":{"name":"x"}}"#;
        let Ok(Request::Create(create)) = decode(create) else { panic!("not a create") };
        assert_eq!(
            (create.name.as_str(), create.instance.as_str(), create.schema.get()),
            ("shop", "", r#"{"name":"x"}"#)
        );
        assert_eq!(create.labels["shard"], "3");
        assert!(matches!(decode(br#"{"region":17,"op":"publish"}"#), Ok(Request::Publish { region: 17 })));
        assert!(matches!(decode(br#"{"op":"remove","region":17}"#), Ok(Request::Remove { region: 17 })));
        let update = br#"{"op":"update","region":17,"labels":{}}"#;
        assert!(matches!(decode(update), Ok(Request::Update(Update { labels: Some(_), schema: None, .. }))));
        let adopt = br#"{"op":"adopt","name":"jvm","schema":{},"offset":4096}"#;
        assert!(matches!(decode(adopt), Ok(Request::Adopt(Adopt { offset: 4096, .. }))));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert!(refused(r#"{"op":"create","nmae":"x","schema":{}}"#).contains("unknown field `nmae`"));
        assert!(refused(r#"{"op":"destroy"}"#).contains("unknown variant `destroy`, expected one of `hello`"));
        assert!(refused(r#"{"op":"publish","region":"17"}"#).contains("expected u32"));
        assert!(refused(r#"{"op":"publish","region":-1}"#).contains("expected u32"));
        assert!(refused(r#"{"op":"publish"}"#).contains("missing field `region`"));
        assert!(refused(r#"{"op":"publish","region":1,"region":2}"#).contains("duplicate field"));
        assert!(refused("").contains("not a JSON object"));
        assert!(refused("{").contains("EOF"));
        assert!(refused(r#"["hello"]"#).contains("not a JSON object"));
        assert!(refused(r#"{"op":"hello","version":1}{}"#).contains("trailing"));
        assert!(refused(&r#"{"x":"#.repeat(10_000)).contains("EOF"));
        let long = format!(r#"{{"op":"{}"}}"#, "x".repeat(100_000));
        assert_eq!(refused(&long).chars().count(), MAX_QUOTED_CHARS);
    }

    #[test]
    fn requests_come_back_as_they_were_sent() {
        let schema: Box<RawValue> = serde_json::from_str(r#"{"name":"x"}"#).expect("JSON");
        let labels = Labels::from([("shard".to_owned(), "3".to_owned())]);
        let create = Create::new("shop".to_owned(), String::new(), labels, &schema);
        for (request, text) in [
            (Request::Hello { version: 1, sdk: "c 0.1.0".into() }, r#"{"op":"hello","version":1,"sdk":"c 0.1.0"}"#),
            (
                Request::Create(create),
                r#"{"op":"create","name":"shop","instance":"","labels":{"shard":"3"},"schema":{"name":"x"}}"#,
            ),
            (Request::Publish { region: 17 }, r#"{"op":"publish","region":17}"#),
            (Request::Remove { region: 17 }, r#"{"op":"remove","region":17}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).expect("encodes"), text);
            assert!(text.contains(request.op()));
        }
        for text in [
            r#"{"op":"update","region":17,"labels":{}}"#,
            r#"{"op":"update","region":17,"schema":{"name":"x"}}"#,
            r#"{"op":"adopt","name":"jvm","instance":"","labels":{},"schema":{},"offset":4096}"#,
        ] {
            assert_eq!(serde_json::to_string(&decode(text.as_bytes()).expect(text)).expect("encodes"), text);
        }
    }

    #[test]
    fn no_packet_breaks_the_decoder() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Err(message) = decode(bytes) {
                assert!(encode(&Err(Refusal::new(Code::BadRequest, message))).len() < MAX_PACKET_BYTES);
            }
        });
    }

    #[test]
    fn answers_are_as_the_format_page_has_them() {
        let region = RegionAnswer {
            id: 17,
            generation: 9_128_731,
            offset: Some(40_960),
            bytes: 3072,
            mapped_bytes: Some(4096),
            slab_bytes: Some(16_777_216),
            resumed: Some(false),
        };
        let text = |answer: Result<Answer, Refusal>| {
            let packet = encode(&answer);
            let told = decode_answer(&packet).expect("an answer");
            assert_eq!(told, answer.map_err(|Refusal { code, message }| Refused::new(code.name().to_owned(), message)));
            String::from_utf8(packet).expect("utf-8")
        };
        let hello = Answer::Hello { version: 1, agent: "0.1.0".to_owned(), socket_uid: 1000 };
        assert_eq!(text(Ok(hello)), r#"{"ok":true,"version":1,"agent":"0.1.0","socket_uid":1000}"#);
        assert_eq!(
            text(Ok(Answer::Region(region))),
            r#"{"ok":true,"region":{"id":17,"generation":9128731,"offset":40960,"bytes":3072,"mapped_bytes":4096,"slab_bytes":16777216,"resumed":false}}"#
        );
        assert_eq!(text(Ok(Answer::Done)), r#"{"ok":true}"#);
        for code in Code::ALL {
            let expected = format!(r#"{{"ok":false,"error":"{}","message":"m"}}"#, code.name());
            assert_eq!(text(Err(Refusal::new(*code, "m"))), expected);
        }
        // A later agent's keys and codes; and what is no answer.
        let later = br#"{"ok":false,"error":"busy","message":"m","retry_ns":1}"#;
        assert_eq!(decode_answer(later).expect("an answer"), Err(Refused::new("busy".to_owned(), "m")));
        for packet in ["", "{}", "[]", r#"{"ok":true,"region":{"id":-1}}"#] {
            assert!(decode_answer(packet.as_bytes()).is_err(), "{packet}");
        }
    }
}
