// SPDX-License-Identifier: Apache-2.0
//! Packets of the registration socket (docs/format/registration.md): decoding requests, building answers. No I/O.
//!
//! A request is read in two steps, the operation first and then exactly that operation's keys, so that unknown keys are refused by
//! name. The schema stays raw text until [`onlooker_region::Schema::parse`] has it: a packet costs no more memory than its own size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use onlooker_settings::suggest;

/// Protocol version of `hello`.
pub const VERSION: u32 = 1;
/// Longest packet, bytes.
pub const MAX_PACKET_BYTES: usize = 131_072;
/// After so many packets in a row that were not understood the connection is closed.
pub const MAX_BAD_PACKETS: u32 = 16;
/// Longest `instance`, bytes: it becomes a label value.
pub const MAX_INSTANCE_BYTES: usize = onlooker_region::limits::MAX_LABEL_VALUE_BYTES;

/// Error codes of registration.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // described one by one in registration.md, "Errors"
pub enum Code {
    BadRequest,
    Version,
    Schema,
    Duplicate,
    Quota,
    Denied,
    NotFound,
    BadDescriptor,
    Internal,
}

impl Code {
    /// All codes, in the order of registration.md; their counters stand in this order.
    pub const ALL: [Self; 9] = [
        Self::BadRequest,
        Self::Version,
        Self::Schema,
        Self::Duplicate,
        Self::Quota,
        Self::Denied,
        Self::NotFound,
        Self::BadDescriptor,
        Self::Internal,
    ];

    /// As it stands in answers and counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Version => "version",
            Self::Schema => "schema",
            Self::Duplicate => "duplicate",
            Self::Quota => "quota",
            Self::Denied => "denied",
            Self::NotFound => "not_found",
            Self::BadDescriptor => "bad_descriptor",
            Self::Internal => "internal",
        }
    }
}

/// A refused request: a code for programs, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.name())]
pub struct Refusal {
    /// Which kind.
    pub code: Code,
    /// What is wrong and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// Labels of a region.
pub type Labels = BTreeMap<String, String>;

/// A request.
#[derive(Debug)]
pub enum Request<'a> {
    /// First packet.
    Hello {
        /// Protocol version.
        version: u32,
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

/// `create`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Create<'a> {
    #[serde(rename = "op")]
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

/// `update`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update<'a> {
    #[serde(rename = "op")]
    _op: IgnoredText,
    /// Region id.
    pub region: u32,
    /// Replace all labels.
    pub labels: Option<Labels>,
    /// Replaces the schema.
    #[serde(borrow)]
    pub schema: Option<&'a RawValue>,
}

/// `adopt`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt<'a> {
    #[serde(rename = "op")]
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
struct Hello {
    #[serde(rename = "op")]
    _op: IgnoredText,
    version: u32,
    #[serde(rename = "sdk", default)]
    _sdk: IgnoredText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OneRegion {
    #[serde(rename = "op")]
    _op: IgnoredText,
    region: u32,
}

/// A text that is checked to be one and thrown away.
#[derive(Debug, Default)]
struct IgnoredText;

impl<'de> Deserialize<'de> for IgnoredText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|_| Self)
    }
}

#[derive(Deserialize)]
struct Head {
    op: String,
}

/// Decodes one packet.
///
/// # Errors
/// `bad_request` with what was not understood.
pub fn decode(packet: &[u8]) -> Result<Request<'_>, Refusal> {
    // serde would also read a structure from a list of its values.
    if packet.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::new(
            Code::BadRequest,
            "a packet must be one JSON object, see docs/format/registration.md",
        ));
    }
    let head: Head = parse(packet)?;
    match head.op.as_str() {
        "hello" => parse(packet).map(|hello: Hello| Request::Hello { version: hello.version }),
        "create" => parse(packet).map(Request::Create),
        "publish" => parse(packet).map(|one: OneRegion| Request::Publish { region: one.region }),
        "update" => parse(packet).map(Request::Update),
        "remove" => parse(packet).map(|one: OneRegion| Request::Remove { region: one.region }),
        "adopt" => parse(packet).map(Request::Adopt),
        other => {
            let op: String = other.chars().take(32).collect();
            let known = "hello, create, publish, update, remove, adopt";
            Err(Refusal::new(Code::BadRequest, format!("unknown op `{}`: use one of {known}", op.escape_debug())))
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(packet).map_err(|error| {
        let message = suggest::explain(&error.to_string());
        Refusal::new(Code::BadRequest, format!("{message}; send one JSON object as docs/format/registration.md says"))
    })
}

/// A region as `create` and `adopt` answer it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
        /// The uid that the agent sees.
        socket_uid: u32,
    },
    /// To `create` and `adopt`.
    Region(RegionAnswer),
    /// To all others.
    Done,
}

