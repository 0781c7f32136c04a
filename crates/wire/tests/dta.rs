// SPDX-License-Identifier: Apache-2.0
//! Telemetry reports: against bytes that `vectors/generate.py` derived on its own, and properties on random ones.

#[path = "common/records.rs"]
mod records;

use std::collections::BTreeMap;

use bolero::{TypeGenerator, check};
use onlooker_wire::dta::{
    Answer, Body, Copies, Importance, MAX_COPIES, MAX_KEY_BYTES, MAX_PAYLOAD_BYTES, MAX_REPORT_BYTES, Refused, Report,
    Verdict, prototype,
};
use records::{Record, hex};

/// Records of a kind: those that are right, and refused ones by their reason.
fn vectors<'a>(kind: &str) -> (Vec<Record<'a>>, Vec<(&'a str, Vec<u8>)>) {
    let all = Record::all(include_str!("vectors/dta.txt")).into_iter();
    let (refused, good): (Vec<_>, Vec<_>) =
        all.filter(|record| record.text("kind") == kind).partition(|record| record.0.contains_key("error"));
    let refused: Vec<_> = refused.iter().map(|record| (record.text("error"), record.bytes("datagram"))).collect();
    (good, refused)
}

fn assert_refused(refused: Vec<(&str, Vec<u8>)>, reasons: usize, parse: impl Fn(&[u8]) -> Option<Refused>) {
    let mut counted = BTreeMap::new();
    for (reason, datagram) in refused {
        let error = parse(&datagram).unwrap_or_else(|| panic!("{reason}: {datagram:02x?} was taken"));
        assert_eq!(error.reason(), reason, "{datagram:02x?}: {error}");
        *counted.entry(reason).or_insert(0) += 1;
    }
    assert_eq!(counted.len(), reasons, "{counted:?}");
}

fn sequence<T: std::str::FromStr<Err: std::fmt::Debug>>(record: &Record) -> Option<T> {
    (record.text("sequence") != "-").then(|| record.number("sequence"))
}

fn copies(record: &Record) -> Copies {
    match record.number::<u8>("copies") {
        byte if byte < 16 => Copies::All(byte),
        byte => Copies::Only((byte >> 4) - 1),
    }
}

fn body<'a>(record: &Record, key: &'a [u8], payload: &'a [u8]) -> Body<'a> {
    match record.text("primitive") {
        "probe" => Body::Probe { received: u32::from_be_bytes(payload.try_into().unwrap()) },
        "key_write" => Body::KeyWrite { key, payload, copies: copies(record) },
        "append" => Body::Append { payload },
        _ => {
            Body::KeyIncrement { key, addend: u64::from_be_bytes(payload.try_into().unwrap()), copies: copies(record) }
        }
    }
}

#[test]
fn reports() {
    let (good, refused) = vectors("report");
    for record in &good {
        let (name, key, payload, datagram) =
            (record.text("name"), record.bytes("key"), record.bytes("payload"), record.bytes("datagram"));
        let report = Report {
            importance: Importance::ALL[record.number::<usize>("importance")],
            immediate: record.text("immediate") == "1",
            sequence: sequence(record),
            reporter: record.number("reporter"),
            table: record.number("table"),
            access: record.number("access"),
            generation: record.number("generation"),
            body: body(record, &key, &payload),
        };
        assert_eq!(Report::parse(&datagram), Ok(report), "{name}");
        let mut out = [0x55; MAX_REPORT_BYTES];
        assert_eq!(report.write(&mut out), Ok(datagram.len()), "{name}");
        assert_eq!((&out[..datagram.len()], report.len_bytes()), (&datagram[..], datagram.len()), "{name}");
        for short in 0..datagram.len() {
            assert_eq!(report.write(&mut out[..short]).unwrap_err().reason(), "truncated", "{name}, {short} bytes");
        }
    }
    assert_eq!(good.len(), 9);
    assert_refused(refused, 9, |datagram| Report::parse(datagram).err());
}

#[test]
fn answers() {
    let (good, refused) = vectors("answer");
    for record in &good {
        let answer = Answer {
            verdict: match record.text("verdict") {
                "received" => Verdict::Received,
                "missing" => Verdict::Missing,
                _ => Verdict::Unknown,
            },
            is_congested: record.text("congested") == "1",
            reporter: record.number("reporter"),
            sequence: record.number("sequence"),
            access: record.number("access"),
        };
        let datagram = record.bytes("datagram");
        assert_eq!(Answer::parse(&datagram), Ok(answer));
        assert_eq!(answer.to_bytes()[..], datagram);
    }
    assert_eq!(good.len(), 6);
    assert_refused(refused, 5, |datagram| Answer::parse(datagram).err());
}

