// SPDX-License-Identifier: Apache-2.0
//! What agent and holder tell each other (docs/holder.md): one request, one answer, each one packet of JSON. No I/O.
//!
//! The version is looked at before anything else, so that a newer agent learns what to do; then exactly the operation's
//! keys are taken, and others refused by name.

use std::net::IpAddr;

/// A reader's memory for the control region, as the bootstrap carries it.
pub use onlooker_bootstrap::ControlCopy;
use onlooker_bootstrap::Id;
/// One end of a connection, as the bootstrap carries it between reader and agent.
pub use onlooker_bootstrap::QueuePairEnd as End;
use serde::{Deserialize, Serialize};

/// Version of `hello`.
pub const VERSION: u32 = 1;
/// Where the holder listens unless told otherwise. Not in the agent's directory, which systemd removes whenever the
/// agent stops.
pub const DEFAULT_SOCKET: &str = "/run/onlooker-holder/holder.sock";
/// Longest packet, bytes.
pub const MAX_PACKET_BYTES: usize = 65_536;
/// Longest name of a registration, bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Registrations at once, with those that are in their grace.
pub const MAX_REGISTRATIONS: u32 = 256;
/// Queue pairs at once.
pub const MAX_PAIRS: u32 = 256;
/// WRITEs that a queue pair has outstanding at most.
pub const MAX_WRITES: u32 = 64;
/// Ranges of one `push`: two of them find room while nothing was outstanding.
pub const MAX_RANGES: usize = 32;
const _: () = assert!(2 * MAX_RANGES <= MAX_WRITES as usize);
/// Longest piece of an answer's message that a peer can have a say in, characters: each may take six bytes.
const MAX_QUOTED_CHARS: usize = 512;

/// What a registration takes in the answer to `hello` beside its name: keys and three numbers.
const LISTED_BYTES: usize = 128;
const _: () = assert!(MAX_REGISTRATIONS as usize * (MAX_NAME_BYTES + LISTED_BYTES) + 1024 <= MAX_PACKET_BYTES);

onlooker_local::codes! {
    /// Why something is refused, for programs: described one by one in docs/holder.md, "Errors".
    Code {
        BadRequest = "bad_request",
        Version = "version",
        Busy = "busy",
        Exists = "exists",
        Unknown = "unknown",
        Memory = "memory",
        Limit = "limit",
        Device = "device",
        NoDevice = "no_device",
        NoLibrary = "no_library",
        Denied = "denied",
    }
}

/// A request that the holder refuses.
pub type Refusal = onlooker_local::Refusal<Code>;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Opens the device and tells what there is already.
    Hello {
        /// [`VERSION`].
        version: u32,
        /// The address that readers use, which is the device's.
        address: IpAddr,
    },
    /// Registers the memory behind the descriptor that comes along, from its beginning.
    Register {
        /// Told again after a restart of the agent.
        name: String,
        /// Address that READs name; a multiple of the page size.
        va: u64,
        /// Length, whole words.
        bytes: u64,
    },
    /// Ends a registration after the grace.
    End {
        /// As it was registered.
        name: String,
    },
    /// Makes a queue pair for a reader and connects it.
    Pair {
        /// Who reads: it has one queue pair.
        reader: Id,
        /// The reader's end.
        end: End,
        /// Where the reader has its copy of the control region, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<ControlCopy>,
    },
    /// Ends a reader's queue pair: the reader has gone.
    Part {
        /// Who has read.
        reader: Id,
        /// The number at the reader's end: one that has come again has another.
        queue_pair: u32,
    },
    /// Writes ranges of a registration to all readers' copies, in this order.
    Push {
        /// The registration that the control region lies in.
        name: String,
        /// The control region's first byte in it.
        base: u64,
        /// First byte from there on, which is the same in a copy, and length; at most [`MAX_RANGES`].
        ranges: Vec<(u64, u64)>,
    },
    /// Asks for counters.
    Status {},
    /// Ends all queue pairs and registrations.
    Release {},
}

/// What the holder has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Registrations.
    pub regions: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
}

/// A registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// As it was registered.
    pub name: String,
    /// Address that READs name.
    pub va: u64,
    /// Length.
    pub bytes: u64,
    /// Key that READs name.
    pub rkey: u32,
}

/// Answer to `hello`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The device's name.
    pub device: String,
    /// What can be made of it.
    pub limits: Limits,
    /// What is registered, those in their grace excepted, by name.
    pub memory: Vec<Memory>,
    /// Queue pairs that stand.
    pub pairs: u64,
    /// Copies that `push` writes to; `None` of a holder that is older than that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<u64>,
}

/// Answer to `register`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// Key that READs name.
    pub rkey: u32,
}

/// Answer to `pair`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paired {
    /// The holder's end.
    pub end: End,
    /// Copies that `push` writes to, with this reader's where it has got one.
    #[serde(default)]
    pub copies: u64,
}

/// Answer to `push`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// Copies that the next one will be written to: where there are none it can be left out.
    pub copies: u64,
}