/// The packet of an answer.
#[must_use]
pub fn encode(answer: &Result<Answer, Refusal>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Hello {
        ok: bool,
        version: u32,
        agent: &'static str,
        socket_uid: u32,
    }
    #[derive(Serialize)]
    struct Region<'a> {
        ok: bool,
        region: &'a RegionAnswer,
    }
    #[derive(Serialize)]
    struct Done {
        ok: bool,
    }
    #[derive(Serialize)]
    struct Failed<'a> {
        ok: bool,
        error: Code,
        message: &'a str,
    }
    let text = match answer {
        Ok(Answer::Hello { socket_uid }) => serde_json::to_vec(&Hello {
            ok: true,
            version: VERSION,
            agent: env!("CARGO_PKG_VERSION"),
            socket_uid: *socket_uid,
        }),
        Ok(Answer::Region(region)) => serde_json::to_vec(&Region { ok: true, region }),
        Ok(Answer::Done) => serde_json::to_vec(&Done { ok: true }),
        Err(refusal) => serde_json::to_vec(&Failed { ok: false, error: refusal.code, message: &refusal.message }),
    };
    text.unwrap_or_else(|_| br#"{"ok":false,"error":"internal","message":"the answer could not be encoded"}"#.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(packet: &str) -> String {
        let refusal = decode(packet.as_bytes()).expect_err(packet);
        assert_eq!(refusal.code, Code::BadRequest);
        refusal.message
    }

    #[test]
    fn requests_of_the_format_page_decode() {
        assert!(matches!(decode(br#"{"op":"hello","version":1,"sdk":"c 0.1.0"}"#), Ok(Request::Hello { version: 1 })));
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
        assert!(
            refused(r#"{"op":"create","nmae":"x","schema":{}}"#).contains("unknown key `nmae`: did you mean `name`?")
        );
        assert!(refused(r#"{"op":"destroy"}"#).contains("unknown op `destroy`"));
        assert!(refused(r#"{"op":"publish","region":"17"}"#).contains("expected u32"));
        assert!(refused(r#"{"op":"publish","region":-1}"#).contains("expected u32"));
        assert!(refused(r#"{"op":"publish"}"#).contains("missing field `region`"));
        assert!(refused(r#"{"op":"publish","region":1,"region":2}"#).contains("duplicate field"));
        assert!(refused("").contains("one JSON object"));
        assert!(refused("{").contains("EOF"));
        assert!(refused(r#"["hello"]"#).contains("one JSON object"));
        assert!(refused(r#"{"op":"hello","version":1}{}"#).contains("trailing"));
        assert!(refused(&r#"{"x":"#.repeat(10_000)).contains("EOF"));
    }

    #[test]
    fn no_packet_breaks_the_decoder() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Err(refusal) = decode(bytes) {
                assert!(encode(&Err(refusal)).len() < MAX_PACKET_BYTES);
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
        let text = |answer| String::from_utf8(encode(&answer)).expect("utf-8");
        assert_eq!(
            text(Ok(Answer::Region(region))),
            r#"{"ok":true,"region":{"id":17,"generation":9128731,"offset":40960,"bytes":3072,"mapped_bytes":4096,"slab_bytes":16777216,"resumed":false}}"#
        );
        assert_eq!(text(Ok(Answer::Done)), r#"{"ok":true}"#);
        for code in Code::ALL {
            let expected = format!(r#"{{"ok":false,"error":"{}","message":"m"}}"#, code.name());
            assert_eq!(text(Err(Refusal::new(code, "m"))), expected);
        }
    }
}
