// SPDX-License-Identifier: Apache-2.0
//! Whoever reads by a queue pair of the host's device tells the host when it is not needed any more, however the reading ends. The host is played here: it has
//! queue pairs for everybody and answers no READ.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use onlooker_bootstrap::{
    Answer, Control, Goodbye, Id, QueuePairEnd, Request, Responder, Secret, Token, VERBS, VerbsAnswer, frame,
};
use onlooker_testbed::{Namespace, binary, is_root};

/// What it was asked for, in order.
enum Asked {
    Pair(Goodbye),
    Parting(Goodbye),
}

fn request(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        match frame::decode(&bytes).unwrap() {
            frame::Decoded::Message { body, .. } => return Some(Request::decode(body).unwrap()),
            frame::Decoded::Need { missing_bytes } => {
                let before = bytes.len();
                bytes.resize(before + missing_bytes, 0);
                stream.read_exact(&mut bytes[before..]).ok()?;
            }
        }
    }
}

/// With a queue pair where one is asked for.
fn answer(request: &Request, local: IpAddr) -> Answer {
    let IpAddr::V4(local) = local else { panic!("IPv4 is spoken here") };
    let gid = Id(local.to_ipv6_mapped().octets());
    let end = QueuePairEnd { queue_pair: 17, packet: 7, gid, mtu_bytes: 1024, reads_answered: 16 };
    let verbs = request.verbs.map(|_| VerbsAnswer { control_rkey: 5, end });
    Answer {
        agent: "0.1.0".into(),
        host: "played".into(),
        host_id: Id([1; 16]),
        boot_id: Id([2; 16]),
        boot_clock_ns: 1,
        wall_clock_ns: 2,
        control: Control { rkey: 3, va: 4096, bytes: 65_536, generation: 5 },
        max_read_bytes: 65_536,
        responders: vec![Responder { kind: VERBS.into(), verbs, ..Responder::default() }],
    }
}

fn serve(listener: TcpListener) -> Receiver<Asked> {
    let (tell, asked) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(request) = request(&mut stream) else { continue };
            let pair =
                request.verbs.map(|verbs| Goodbye { reader_id: verbs.reader_id, queue_pair: verbs.end.queue_pair });
            for asked in pair.map(Asked::Pair).into_iter().chain(request.goodbye.map(Asked::Parting)) {
                if tell.send(asked).is_err() {
                    return;
                }
            }
            let answer = answer(&request, stream.local_addr().unwrap().ip());
            let _ = stream.write_all(&frame::encode(&answer.encode()).unwrap());
        }
    });
    asked
}

#[test]
fn read_and_top_end_their_queue_pairs() {
    if !is_root("a packet socket in a namespace") {
        return;
    }
    let namespace = Namespace::new();
    let listener = TcpListener::bind((namespace.outside(), 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = serve(listener);
    let token = tempfile::NamedTempFile::new().unwrap();
    let secret = Token { fingerprint: None, secret: Secret::new([7; 32]) };
    std::fs::write(token.path(), secret.text()).unwrap();
    for command in [["read"].as_slice(), &["top", "--once"]] {
        let mut reader = namespace.command(binary("onlooker", "onlooker"));
        reader.args(command).arg(&address).arg("--token-file").arg(token.path());
        let output = reader.args(["--via", "verbs", "--by", "soft", "--timeout", "300ms"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{command:?}: no READ is answered");
        // Each was answered before the reader ended.
        let (mut pairs, mut parted) = (Vec::new(), Vec::new());
        for asked in asked.try_iter() {
            match asked {
                Asked::Pair(pair) => pairs.push(pair),
                Asked::Parting(goodbye) => parted.push(goodbye),
            }
        }
        assert!(!pairs.is_empty(), "{command:?}: {said}");
        assert_eq!(parted, pairs, "{command:?}: {said}");
    }
}