/// Answer to `part`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parted {
    /// Queue pairs that stand.
    pub pairs: u64,
    /// Copies that the next `push` will be written to.
    pub copies: u64,
}

/// What has happened since the holder began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Registrations made.
    pub registered: u64,
    /// Registrations ended, by request or with their device.
    pub ended: u64,
    /// Queue pairs made.
    pub pairs_made: u64,
    /// Of these, those that took the place of their reader's earlier one.
    pub pairs_replaced: u64,
    /// Queue pairs ended since their readers have said that they go.
    pub pairs_parted: u64,
    /// Queue pairs ended since others came.
    pub pairs_evicted: u64,
    /// Of these, those that were in error.
    pub pairs_evicted_failed: u64,
    /// Queue pairs that could not be made or connected.
    pub pairs_refused: u64,
    /// Queue pairs of which the device told that they are in error.
    pub pairs_failed: u64,
    /// Copies that are not written to, since the device has no room for it.
    pub copies_refused: u64,
    /// Pushes to a copy.
    pub pushes: u64,
    /// Pushes to a copy that were left out: too many WRITEs to it were outstanding.
    pub pushes_missed: u64,
    /// Copies that get no pushes any more, since a WRITE has failed.
    pub pushes_failed: u64,
    /// Ranges of pushes that were cut, or left out, since a copy is shorter.
    pub ranges_clipped: u64,
    /// Whatever the device told.
    pub events: u64,
    /// Connections refused: there was one already, or the peer was another user's.
    pub connections_refused: u64,
}

/// Answer to `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The device's name, if one is open.
    pub device: Option<String>,
    /// Registrations that stand.
    pub registrations: u64,
    /// Registrations in their grace.
    pub resting: u64,
    /// Bytes of both, all of them resident.
    pub registered_bytes: u64,
    /// Queue pairs that stand.
    pub pairs: u64,
    /// Since the holder began.
    pub counters: Counters,
}

/// Answer to `end` and `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

/// A successful answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To `hello`.
    Hello(Hello),
    /// To `register`.
    Registered(Registered),
    /// To `pair`.
    Paired(Paired),
    /// To `part`.
    Parted(Parted),
    /// To `push`.
    Pushed(Pushed),
    /// To `status`.
    Status(Status),
    /// To `end` and `release`.
    Done(Done),
}

#[derive(Deserialize)]
struct Head {
    op: String,
    version: Option<u64>,
}

/// The holder's side: a request.
///
/// # Errors
/// `bad_request` with what was not understood, `version`.
pub fn decode(packet: &[u8]) -> Result<Request, Refusal> {
    // serde would also read a structure from a list of its values.
    if packet.trim_ascii_start().first() != Some(&b'{') {
        return Err(Refusal::new(Code::BadRequest, "a packet must be one JSON object, see docs/holder.md"));
    }
    let head: Head = parse(packet)?;
    match head.version {
        Some(version) if head.op == "hello" && version != u64::from(VERSION) => {
            let message = format!("version {version} is not spoken by this holder ({VERSION} is): upgrade the older");
            Err(Refusal::new(Code::Version, message))
        }
        _ => parse(packet),
    }
}

fn parse<'a, T: Deserialize<'a>>(packet: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(packet).map_err(|error| {
        let what: String = error.to_string().chars().take(MAX_QUOTED_CHARS).collect();
        Refusal::new(Code::BadRequest, format!("{what}; send one JSON object as docs/holder.md says"))
    })
}

/// The holder's side: the packet of an answer.
#[must_use]
pub fn encode(answer: &Result<Answer, Refusal>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Refused<'a> {
        error: Code,
        message: &'a str,
    }
    let text = match answer {
        Ok(answer) => serde_json::to_vec(answer),
        Err(Refusal { code, message }) => serde_json::to_vec(&Refused { error: *code, message }),
    };
    text.unwrap_or_else(|_| br#"{"error":"bad_request","message":"the answer could not be encoded"}"#.to_vec())
}

