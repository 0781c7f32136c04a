// SPDX-License-Identifier: Apache-2.0
//! The bootstrap client against real TLS and plain endpoints, honest and not.

mod common;

use common::memory::Host;
use common::{Identity, endpoint, plain_token, secret, serve};
use onlooker_bootstrap::{
    Code, Failure, Id, QueuePairEnd, Request, Responder, Token, VERBS, VerbsAnswer, VerbsRequest, frame,
};
use onlooker_reader::bootstrap::{Bootstrapped, bootstrap, bootstrap_with, resolve};
use onlooker_reader::{Error, Via};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

fn ask(address: SocketAddr, token: &Token, timeout: Duration) -> Result<Bootstrapped, Error> {
    bootstrap(&[address], token, "test 1", timeout)
}

const PATIENCE: Duration = Duration::from_secs(10);

fn honest(request: Option<Request>) -> Vec<u8> {
    let body = match request {
        Some(request) if request.secret == secret() && request.reader == "test 1" => {
            Host::new(16).answer(7178).encode()
        }
        _ => Failure { code: Code::Denied, message: "no\x1b[31m".into() }.encode(),
    };
    frame::encode(&body).unwrap()
}

#[test]
fn the_pinned_certificate_is_accepted_and_the_answer_is_the_agents() {
    let identity = Identity::new();
    let address = endpoint(Some(identity.server()), honest);
    let told = ask(address, &identity.token(), PATIENCE).unwrap();
    assert_eq!(told.answer, Host::new(16).answer(7178));
    assert_eq!((told.peer, told.local), (address, address.ip()), "over loopback");
    let (responder, tcp) = told.responder(Via::Tcp).unwrap();
    assert_eq!((responder.port, tcp.ip(), tcp.port()), (7178, address.ip(), 7178));
}

#[test]
fn plain_mode_needs_no_certificate() {
    let address = endpoint(None, honest);
    assert_eq!(ask(address, &plain_token(), PATIENCE).unwrap().answer.host, "test");
}