#[test]
fn reports_of_the_prototype() {
    let (good, refused) = vectors("prototype");
    for record in &good {
        let list = record.0.get("list").map(|list| list.parse().unwrap());
        let key = record.0.get("key").map(|key| hex(key)).unwrap_or_default();
        let payload = record.bytes("payload");
        let report = prototype::Report {
            immediate: record.text("immediate") == "1",
            sequence: sequence(record),
            list,
            body: body(record, &key, &payload),
        };
        let datagram = record.bytes("datagram");
        assert_eq!(prototype::Report::parse(&datagram), Ok(report), "{}", record.text("name"));
        assert_eq!(Report::parse(&datagram).map_err(|error| error.reason()), Err(version(&datagram)));
    }
    assert_eq!(good.len(), 36);
    assert_refused(refused, 4, |datagram| prototype::Report::parse(datagram).err());
    assert_eq!(prototype::refusal(200), [200, 0x80]);
}

/// Why version 1 does not take a report of version 0.
fn version(datagram: &[u8]) -> &'static str {
    if datagram.len() < Report::HEADER_BYTES { "truncated" } else { "version" }
}

#[derive(Debug, Clone, TypeGenerator)]
struct Shape {
    importance: u8,
    immediate: bool,
    sequence: Option<u32>,
    numbers: [u32; 2],
    table: u16,
    generation: u8,
    primitive: u8,
    copies: u8,
    bytes: [u8; 128],
    lengths: [u8; 2],
    addend: u64,
}

impl Shape {
    fn report(&self) -> Report<'_> {
        let [key, payload] = self.lengths.map(|length| 1 + usize::from(length) % 64);
        let (key, payload) = (&self.bytes[..key], &self.bytes[64..64 + payload]);
        let copies = match self.copies % (2 * MAX_COPIES) {
            count @ 0..MAX_COPIES => Copies::All(count + 1),
            number => Copies::Only(number - MAX_COPIES),
        };
        let (body, sequence) = match self.primitive % 4 {
            0 => (Body::Probe { received: self.numbers[1] }, Some(self.sequence.unwrap_or(7))),
            1 => (Body::KeyWrite { key, payload, copies }, self.sequence),
            2 => (Body::Append { payload }, self.sequence),
            _ => (Body::KeyIncrement { key, addend: self.addend, copies }, self.sequence),
        };
        Report {
            importance: Importance::ALL[usize::from(self.importance) % 3],
            immediate: self.immediate,
            sequence,
            reporter: self.numbers[0],
            table: self.table,
            access: self.numbers[1],
            generation: self.generation,
            body,
        }
    }

    fn datagram(&self) -> Vec<u8> {
        let (report, mut out) = (self.report(), [0; MAX_REPORT_BYTES]);
        let length = report.write(&mut out).unwrap();
        out[..length].to_vec()
    }
}

#[test]
fn written_reports_parse_to_themselves() {
    check!().with_type::<Shape>().for_each(|shape| {
        assert_eq!(Report::parse(&shape.datagram()), Ok(shape.report()));
    });
}

/// What is parsed is written again with the same bytes: a report has one form.
#[test]
fn whatever_is_taken_has_one_form() {
    check!().with_type::<(Shape, [(u8, u8); 3], i8)>().with_iterations(4_000).for_each(|(shape, changes, cut)| {
        let mut datagram = shape.datagram();
        for (at, value) in changes {
            // Mostly in the header.
            let at = usize::from(*at) % (2 * Report::HEADER_BYTES).min(datagram.len());
            datagram[at] = *value;
        }
        if *cut < -100 {
            datagram.push(0);
        } else if *cut > 100 {
            datagram.pop();
        }
        let Ok(report) = Report::parse(&datagram) else { return };
        let mut out = [0; MAX_REPORT_BYTES];
        let length = report.write(&mut out).unwrap();
        assert_eq!(out[..length], datagram);
    });
}

#[test]
fn arbitrary_bytes_never_panic() {
    check!().with_max_len(160).for_each(|bytes| {
        let _ = Report::parse(bytes);
        let _ = prototype::Report::parse(bytes);
        if let Ok(answer) = Answer::parse(bytes) {
            assert_eq!(Answer::parse(&answer.to_bytes()), Ok(answer));
        }
    });
}

#[test]
fn what_nobody_would_take_is_not_written() {
    let report = |body| Report {
        importance: Importance::Low,
        immediate: false,
        sequence: None,
        reporter: 1,
        table: 2,
        access: 3,
        generation: 0,
        body,
    };
    let reason = |body| report(body).write(&mut [0; 1024]).unwrap_err().reason();
    let (long, copies) = ([0; 65], Copies::All(1));
    assert_eq!(reason(Body::Probe { received: 0 }), "flags");
    assert_eq!(reason(Body::Append { payload: &[] }), "payload_length");
    assert_eq!(reason(Body::Append { payload: &long[..=MAX_PAYLOAD_BYTES] }), "payload_length");
    assert_eq!(reason(Body::KeyWrite { key: &[], payload: b"a", copies }), "key_length");
    assert_eq!(reason(Body::KeyIncrement { key: &long[..=MAX_KEY_BYTES], addend: 1, copies }), "key_length");
    for copies in [Copies::All(0), Copies::All(MAX_COPIES + 1), Copies::Only(MAX_COPIES)] {
        assert_eq!(reason(Body::KeyWrite { key: b"k", payload: b"a", copies }), "copies");
    }
}
