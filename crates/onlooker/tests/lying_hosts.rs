// SPDX-License-Identifier: Apache-2.0
//! `onlooker read` against hosts that lie: it ends in time, with the right code and a message that says what is wrong.

#[path = "../../reader/tests/common/mod.rs"]
mod common;

use common::memory::{Host, INCARNATION, Region, Shared};
use common::{answer_stream, endpoint, plain_token, responder, serve};
use onlooker_bootstrap::frame;
use onlooker_region::block::Identity;
use onlooker_region::control::{Entry, RegionEntry, SchemaEntry};
use onlooker_region::guard::commit;
use onlooker_region::{Schema, SchemaId};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SHOP: &str = r#"{"name":"shop","groups":[{"kind":"plain","blocks":2,"fields":[{"name":"shop_total","metric":"counter","type":"u64"}]}]}"#;
const NODE: &str = r#"{"name":"node","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"node_up","metric":"gauge","type":"u64"}]}]}"#;

fn host() -> (Host, Region, Region) {
    let mut host = Host::new(64);
    let (shop, node) = (host.region(1, "shop", &[], SHOP), host.region(2, "node", &[], NODE));
    (host, shop, node)
}

/// What became of a reading: exit code, standard output, standard error.
fn read_at(tcp: SocketAddr, host: &Host, arguments: &[&str]) -> (i32, String, String) {
    let answer = frame::encode(&host.answer(tcp.port()).encode()).unwrap();
    let bootstrap = endpoint(None, move |_| answer.clone());
    let begin = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_onlooker"))
        .args(["read", &bootstrap.to_string(), "--timeout", "1s"])
        .args(arguments)
        .env("ONLOOKER_TOKEN", plain_token().text())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(begin.elapsed() < Duration::from_secs(15), "took {:?}", begin.elapsed());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code().unwrap(), out, err)
}

fn read(host: &Host, arguments: &[&str]) -> (i32, String, String) {
    read_at(responder(&host.memory), host, arguments)
}

fn header_lie(slot: usize, value: u64) -> (i32, String, String) {
    let (host, ..) = host();
    commit(host.control_words.block(0), Identity::first(0, INCARNATION), 1, |p| p.set(slot, value));
    read(&host, &[])
}

#[test]
fn an_honest_host_is_read() {
    let (host, ..) = host();
    let (code, out, err) = read(&host, &[]);
    assert_eq!((code, out.lines().count(), err.as_str()), (0, 3, ""));
}

#[test]
fn directories_that_cannot_be_used_are_named() {
    for ((code, out, err), part) in [
        (header_lie(0, 1), "no ONLOOKER magic"),
        (header_lie(1, 2 | 1024 << 32), "format version 2"),
        (header_lie(7, u64::MAX), "entry_blocks"),
        (header_lie(9, u64::MAX), "blocks"),
    ] {
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(part), "{err}");
    }
    let (busy, ..) = host();
    busy.control_words.set(0, 0, 3);
    let (code, _, err) = read(&busy, &[]);
    assert!(code == 1 && err.contains("control block 0: busy"), "{err}");
    let (other, ..) = host();
    commit(other.control_words.block(0), Identity::first(0, INCARNATION + 1), 1, |_| ());
    let (code, _, err) = read(&other, &[]);
    assert!(code == 1 && err.contains("bootstrap again"), "{err}");
}