/// Whether a registration can have this name: short, and without what would have to be escaped.
///
/// # Errors
/// `bad_request`.
pub(crate) fn check_name(name: &str) -> Result<(), Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_plain) {
        return Ok(());
    }
    let message = format!("a name of a registration is 1 to {MAX_NAME_BYTES} of a-z A-Z 0-9 - _ . and this one is not");
    Err(Refusal::new(Code::BadRequest, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &str =
        r#"{"queue_pair":17,"packet":1,"gid":"00000000000000000000ffff0a4d0001","mtu_bytes":1024,"reads_answered":16}"#;

    fn refused(packet: &str) -> Refusal {
        decode(packet.as_bytes()).expect_err(packet)
    }

    #[test]
    fn requests_of_the_page_are_understood_and_come_back_the_same() {
        let pair = format!(r#"{{"op":"pair","reader":"{}","end":{END}}}"#, "ab".repeat(16));
        let copy = r#""copy":{"va":4096,"rkey":7,"bytes":65536}"#;
        let copied = format!(r#"{{"op":"pair","reader":"{}","end":{END},{copy}}}"#, "ab".repeat(16));
        for text in [
            r#"{"op":"hello","version":1,"address":"10.77.0.1"}"#,
            r#"{"op":"register","name":"slab-3","va":18446744073709547520,"bytes":4096}"#,
            r#"{"op":"end","name":"slab-3"}"#,
            &pair,
            &copied,
            r#"{"op":"push","name":"slab-0","base":4096,"ranges":[[2048,1024],[0,1024]]}"#,
            r#"{"op":"status"}"#,
            r#"{"op":"release"}"#,
        ] {
            let request = decode(text.as_bytes()).expect(text);
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (packet, what) in [
            ("", "one JSON object"),
            ("{", "EOF"),
            (r#"["status"]"#, "one JSON object"),
            (r#"{"op":"destroy"}"#, "unknown variant `destroy`"),
            (r#"{"op":"status","x":1}"#, "unknown field `x`"),
            (r#"{"op":"release","x":1}"#, "unknown field `x`"),
            (r#"{"op":"end","name":"a","nmae":"b"}"#, "unknown field `nmae`"),
            (r#"{"op":"end"}"#, "missing field `name`"),
            (r#"{"op":"register","name":"a","va":-1,"bytes":8}"#, "u64"),
            (r#"{"op":"hello","version":1,"address":"here"}"#, "IP address"),
            (r#"{"op":"pair","reader":"ab","end":{}}"#, "hexadecimal"),
            (r#"{"op":"push","name":"a","base":0,"ranges":[[0]]}"#, "invalid length"),
            (r#"{"op":"push","name":"a","base":0,"ranges":[[0,-8]]}"#, "u64"),
            (r#"{"op":"status"}{}"#, "trailing"),
        ] {
            let refusal = refused(packet);
            assert_eq!(refusal.code, Code::BadRequest, "{packet}");
            assert!(refusal.message.contains(what), "{packet}: {}", refusal.message);
        }
        // Of a newer agent the version is all that is understood.
        assert_eq!(refused(r#"{"op":"hello","version":2,"device":"rxe0"}"#).code, Code::Version);
        assert_eq!(refused(r#"{"op":"hello","address":"10.77.0.1"}"#).code, Code::BadRequest);
    }

    #[test]
    fn a_refusal_fits_a_packet_whatever_it_quotes() {
        let packet = format!(r#"{{"op":"status","{}":1}}"#, r"\u0001".repeat(10_000));
        let answer = encode(&Err(refused(&packet)));
        assert!(answer.len() < MAX_PACKET_BYTES / 8, "{}", answer.len());
    }

    #[test]
    fn the_longest_answer_fits_a_packet() {
        let name = "n".repeat(MAX_NAME_BYTES);
        let memory = Memory { name, va: u64::MAX, bytes: u64::MAX, rkey: u32::MAX };
        let limits = Limits { regions: u32::MAX, queue_pairs: u32::MAX };
        let memory = vec![memory; MAX_REGISTRATIONS as usize];
        let hello = Hello { device: "d".repeat(64), limits, memory, pairs: u64::MAX, copies: Some(u64::MAX) };
        assert!(encode(&Ok(Answer::Hello(hello))).len() <= MAX_PACKET_BYTES);
    }

    #[test]
    fn answers_are_as_the_page_has_them() {
        let text = |answer| String::from_utf8(encode(&answer)).unwrap();
        assert_eq!(text(Ok(Answer::Registered(Registered { rkey: 7 }))), r#"{"rkey":7}"#);
        assert_eq!(text(Ok(Answer::Done(Done {}))), "{}");
        let end: End = serde_json::from_str(END).unwrap();
        let paired = Answer::Paired(Paired { end, copies: 2 });
        assert_eq!(text(Ok(paired)), format!(r#"{{"end":{END},"copies":2}}"#));
        assert_eq!(text(Ok(Answer::Pushed(Pushed { copies: 2 }))), r#"{"copies":2}"#);
        let code = Code::NoLibrary;
        let expected = format!(r#"{{"error":"{}","message":"m"}}"#, code.name());
        assert_eq!(text(Err(Refusal::new(code, "m"))), expected);
    }

    #[test]
    fn an_older_holder_is_understood() {
        let hello = r#"{"device":"rxe0","limits":{"regions":9,"queue_pairs":9},"memory":[],"pairs":0}"#;
        assert_eq!(serde_json::from_str::<Hello>(hello).unwrap().copies, None);
        let paired = format!(r#"{{"end":{END}}}"#);
        assert_eq!(serde_json::from_str::<Paired>(&paired).unwrap().copies, 0);
        let counters = serde_json::from_str::<Counters>(r#"{"registered":3}"#).unwrap();
        assert_eq!((counters.registered, counters.pushes), (3, 0));
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "slab-3", "control", "x_y.z", &"n".repeat(MAX_NAME_BYTES)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a\"", "\u{e9}", &"n".repeat(MAX_NAME_BYTES + 1)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
