// SPDX-License-Identifier: Apache-2.0
//! What a reader and an RDMA device tell each other, so that their queue pairs can be connected.
//!
//! A reader asks twice: at first as any other does, and where the host lists [`VERBS`](crate::VERBS) and the reader's machine has a device, once more with its own end.
//! Only that question makes the host keep a queue pair for it.

use crate::Id;
use onlooker_wire::{PATH_MTUS, Psn, Qpn};
use serde::{Deserialize, Serialize};

/// One end of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairEnd {
    /// The queue pair's number.
    pub queue_pair: u32,
    /// Number of the first packet that it sends. Fresh each time that it connects.
    pub packet: u32,
    /// The device's address, as a RoCEv2 GID.
    pub gid: Id,
    /// Longest payload of a packet that its port takes.
    pub mtu_bytes: u16,
    /// READs that it answers at once.
    pub reads_answered: u8,
}

impl QueuePairEnd {
    /// Whether it can be one.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let rules = [
            (
                Qpn::new(self.queue_pair).is_some_and(|number| number.get() >= Qpn::FIRST.get()),
                "a queue pair's number is not in 2 to 2^24-1",
            ),
            (Psn::new(self.packet).is_some(), "a packet's number is not of 24 bits"),
            (PATH_MTUS.contains(&self.mtu_bytes), "mtu_bytes is no path MTU (256, 512, 1024, 2048, 4096)"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, what)| Err(what))
    }
}

/// The reader's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerbsRequest {
    /// Random, made once by who reads: the host replaces the earlier queue pair of the same id, and does not add another.
    pub reader_id: Id,
    /// Its end.
    pub end: QueuePairEnd,
    /// Where the host may write its directory, so that the reader learns of changes without READs; for hosts that list [`Responder::push`](crate::Responder::push).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy: Option<ControlCopy>,
}

/// What a reader says that ends, so that the host ends its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodbye {
    /// As it was in the request.
    pub reader_id: Id,
    /// Its end's number: a queue pair that it has asked for since stays.
    pub queue_pair: u32,
}

/// A reader's memory for the control region, which the host's device may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlCopy {
    /// Address of its first byte, a multiple of 4096.
    pub va: u64,
    /// The reader's device's key.
    pub rkey: u32,
    /// Length: that of the control region.
    pub bytes: u64,
}

/// The host's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerbsAnswer {
    /// The device's key of the control region; its address is the same for all responders.
    pub control_rkey: u32,
    /// The end that was made for this reader.
    pub end: QueuePairEnd,
}

impl VerbsAnswer {
    /// Whether it can be one. An end that answers no READs is of no use: on soft-RoCE they would hang without an error.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.end.check()?;
        if self.end.reads_answered == 0 { Err("the host's queue pair answers no READs") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, AnswerError, Code, Control, MAX_PROBLEM_BYTES, Request, Responder, Secret, TCP, VERBS};
    use serde_json::{Value, json};

    fn end() -> QueuePairEnd {
        QueuePairEnd { queue_pair: 17, packet: 0xff_ffff, gid: Id([9; 16]), mtu_bytes: 1024, reads_answered: 16 }
    }

    fn request() -> Request {
        let verbs = Some(VerbsRequest { reader_id: Id([7; 16]), end: end(), copy: None });
        Request { secret: Secret::new([3; 32]), reader: "onlooker 0.1.0".into(), verbs, goodbye: None }
    }

    fn answer(verbs: Option<VerbsAnswer>, problem: Option<String>) -> Answer {
        let tcp = Responder { kind: TCP.into(), port: 7178, ..Responder::default() };
        Answer {
            agent: "0.1.0".into(),
            host: "web-3".into(),
            host_id: Id([1; 16]),
            boot_id: Id([2; 16]),
            boot_clock_ns: 1,
            wall_clock_ns: 2,
            control: Control { rkey: 3, va: 4096, bytes: 65_536, generation: 5 },
            max_read_bytes: 65_536,
            responders: vec![
                tcp,
                Responder { kind: VERBS.into(), max_read_bytes: Some(4096), verbs, problem, ..Responder::default() },
            ],
        }
    }

    fn whole() -> Answer {
        answer(Some(VerbsAnswer { control_rkey: u32::MAX, end: end() }), None)
    }