#[test]
fn one_bad_region_costs_only_itself() {
    type Lie = fn(&mut Host, &Region);
    let replace = |host: &mut Host, region: &Region, change: fn(&mut RegionEntry)| {
        let mut entry = region.entry.clone();
        change(&mut entry);
        host.control.replace(region.slot, &Entry::Region(entry), 9).unwrap();
    };
    let lies: [(Lie, &str); 6] = [
        // Outside of what its key covers.
        (
            |host, shop| {
                let entry = RegionEntry { va: 1 << 50, ..shop.entry.clone() };
                host.control.replace(shop.slot, &Entry::Region(entry), 9).unwrap();
            },
            "access",
        ),
        (
            |host, shop| {
                let entry = RegionEntry { bytes: 64 << 20, ..shop.entry.clone() };
                host.control.replace(shop.slot, &Entry::Region(entry), 9).unwrap();
            },
            "its entry says 65536 blocks, its schema 2",
        ),
        (
            |host, shop| {
                let entry = RegionEntry { schema: SchemaId([9; 16]), ..shop.entry.clone() };
                host.control.replace(shop.slot, &Entry::Region(entry), 9).unwrap();
            },
            "is not in the directory",
        ),
        // The text of another schema under this id.
        (
            |host, shop| {
                let schema = Schema::parse(SHOP).unwrap();
                let id = SchemaId([7; 16]);
                host.control.hold_schema(id, "shop", &schema.canonical(), 9).unwrap();
                let entry = RegionEntry { schema: id, ..shop.entry.clone() };
                host.control.replace(shop.slot, &Entry::Region(entry), 9).unwrap();
            },
            "does not hash to its id",
        ),
        // A text that hashes to its id and is no schema.
        (
            |host, shop| {
                let text = r#"{"name":"shop","groups":[]}"#;
                let id = SchemaId::of(text);
                host.control.hold_schema(id, "shop", text, 9).unwrap();
                let entry = RegionEntry { schema: id, ..shop.entry.clone() };
                host.control.replace(shop.slot, &Entry::Region(entry), 9).unwrap();
            },
            "schema",
        ),
        // A schema's text outside of the control region.
        (
            |host, shop| {
                let id = SchemaId([8; 16]);
                let entry = SchemaEntry {
                    id,
                    va: 1 << 20,
                    rkey: 1,
                    bytes: 100,
                    name: "far".into(),
                    responders: 1,
                    created_ns: 1,
                };
                host.control.add(&Entry::Schema(entry), 9).unwrap();
                let entry = RegionEntry { schema: id, ..shop.entry.clone() };
                host.control.replace(shop.slot, &Entry::Region(entry), 9).unwrap();
            },
            "outside of the control region",
        ),
    ];
    for (lie, part) in lies {
        let (mut host, shop, _) = host();
        lie(&mut host, &shop);
        let (code, out, err) = read(&host, &[]);
        assert_eq!(code, 0, "the other region was read: {err}");
        assert!(out.contains("node_up") && !out.contains("shop_total"), "{out}");
        assert!(err.contains("region shop of pid 4321 could not be read") && err.contains(part), "{part}: {err}");
        let (code, out, _) = read(&host, &["shop_total"]);
        assert_eq!((code, out.as_str()), (1, ""), "{part}");
    }
    let (mut host, shop, _) = host();
    replace(&mut host, &shop, |entry| entry.name = "bad name".into());
    let (code, _, err) = read(&host, &[]);
    assert!(code == 0 && err.contains("is refused: name is not a metric name"), "{err}");
}

#[test]
fn torn_for_ever_and_churn_for_ever_end() {
    let (torn, _, node) = host();
    node.words.set(0, 5, 1);
    let (code, out, err) = read(&torn, &[]);
    assert!(code == 0 && out.contains("shop_total") && err.contains("1 blocks were not accepted (crc 1)"), "{err}");
    assert_eq!(read(&torn, &["node_up"]).0, 1);

    let (mut host, shop, _) = host();
    let (memory, answer) = (host.memory.clone(), host.answer(1));
    let tcp = responder(&memory);
    let Region { slot, mut entry, words } = shop;
    memory.hook(move |_, read| {
        if read.rkey == entry.rkey {
            entry.identity = Identity::first(1, entry.identity.generation + 1);
            entry.orphan = !entry.orphan;
            host.control.replace(slot, &Entry::Region(entry.clone()), 9).unwrap();
            words.set(0, 0, entry.identity.at(0).word());
        }
        None
    });
    let probe = Host::new(64);
    assert_eq!(probe.answer(1), answer, "the same place");
    let (code, out, err) = read_at(tcp, &probe, &[]);
    assert!(code == 0 && out.contains("node_up") && err.contains("identity"), "{err}");
}

/// Changes an answer's bytes; false ends the connection.
type Change = fn(&mut Vec<u8>, &mut TcpStream) -> bool;

fn liar(host: &Host, change: Change) -> SocketAddr {
    let memory = host.memory.clone();
    serve(move |stream| answer_stream(&memory, stream, change))
}

#[test]
fn streams_that_are_none_end_with_the_reason() {
    let (host, ..) = host();
    let lies: [(Change, &str); 6] = [
        (
            |bytes, _| {
                bytes[0] ^= 0xff;
                true
            },
            "answer to request",
        ),
        (
            |bytes, _| {
                bytes[15] = 0x7f;
                true
            },
            "item of",
        ),
        (
            |bytes, _| {
                bytes[8] = 200;
                true
            },
            "status 200 is unknown",
        ),
        (
            |bytes, stream| {
                let _ = stream.write_all(&bytes[..700]);
                false
            },
            "closed the connection",
        ),
        (
            |bytes, _| {
                *bytes = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
                true
            },
            "TCP read",
        ),
        (
            |bytes, stream| {
                for byte in bytes.iter() {
                    std::thread::sleep(Duration::from_millis(2));
                    if stream.write_all(&[*byte]).is_err() {
                        break;
                    }
                }
                false
            },
            "no answer in time",
        ),
    ];
    for (lie, part) in lies {
        let (code, out, err) = read_at(liar(&host, lie), &host, &[]);
        assert_eq!((code, out.as_str()), (1, ""), "{part}");
        assert!(err.contains(part), "{part}: {err}");
    }
    let nobody = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let (code, _, err) = read_at(nobody, &host, &[]);
    assert!(code == 1 && err.contains("refuses the connection") && err.contains("TCP responder"), "{err}");
}

