// SPDX-License-Identifier: Apache-2.0
//! Ranges in columns, over a real host: value by value what JSON says.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use flate2::read::GzDecoder;
use serde_json::Value;

use super::prometheus::{FORM, ask, encoded, read_host, result};

const COLUMNS: &str = "application/vnd.onlooker.columns";
const HOLE: u64 = 0x7ff0_0000_0000_0002;

/// Head and body of the answer to a form.
fn post(address: SocketAddr, path: &str, headers: &str, pairs: &[(&str, &str)]) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let form = encoded(pairs);
    // HTTP/1.0 has no chunks.
    let front = format!("POST /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n", form.len());
    write!(stream, "{front}{FORM}{headers}\r\n{form}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("the head's end");
    let body = answer.split_off(end + 4);
    (String::from_utf8(answer).unwrap(), body)
}

/// Head and columns.
fn taken(bytes: &[u8]) -> (Value, Vec<Vec<f64>>) {
    let (length, rest) = bytes.split_at(4);
    let (head, values) = rest.split_at(u32::from_le_bytes(length.try_into().unwrap()) as usize);
    let head: Value = serde_json::from_slice(head).unwrap();
    let values: Vec<f64> = values.chunks_exact(8).map(|value| f64::from_le_bytes(value.try_into().unwrap())).collect();
    let steps = head["data"]["steps"].as_u64().unwrap().try_into().unwrap();
    (head, values.chunks(steps).map(<[f64]>::to_vec).collect())
}

/// How many values, after it was made sure that both answers have the same.
fn compare(json: &Value, head: &Value, columns: &[Vec<f64>]) -> usize {
    let (data, start_ms) = (&head["data"], head["data"]["start_ms"].as_f64().unwrap());
    let (all, said) = (data["result"].as_array().unwrap(), json["data"]["result"].as_array().unwrap());
    assert_eq!((all.len(), columns.len()), (said.len(), said.len()));
    assert_eq!(data["series"].as_u64(), Some(all.len() as u64));
    assert_eq!((&head["status"], &data["resultType"]), (&json["status"], &json["data"]["resultType"]));
    assert_eq!((&head["warnings"], &head["infos"]), (&json["warnings"], &json["infos"]));
    let mut count = 0;
    for ((one, column), said) in all.iter().zip(columns).zip(said) {
        assert_eq!(one["metric"], said["metric"]);
        let steps = (0u32..).zip(column).filter(|(_, value)| value.to_bits() != HOLE);
        let steps: Vec<(f64, f64)> = steps
            .map(|(step, value)| (start_ms + f64::from(step) * data["step_ms"].as_f64().unwrap(), *value))
            .collect();
        let pairs = said["values"].as_array().unwrap();
        assert_eq!(steps.len(), pairs.len(), "{}", one["metric"]);
        for ((time_ms, value), pair) in steps.iter().zip(pairs) {
            assert!((pair[0].as_f64().unwrap() * 1e3 - time_ms).abs() < 0.01, "{pair} {time_ms}");
            let there: f64 = pair[1].as_str().unwrap().parse().unwrap();
            assert!(there.to_bits() == value.to_bits() || there.is_nan() && value.is_nan(), "{pair} {value}");
        }
        count += pairs.len();
    }
    count
}

#[test]
fn columns_have_the_values_of_json() {
    let (_agent, controller) = read_host("100ms");
    let address = controller.address();
    let newest: f64 = result(address, "timestamp(node_load1)")[0]["value"][1].as_str().unwrap().parse().unwrap();
    // What was there a second ago does not change any more; a minute ago there was nothing.
    let (start, end) = (format!("{:.3}", newest - 61.0), format!("{:.3}", newest - 1.0));
    let accept = format!("Accept: {COLUMNS}, application/json\r\n");
    for (query, least) in [
        (r#"{instance="a", __name__=~"node_(load1|load5|memory_.*|network_.*_total)"}"#, 20),
        ("rate(node_cpu_seconds_total[500ms])", 1),
        ("node_load1 / 0", 1),
        ("node_load1 * NaN", 1),
        ("node_load1 < 0", 0),
        ("time()", 601),
        // With a warning.
        ("quantile(2, node_load1)", 1),
    ] {
        for limit in ["0", "2"] {
            let pairs = [("query", query), ("start", &start), ("end", &end), ("step", "0.1"), ("limit", limit)];
            let json = ask(address, "query_range", &pairs);
            let (front, bytes) = post(address, "query_range", &accept, &pairs);
            assert!(front.contains("200 OK") && front.contains(&format!("content-type: {COLUMNS}\r\n")), "{front}");
            assert!(front.contains("vary: accept\r\n"), "{front}");
            let (head, columns) = taken(&bytes);
            assert_eq!(head["data"]["steps"], 601);
            let count = compare(&json, &head, &columns);
            assert!(count >= least, "{query}: {count}");
            // Packed the same.
            let (front, packed) = post(address, "query_range", &format!("{accept}Accept-Encoding: gzip\r\n"), &pairs);
            if bytes.len() > 1024 {
                assert!(front.contains("content-encoding: gzip") && front.contains(COLUMNS), "{front}");
                assert!(front.contains("vary: accept\r\n") && front.contains("vary: accept-encoding"), "{front}");
                let mut unpacked = Vec::new();
                GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
                assert!(unpacked == bytes, "{query}");
            } else {
                assert_eq!(packed, bytes, "{query}");
            }
        }
    }
}

#[test]
fn everything_else_is_json_as_ever() {
    let (_agent, controller) = read_host("100ms");
    let address = controller.address();
    let columns = format!("Accept: {COLUMNS}\r\n");
    let range = [("start", "1"), ("end", "3"), ("step", "1")];
    let of = |path, headers: &str, query, pairs: &[(&'static str, &'static str)]| {
        let (front, body) = post(address, path, headers, &[&[("query", query)][..], pairs].concat());
        assert!(front.contains("content-type: application/json\r\n"), "{front}");
        (front, serde_json::from_slice::<Value>(&body).unwrap())
    };
    // Who does not take columns.
    for headers in ["", "Accept: */*\r\n", &format!("Accept: {COLUMNS};q=0, application/json\r\n")] {
        let (front, said) = of("query_range", headers, "1", &range);
        assert_eq!(said["data"]["result"][0]["values"][2][1], "1", "{said}");
        assert!(front.contains("vary: accept\r\n"), "{front}");
    }
    // One time.
    let (front, said) = of("query", &columns, "1", &[("time", "1")]);
    assert_eq!(said["data"]["result"][1], "1");
    assert!(!front.contains("vary"), "{front}");
    // What is refused.
    for (query, kind) in [("1+", "bad_data"), ("node_load1[1m]", "bad_data"), ("\"text\"", "bad_data")] {
        let (front, said) = of("query_range", &columns, query, &range);
        assert!(front.contains("400 Bad Request") && said["errorType"] == kind, "{front} {said}");
    }
}
