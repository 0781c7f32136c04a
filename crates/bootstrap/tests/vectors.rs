// SPDX-License-Identifier: Apache-2.0
//! The shared vectors of docs/format, sections `join_token` and `host_id`.

use onlooker_bootstrap::{Fingerprint, Token, host_id};
use serde_json::Value;

fn section(name: &str) -> Vec<Value> {
    let text = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/vectors.json")).unwrap();
    let vectors: Value = serde_json::from_slice(&text).unwrap();
    let cases = vectors[name].as_array().unwrap().clone();
    assert!(!cases.is_empty());
    cases
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn join_tokens() {
    let cases = section("join_token");
    for case in &cases {
        let (text, what) = (case["token"].as_str().unwrap(), &case["what"]);
        match Token::parse(text) {
            Ok(token) => {
                assert_eq!(case["valid"], true, "{what}");
                assert_eq!(
                    case["fingerprint"].as_str().map(String::from),
                    token.fingerprint.map(|f| hex(f.as_bytes()))
                );
                assert_eq!(case["secret"], hex(token.secret.as_bytes()), "{what}");
                assert_eq!(token.text(), text, "{what}");
            }
            Err(error) => {
                assert_eq!(case["valid"], false, "{what}: {error}");
                assert!(!error.to_string().contains("AECAwQF"), "no secret in a message: {error}");
            }
        }
    }
    let made = Fingerprint::of_certificate(b"certificate");
    assert_eq!(cases[0]["fingerprint"], hex(made.as_bytes()));
}

#[test]
fn host_ids() {
    for case in section("host_id") {
        for key in ["machine_id", "file"] {
            assert_eq!(host_id(case[key].as_str().unwrap()).unwrap().to_string(), case["host_id"], "{key}");
        }
    }
}