#[test]
fn a_host_that_offers_gigabytes_is_read_up_to_the_limit() {
    let mut host = Host::new(512);
    let big = r#"{"name":"big","groups":[{"kind":"plain","blocks":65536,"fields":[{"name":"big","metric":"gauge","type":"u64"}]}]}"#;
    let region = host.region(1, "big", &[], r#"{"name":"small","groups":[{"kind":"plain","blocks":1,"fields":[{"name":"small","metric":"gauge","type":"u64"}]}]}"#);
    let schema = Schema::parse(big).unwrap();
    host.control.hold_schema(SchemaId::of(&schema.canonical()), "big", &schema.canonical(), 1).unwrap();
    // A hundred regions of 64 MiB, all of them the same memory.
    host.memory.insert(7, 0, Shared::new(65_536));
    for id in 10..110 {
        let entry = RegionEntry {
            identity: Identity::first(id, 7),
            va: 0,
            rkey: 7,
            bytes: 64 << 20,
            schema: SchemaId::of(&schema.canonical()),
            ..region.entry.clone()
        };
        host.control.add(&Entry::Region(entry), 2).unwrap();
    }
    let (code, out, err) = read(&host, &["--max-mib", "8"]);
    assert!(code == 0 && out.contains("small"), "{err}");
    assert!(err.contains("limit of 8388608 bytes") && err.contains("and 80 more regions"), "{err}");
}

#[test]
fn nothing_of_a_host_steers_the_terminal() {
    let mut host = Host::new(64);
    let schema = r#"{"name":"t","groups":[{"kind":"plain","blocks":1,"fields":[
        {"name":"x","metric":"gauge","type":"u64","unit":"\u001b[31m","help":"\u001b]0;owned\u0007","labels":{"l":"\u001b[2J"}}]}]}"#;
    host.region(1, "t", &[("r", "\u{9b}31m\n")], schema);
    for arguments in [&[][..], &["--list"], &["--regions"], &["x\u{1b}[0m"]] {
        let (_, out, err) = read(&host, arguments);
        assert!(!format!("{out}{err}").contains(|c: char| c.is_control() && c != '\n'), "{arguments:?}: {out}{err}");
        assert!(out.lines().all(|line| !line.starts_with("31m")), "{out}");
    }
}

/// What a terminal shows of `onlooker read`: a pty made by script(1).
fn read_on_a_terminal(host: &Host, arguments: &str) -> String {
    let answer = frame::encode(&host.answer(responder(&host.memory).port()).encode()).unwrap();
    let bootstrap = endpoint(None, move |_| answer.clone());
    let command = format!("{} read {bootstrap} --timeout 5s {arguments}", env!("CARGO_BIN_EXE_onlooker"));
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("ONLOOKER_TOKEN", plain_token().text())
        .stdin(Stdio::null())
        .output()
        .expect("script(1), of Debian's bsdutils");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn a_program_s_texts_do_not_steer_the_terminal() {
    let (mut host, ..) = host();
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\n\u{8}";
    host.region(7, "evil", &[("evil", hostile)], &SHOP.replace("shop_total", "evil_total"));
    for form in ["--prometheus", "--json", "", "--list", "--regions", "--regions --json", "--interval 50ms --count 2"] {
        let shown = read_on_a_terminal(&host, form);
        assert!(shown.contains("evil"), "{form}: {shown:?}");
        // The terminal's own line ends are CR LF.
        let steering = |c: char| (c.is_control() && c != '\r' && c != '\n') || c == '\u{202e}';
        assert!(!shown.replace("\r\n", "\n").contains(|c| steering(c) || c == '\r'), "{form}: {shown:?}");
    }
    // A pipe gets what the program said, within what the format escapes.
    let (_, out, _) = read(&host, &["--prometheus"]);
    assert!(out.contains("evil=\"\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\r\\n\u{8}\""), "{out:?}");
}
