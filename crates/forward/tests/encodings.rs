// SPDX-License-Identifier: Apache-2.0
//! What was encoded is what another decoder reads: prost with the messages as the specifications have them, and a
//! parser of lines of its own.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::io::Read as _;

use bolero::check;
use onlooker_forward::{Body, Encoder, Family, Pairs, Protocol};
use onlooker_promql::source::STALE;
use onlooker_region::schema::Metric;
use onlooker_testbed::remote_write::{Metadata, Sample, Series, WriteRequest, unpacked};
use prost::Message;

#[derive(Message)]
struct Metadata2 {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "3")]
    help: u32,
    #[prost(uint32, tag = "4")]
    unit: u32,
}

#[derive(Message)]
struct Series2 {
    #[prost(uint32, repeated, tag = "1")]
    labels: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata2>,
}

#[derive(Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    series: Vec<Series2>,
}

/// Series with their samples.
type All = Vec<(Pairs, Vec<(i64, f64)>)>;
/// Comparable: NaNs by their bits.
type Bits = Vec<(Pairs, Vec<(i64, u64)>)>;

fn family() -> Family {
    Family { name: "x_total".into(), metric: Metric::Counter, help: "What x is".into(), unit: "bytes".into() }
}

fn bits(all: &All, divisor: i64) -> Bits {
    let sample = |(time_ns, value): &(i64, f64)| (time_ns.div_euclid(divisor), value.to_bits());
    all.iter().map(|(pairs, samples)| (pairs.clone(), samples.iter().map(sample).collect())).collect()
}

fn encoded(protocol: Protocol, all: &All) -> Option<Body> {
    let mut encoder = Encoder::new(protocol);
    for (pairs, samples) in all {
        encoder.push(&protocol.key(pairs), &family(), samples.iter().copied());
    }
    let body = encoder.finish()?;
    assert_eq!(encoder.finish(), None);
    let is_said = |(_, value): &&(i64, f64)| protocol != Protocol::LineProtocol || value.to_bits() != STALE.to_bits();
    let said: usize = all.iter().map(|(_, samples)| samples.iter().filter(is_said).count()).sum();
    assert_eq!(body.samples + encoder.left(), said as u64);
    Some(body)
}

fn samples(of: &[Sample]) -> Vec<(i64, u64)> {
    of.iter().map(|sample| (sample.timestamp, sample.value.to_bits())).collect()
}

fn decoded_1(body: &[u8]) -> (Bits, Vec<Metadata>) {
    let request = WriteRequest::decode(&*unpacked(body)).unwrap();
    let of = |series: &Series| {
        let labels: Vec<_> = series.labels.iter().map(|label| (label.name.clone(), label.value.clone())).collect();
        assert!(labels.is_sorted_by(|one, next| one.0 < next.0), "{labels:?}");
        (labels.into_iter().collect(), samples(&series.samples))
    };
    (request.series.iter().map(of).collect(), request.metadata)
}

fn decoded_2(body: &[u8]) -> Bits {
    let Request2 { symbols, series } = Request2::decode(&*unpacked(body)).unwrap();
    assert_eq!(symbols[0], "");
    let of = |series: &Series2| {
        let text = |number: &u32| symbols[*number as usize].clone();
        let labels = series.labels.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
        let metadata = series.metadata.as_ref().unwrap();
        let said = (metadata.kind, text(&metadata.help), text(&metadata.unit));
        assert_eq!(said, (1, "What x is".to_owned(), "bytes".to_owned()));
        (labels, samples(&series.samples))
    };
    series.iter().map(of).collect()
}

/// Cuts a line at characters that no backslash stands before, and takes these away.
fn split(text: &str, at: char) -> Vec<String> {
    let (mut parts, mut rest) = (vec![String::new()], text.chars().peekable());
    while let Some(next) = rest.next() {
        if next == at {
            parts.push(String::new());
            continue;
        }
        let part = parts.last_mut().unwrap();
        part.push(next);
        if next == '\\' {
            part.extend(rest.next());
        }
    }
    parts
}

fn plain(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text.chars().peekable());
    while let Some(next) = rest.next() {
        if next == '\\' && rest.peek().is_some_and(|after| matches!(after, ',' | '=' | ' ')) {
            out.extend(rest.next());
        } else {
            out.push(next);
        }
    }
    out
}

fn decoded_lines(body: &[u8]) -> Bits {
    let mut text = String::new();
    flate2::read::GzDecoder::new(body).read_to_string(&mut text).unwrap();
    let mut all: Bits = Vec::new();
    for line in text.lines() {
        let parts = split(line, ' ');
        let [key, value, time_ns] = parts.as_slice() else { panic!("{line}") };
        let mut labels = Pairs::new();
        for (at, pair) in split(key, ',').iter().enumerate() {
            let pair = split(pair, '=');
            match pair.as_slice() {
                [name] if at == 0 => labels.insert("__name__".into(), plain(name)),
                [name, value] => labels.insert(plain(name), plain(value)),
                _ => panic!("{line}"),
            };
        }
        let value: f64 = value.strip_prefix("value=").unwrap().parse().unwrap();
        let sample = (time_ns.parse().unwrap(), value.to_bits());
        match all.last_mut().filter(|(own, _)| *own == labels) {
            Some((_, samples)) => samples.push(sample),
            None => all.push((labels, vec![sample])),
        }
    }
    all
}

