// SPDX-License-Identifier: Apache-2.0
//! Responders that are overloaded, restarted, or others.

use super::*;

#[test]
fn a_restarted_agent_is_recognised() {
    let (host, ..) = shop();
    let mut reading = read_once(&host);
    host.memory.remove(CONTROL_RKEY);
    assert!(matches!(reading.read(), Err(DriveError::Read(ReadError::Gone(_)))));
    let fresh = Host::new(64);
    host.memory.insert(CONTROL_RKEY, CONTROL_VA, fresh.control_words.clone());
    let mut answer = host.answer(1);
    answer.control.generation = 6;
    reading.session = Session::new(&answer, Via::Tcp, 64, Limits::default());
    assert!(matches!(reading.read(), Err(DriveError::Read(ReadError::Gone(_)))));
}

#[test]
fn an_overloaded_responder_is_asked_again_after_pauses() {
    let (host, ..) = shop();
    host.memory.hook(|number, _| (number % 3 != 0).then_some(Refusal::Overloaded));
    let mut reading = read_once(&host);
    assert_eq!(reading.lines(), ["shop.a_total 42", "node.g 7"]);
    host.memory.hook(|_, _| Some(Refusal::Overloaded));
    assert_eq!(reading.read(), Err(DriveError::Read(ReadError::Overloaded)));
    let regions_only = |_, read: &tcp_read::Read| (read.rkey != CONTROL_RKEY).then_some(Refusal::Overloaded);
    host.memory.hook(regions_only);
    reading.read().unwrap();
    let problems: Vec<_> = reading.session.frames().filter_map(|frame| frame.problem().cloned()).collect();
    assert_eq!(
        problems,
        [Problem::Read(Outcome::Refused(Refusal::Overloaded)), Problem::Read(Outcome::Refused(Refusal::Overloaded))]
    );
}

#[test]
fn each_session_reads_what_its_own_responder_serves() {
    use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};
    let mut host = Host::new(64);
    for (id, name, responders) in [
        (1, "sampled", RESPONDER_TCP),
        (2, "computed", RESPONDER_KERNEL),
        (3, "both", RESPONDER_TCP | RESPONDER_KERNEL),
    ] {
        host.responders = responders;
        host.region(id, name, &[], GUARDED);
    }
    for (via, expected, unserved) in
        [(Via::Tcp, ["sampled.g 0", "both.g 0"], "computed"), (Via::Kernel, ["computed.g 0", "both.g 0"], "sampled")]
    {
        let mut reading = Reading::of(&host, Limits::default());
        reading.session = Session::new(&host.answer(1), via, 64, Limits::default());
        reading.read().unwrap();
        assert_eq!(reading.lines(), expected);
        let mut frames = Frames::default();
        reading.session.take(&mut frames);
        let names: Vec<&str> = frames.unserved().iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, [unserved], "who has the frames knows of the others");
        let directory = reading.session.directory();
        assert_eq!((directory.regions().count(), reading.session.via()), (3, via), "the directory has all");
        assert!(directory.regions().all(|entry| reading.session.schema(entry).is_some()), "and says what they are");
    }
}