    /// A message with one value put elsewhere.
    fn changed(body: &[u8], pointer: &str, value: Value) -> Vec<u8> {
        let mut message: Value = serde_json::from_slice(body).unwrap();
        *message.pointer_mut(pointer).unwrap() = value;
        serde_json::to_vec(&message).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Request::decode(&request().encode()), Ok(request()));
        let whole = whole();
        let got = Answer::decode(&whole.encode()).unwrap();
        assert_eq!(got, whole);
        assert_eq!(got.max_read_blocks(got.responder(VERBS).unwrap()), 4);
        let without = answer(None, Some("the holder is not running".into()));
        assert_eq!(Answer::decode(&without.encode()), Ok(without));
    }

    #[test]
    fn the_keys_are_those_of_the_page() {
        let gid = "09090909090909090909090909090909";
        let end = json!({"queue_pair": 17, "packet": 16_777_215, "gid": gid, "mtu_bytes": 1024, "reads_answered": 16});
        let asked: Value = serde_json::from_slice(&request().encode()).unwrap();
        assert_eq!(asked["verbs"], json!({"reader_id": "07070707070707070707070707070707", "end": end}));
        let told: Value = serde_json::from_slice(&whole().encode()).unwrap();
        let verbs = json!({"control_rkey": u32::MAX, "end": end});
        let expected = json!({"kind": "verbs", "port": 0, "max_read_bytes": 4096, "verbs": verbs});
        assert_eq!(told["responders"], json!([{"kind": "tcp", "port": 7178}, expected]));
    }

    /// An agent that has not heard of queue pairs: it refuses keys that it does not know.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it is understood counts")]
    struct OlderRequest {
        op: String,
        version: u32,
        token: String,
        reader: String,
    }

    /// A reader that has not heard of them.
    #[derive(Deserialize)]
    struct OlderAnswer {
        responders: Vec<OlderResponder>,
    }

    #[derive(Deserialize)]
    struct OlderResponder {
        kind: String,
        #[serde(default)]
        port: u16,
    }

    #[test]
    fn older_ends_understand_whoever_does_not_ask_for_more() {
        let plain = Request { verbs: None, ..request() };
        assert!(serde_json::from_slice::<OlderRequest>(&plain.encode()).is_ok());
        assert!(serde_json::from_slice::<OlderRequest>(&request().encode()).is_err());
        let older: OlderAnswer = serde_json::from_slice(&whole().encode()).unwrap();
        let told: Vec<_> = older.responders.iter().map(|one| (one.kind.as_str(), one.port)).collect();
        assert_eq!(told, [("tcp", 7178), ("verbs", 0)]);
        // And an older reader's request, an older agent's answer.
        let asked = format!(r#"{{"op":"bootstrap","version":1,"token":"{}","reader":"x"}}"#, plain.secret.text());
        assert_eq!(Request::decode(asked.as_bytes()).unwrap().verbs, None);
        let told = changed(&whole().encode(), "/responders/1", json!({"kind": "verbs", "port": 0}));
        let responder = Answer::decode(&told).unwrap().responders.remove(1);
        assert_eq!((responder.verbs, responder.problem), (None, None));
    }

    #[test]
    fn ends_that_cannot_be_are_refused() {
        let cases = [
            ("queue_pair", json!(1)),
            ("queue_pair", json!(1 << 24)),
            ("packet", json!(1 << 24)),
            ("mtu_bytes", json!(1500)),
            ("mtu_bytes", json!(0)),
        ];
        for (key, value) in cases {
            let asked = changed(&request().encode(), &format!("/verbs/end/{key}"), value.clone());
            assert_eq!(Request::decode(&asked).unwrap_err().code(), Code::BadRequest, "{key} {value}");
            let told = changed(&whole().encode(), &format!("/responders/1/verbs/end/{key}"), value.clone());
            assert!(matches!(Answer::decode(&told), Err(AnswerError::Value(_))), "{key} {value}");
        }
        let asked = changed(&request().encode(), "/verbs/end/reads_answered", json!(0));
        assert!(Request::decode(&asked).is_ok(), "nobody READs a reader");
        let told = changed(&whole().encode(), "/responders/1/verbs/end/reads_answered", json!(0));
        assert!(matches!(Answer::decode(&told), Err(AnswerError::Value(_))));
        for (pointer, value) in [
            ("/verbs/reader_id", json!("7")),
            ("/verbs/end/gid", json!(vec![0; 16])),
            ("/verbs/end/reads_answered", json!(256)),
            ("/verbs", json!({"reader_id": "07070707070707070707070707070707"})),
            ("/verbs", json!("yes")),
        ] {
            let asked = changed(&request().encode(), pointer, value.clone());
            assert_eq!(Request::decode(&asked).unwrap_err().code(), Code::BadRequest, "{pointer} {value}");
        }
        let told = changed(&whole().encode(), "/responders/1/verbs/control_rkey", json!(1_u64 << 32));
        assert!(matches!(Answer::decode(&told), Err(AnswerError::Bad(_))));
    }

    #[test]
    fn a_problem_is_cut_where_it_is_long() {
        let long = "ä".repeat(MAX_PROBLEM_BYTES);
        let got = Answer::decode(&answer(None, Some(format!("x{long}"))).encode()).unwrap();
        let problem = got.responders[1].problem.clone().unwrap();
        assert_eq!((problem.len(), problem.starts_with("xä")), (MAX_PROBLEM_BYTES - 1, true), "between characters");
    }

    #[test]
    fn any_end_is_taken_or_refused() {
        bolero::check!().with_type::<([u32; 3], u16, u8, [u8; 16])>().for_each(
            |([queue_pair, packet, control_rkey], mtu_bytes, reads_answered, id)| {
                let end = QueuePairEnd {
                    queue_pair: *queue_pair,
                    packet: *packet,
                    gid: Id(*id),
                    mtu_bytes: *mtu_bytes,
                    reads_answered: *reads_answered,
                };
                let told = answer(Some(VerbsAnswer { control_rkey: *control_rkey, end }), None);
                if let Ok(got) = Answer::decode(&told.encode()) {
                    assert_eq!(got, told);
                    assert!((2..1 << 24).contains(queue_pair) && *packet < 1 << 24 && *reads_answered > 0);
                }
                let asked = Request { verbs: Some(VerbsRequest { reader_id: Id(*id), end, copy: None }), ..request() };
                if let Ok(got) = Request::decode(&asked.encode()) {
                    assert_eq!(got, asked);
                    assert!(PATH_MTUS.contains(mtu_bytes));
                }
            },
        );
        bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
            for mut bytes in [request().encode(), whole().encode()] {
                for (at, to) in changes {
                    let at = usize::from(*at) % bytes.len();
                    bytes[at] = *to;
                }
                let _ = (Request::decode(&bytes).is_ok(), Answer::decode(&bytes).is_ok());
            }
        });
    }
}