/// Labels, and samples with the bits of their values.
type Input = Vec<(Vec<(String, String)>, Vec<(i64, u64)>)>;

/// Series of any texts, times and values; labels of one differ from the next one's.
fn series_of(input: &Input) -> All {
    let mut all = All::new();
    for (at, (labels, samples)) in input.iter().enumerate().filter(|(_, (_, samples))| !samples.is_empty()) {
        let labels = labels.iter().filter(|(_, value)| !value.is_empty()).enumerate();
        let mut pairs: Pairs = labels.map(|(at, (_, value))| (format!("l{at}"), value.clone())).collect();
        pairs.extend([("__name__".to_owned(), "x_total".to_owned()), ("number".to_owned(), at.to_string())]);
        all.push((pairs, samples.iter().map(|(time_ns, bits)| (*time_ns, f64::from_bits(*bits))).collect()));
    }
    all
}

#[test]
fn remote_write_decodes_to_what_it_was() {
    check!().with_type::<Input>().for_each(|input| {
        let all = series_of(input);
        let expected = bits(&all, 1_000_000);
        match encoded(Protocol::RemoteWrite1, &all) {
            Some(body) => {
                assert_eq!(decoded_1(&body.bytes).0, expected);
                let apart = body.apart();
                let each: Vec<Bits> = apart.iter().map(|body| decoded_1(&body.bytes).0).collect();
                assert!(each.iter().all(|each| each.len() == 1));
                if expected.len() > 1 {
                    assert_eq!(each.concat(), expected);
                    assert_eq!(apart.iter().map(|body| body.samples).sum::<u64>(), body.samples);
                }
            }
            None => assert!(expected.is_empty()),
        }
        match encoded(Protocol::RemoteWrite2, &all) {
            Some(body) => assert_eq!(decoded_2(&body.bytes), expected),
            None => assert!(expected.is_empty()),
        }
    });
}

#[test]
fn lines_decode_to_what_they_were() {
    check!().with_type::<Input>().for_each(|input| {
        let mut all = series_of(input);
        for (pairs, samples) in &mut all {
            // What the protocol cannot say.
            pairs.values_mut().for_each(|value| *value = value.replace(['\\', '\n', '\r'], "-"));
            samples.retain(|(_, value)| value.is_finite());
        }
        all.retain(|(_, samples)| !samples.is_empty());
        match encoded(Protocol::LineProtocol, &all) {
            Some(body) => assert_eq!(decoded_lines(&body.bytes), bits(&all, 1)),
            None => assert!(all.is_empty()),
        }
    });
}

#[test]
fn ends_and_metadata_are_sent_as_prometheus_has_them() {
    let pairs: Pairs = [("__name__", "x_total"), ("instance", "a:1")].map(|(n, v)| (n.into(), v.into())).into();
    let all: All = vec![(pairs, vec![(1_700_000_000_123_999_999, 1.5), (1_700_000_005_000_000_000, STALE)])];
    let (series, metadata) = decoded_1(&encoded(Protocol::RemoteWrite1, &all).unwrap().bytes);
    assert_eq!(series[0].1, [(1_700_000_000_123, 1.5f64.to_bits()), (1_700_000_005_000, 0x7ff0_0000_0000_0002)]);
    let [said] = metadata.as_slice() else { panic!("{metadata:?}") };
    assert_eq!((said.kind, &*said.family, &*said.help, &*said.unit), (1, "x_total", "What x is", "bytes"));
    // Of line protocol there are none.
    assert_eq!(decoded_lines(&encoded(Protocol::LineProtocol, &all).unwrap().bytes)[0].1.len(), 1);
}

#[test]
fn one_body_tells_of_a_metric_and_not_the_next_and_both_are_cut_alike() {
    let pairs: Pairs = BTreeMap::from([("__name__".to_owned(), "x_total".to_owned())]);
    let (protocol, mut encoder) = (Protocol::RemoteWrite1, Encoder::new(Protocol::RemoteWrite1));
    let mut told = || {
        encoder.push(&protocol.key(&pairs), &family(), [(0, 1.0)].into_iter());
        let bytes = encoder.bytes();
        (decoded_1(&encoder.finish().unwrap().bytes).1.len(), bytes)
    };
    let (first, next) = (told(), told());
    assert_eq!([first.0, next.0], [1, 0]);
    assert_eq!(first.1, next.1);
}

#[test]
fn lines_escape_what_has_a_meaning() {
    let pairs: Pairs =
        [("__name__", "a b,c"), ("path", "C:\\x, y=z\\"), ("two", "1\n2")].map(|(n, v)| (n.into(), v.into())).into();
    let key = Protocol::LineProtocol.key(&pairs);
    assert_eq!(std::str::from_utf8(&key).unwrap(), "a\\ b\\,c,path=C:\\x\\,\\ y\\=z/,two=1\\ 2 value=");
    let texts = [0.1, -0.0, 1e300, 5e-324, 123_456_789_012.5].map(|value| {
        let mut encoder = Encoder::new(Protocol::LineProtocol);
        encoder.push(&key, &family(), [(1, value)].into_iter());
        let body = encoder.finish().unwrap().bytes;
        decoded_lines(&body)[0].1[0].1
    });
    assert_eq!(texts, [0.1, -0.0, 1e300, 5e-324, 123_456_789_012.5].map(f64::to_bits));
}