#[test]
fn another_certificate_is_refused_before_the_secret_is_sent() {
    let (mine, other) = (Identity::new(), Identity::new());
    let address = endpoint(Some(other.server()), |request| {
        assert_eq!(request, None, "the secret has reached an impostor");
        Vec::new()
    });
    match ask(address, &mine.token(), PATIENCE) {
        Err(Error::Certificate { got, expected, .. }) => {
            assert_eq!((Some(got), Some(expected)), (other.token().fingerprint, mine.token().fingerprint));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copied_certificate_without_its_key_is_refused() {
    let (mine, other) = (Identity::new(), Identity::new());
    let address = endpoint(Some(mine.with_key_of(&other).server()), honest);
    match ask(address, &mine.token(), PATIENCE) {
        Err(Error::Garbage { what, .. }) => assert!(what.contains("TLS"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_endpoint_that_closes_at_once_may_be_busy_or_closed_to_us() {
    for token in [Identity::new().token(), plain_token()] {
        let error = ask(serve(drop), &token, PATIENCE).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Closed { .. }), "{text}");
        for part in ["busy", "[bootstrap] allow", "no bootstrap port", "onlooker_agent_bootstraps_total"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn tls_and_plain_that_meet_are_told_apart() {
    let identity = Identity::new();
    let plain = endpoint(None, honest);
    assert!(matches!(
        ask(plain, &identity.token(), PATIENCE),
        Err(Error::NotTls { .. } | Error::Closed { what: "TLS handshake", .. })
    ));
    // An endpoint that answers a hello with a message, as the agent does.
    let talkative = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(&honest(None));
        let _ = stream.read(&mut [0; 1024]);
    });
    assert!(matches!(ask(talkative, &identity.token(), PATIENCE), Err(Error::NotTls { .. })));
    // A TLS endpoint answers what is no TLS with an alert.
    let alert = serve(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 2, 50]);
        let _ = stream.read(&mut [0; 1024]);
    });
    assert!(matches!(ask(alert, &plain_token(), PATIENCE), Err(Error::OnlyTls { .. })));
}

#[test]
fn a_wrong_secret_is_denied_and_its_message_cannot_steer_a_terminal() {
    let identity = Identity::new();
    let address = endpoint(Some(identity.server()), honest);
    let token = Token { secret: onlooker_bootstrap::Secret::new([1; 32]), ..identity.token() };
    let error = ask(address, &token, PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Denied { .. }), "{error:?}");
    assert!(!error.to_string().contains('\x1b') && error.to_string().contains("onlooker-agent token"), "{error}");
}

#[test]
fn each_failure_is_its_own_error() {
    let with = |body: Vec<u8>| {
        let address = endpoint(None, move |_| body.clone());
        ask(address, &plain_token(), PATIENCE).unwrap_err()
    };
    let failure = |code| frame::encode(&Failure { code, message: "x".into() }.encode()).unwrap();
    assert!(matches!(with(failure(Code::Busy)), Error::Busy { .. }));
    assert!(matches!(with(failure(Code::Version)), Error::Version { .. }));
    assert!(matches!(with(failure(Code::BadRequest)), Error::Garbage { .. }));
    assert!(matches!(with(frame::encode(br#"{"ok":true,"version":2}"#).unwrap()), Error::Version { .. }));
    assert!(matches!(with(frame::encode(b"[]").unwrap()), Error::Garbage { .. }));
    assert!(matches!(with(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), Error::Garbage { .. }));
    assert!(matches!(with(vec![9, 0, 0, 0, 1]), Error::Closed { .. }), "an early end");
    assert!(matches!(with(Vec::new()), Error::Closed { .. }));
    assert!(matches!(with(vec![0xff; 100]), Error::Garbage { .. }), "a huge length");
    let mut answer = Host::new(16).answer(1);
    answer.control.generation = 1 << 24;
    assert!(matches!(with(frame::encode(&answer.encode()).unwrap()), Error::Garbage { .. }));
}

#[test]
fn a_host_without_a_usable_responder_is_named() {
    let address = endpoint(None, |_| {
        let mut answer = Host::new(16).answer(1);
        answer.responders[0].kind = "verbs".into();
        frame::encode(&answer.encode()).unwrap()
    });
    let error = ask(address, &plain_token(), PATIENCE).unwrap().responder(Via::Tcp).unwrap_err();
    assert!(error.to_string().contains("verbs"), "{error}");
}

/// A host with an RDMA device: to who asks with an end of a queue pair it tells that one again.
fn device(request: Option<Request>, problem: Option<String>) -> Vec<u8> {
    let mut answer = Host::new(16).answer(1);
    let verbs = request.and_then(|request| request.verbs);
    let verbs = verbs.map(|VerbsRequest { end, .. }| VerbsAnswer { control_rkey: 5, end });
    answer.responders.push(Responder {
        kind: VERBS.into(),
        max_read_bytes: Some(4096),
        verbs,
        problem,
        ..Responder::default()
    });
    frame::encode(&answer.encode()).unwrap()
}

#[test]
fn a_queue_pair_is_made_for_who_asks_for_one() {
    let address = endpoint(None, |request| device(request, None));
    let told = ask(address, &plain_token(), PATIENCE).unwrap();
    let (responder, at) = told.responder(Via::Verbs).unwrap();
    assert_eq!((responder.verbs, at.ip(), at.port()), (None, address.ip(), 0));
    let end = QueuePairEnd { queue_pair: 17, packet: 3, gid: Id([9; 16]), mtu_bytes: 4096, reads_answered: 1 };
    let asked = VerbsRequest { reader_id: Id([7; 16]), end, copy: None };
    let told = bootstrap_with(&[told.peer], &plain_token(), "test 1", Some(asked), PATIENCE).unwrap();
    assert_eq!(told.responder(Via::Verbs).unwrap().0.verbs, Some(VerbsAnswer { control_rkey: 5, end }));
}

#[test]
fn a_responder_with_a_problem_is_none_and_says_why() {
    let address = endpoint(None, |request| device(request, Some("the \x1b[31mholder is away".into())));
    let told = ask(address, &plain_token(), PATIENCE).unwrap();
    let error = told.responder(Via::Verbs).unwrap_err();
    assert!(matches!(error, Error::Problem { kind: VERBS, .. }), "{error:?}");
    assert!(!error.to_string().contains('\x1b') && error.to_string().contains("holder is away"), "{error}");
    assert!(told.responder(Via::Tcp).is_ok(), "others can be used");
}

#[test]
fn slow_peers_end_at_the_deadline_however_they_drip() {
    let drip = |step_ms| {
        serve(move |mut stream| {
            for byte in [200u8, 0, 0, 0].into_iter().chain(std::iter::repeat(b' ')) {
                std::thread::sleep(Duration::from_millis(step_ms));
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
            }
        })
    };
    for (address, token) in
        [(drip(20), plain_token()), (drip(100_000), plain_token()), (drip(100_000), Identity::new().token())]
    {
        let begin = Instant::now();
        let error = ask(address, &token, Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert!(
            (Duration::from_millis(250)..Duration::from_secs(3)).contains(&begin.elapsed()),
            "{:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn nobody_there_is_refused() {
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let error = ask(closed, &plain_token(), PATIENCE).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(matches!(resolve("no-such-host.invalid", 1), Err(Error::Resolve { .. })));
    assert_eq!(resolve("127.0.0.1", 7177).unwrap(), [SocketAddr::from(([127, 0, 0, 1], 7177))]);
}
