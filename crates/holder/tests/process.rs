// SPDX-License-Identifier: Apache-2.0
//! The program itself, on a machine that need not have a device.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use onlooker_holder::{ClientError, Code, Holder, Refusal};
use onlooker_local::seqpacket;
use onlooker_testbed::ServiceManager;
use rustix::process::{Pid, Signal, kill_process};

/// Of a network for documentation (RFC 5737): no device has it.
const NOBODYS: &str = "192.0.2.1";

/// A directory with a running holder in it, which is killed at the end.
struct Running {
    child: Child,
    socket: PathBuf,
    dir: tempfile::TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(socket: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker-holder"));
    command.arg("--socket").arg(socket).env_remove("NOTIFY_SOCKET");
    command
}

/// Starts a holder and waits until it tells its service manager, which we are, that it is ready.
fn start(prepare: impl FnOnce(&Path)) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("holder.sock");
    prepare(&socket);
    let manager = ServiceManager::in_dir(dir.path());
    let child = command(&socket).env("NOTIFY_SOCKET", manager.path()).spawn().unwrap();
    let running = Running { child, socket, dir };
    assert!(manager.told().expect("it tells that it is ready").starts_with("READY=1"));
    running
}

fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (Code, String) {
    match result.unwrap_err() {
        ClientError::Refused(Refusal { code, message }) => (code, message),
        other => panic!("{other}"),
    }
}

fn failed(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.stdin(Stdio::null()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn without_a_device_hello_says_what_to_do() {
    let running = start(|_| {});
    let mut holder = Holder::connect(&running.socket).unwrap();
    let address: IpAddr = NOBODYS.parse().unwrap();
    let (code, message) = refused(holder.hello(address));
    match code {
        Code::NoLibrary => assert!(message.contains("install libibverbs1"), "{message}"),
        Code::NoDevice => assert!(message.contains("rdma link"), "{message}"),
        // There are devices, closed to us.
        Code::Device => assert!(message.contains("uverbs"), "{message}"),
        other => panic!("{other:?}: {message}"),
    }
    let status = holder.status().unwrap();
    assert_eq!((status.device, status.registrations), (None, 0));
    let (code, message) = refused(holder.end("slab-0"));
    assert!(code == Code::BadRequest && message.contains("hello"), "{message}");
    holder.release().unwrap();
}

#[test]
fn another_agent_is_told_busy_until_the_first_has_gone() {
    let running = start(|_| {});
    let mut first = Holder::connect(&running.socket).unwrap();
    first.status().unwrap();
    let (code, message) = refused(Holder::connect(&running.socket).unwrap().status());
    assert!(code == Code::Busy && message.contains(&std::process::id().to_string()), "{message}");
    drop(first);
    // A child that another test begins has the first one's socket, too, until it runs its own program.
    let status = (0..100).find_map(|_| {
        thread::sleep(Duration::from_millis(20));
        Holder::connect(&running.socket).unwrap().status().ok()
    });
    assert!(status.expect("there is room").counters.connections_refused >= 1);
}

#[test]
fn a_signal_ends_it_well_and_takes_the_socket_away() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut running = start(|_| {});
        kill_process(Pid::from_child(&running.child), signal).unwrap();
        assert_eq!(running.child.wait().unwrap().code(), Some(0), "{signal:?}");
        assert!(!running.socket.exists());
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    // The listener goes, its socket stays.
    let running = start(|socket| drop(seqpacket::listener(socket).unwrap()));
    let (code, said) = failed(&mut command(&running.socket));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("onlooker-holder: another onlooker-holder serves"), "{said}");
    let mut holder = Holder::connect(&running.socket).unwrap();
    holder.status().expect("the first goes on");
    let taken = running.dir.path().join("file");
    fs::write(&taken, "precious").unwrap();
    let (code, said) = failed(&mut command(&taken));
    assert!(code == Some(1) && said.contains("not a socket"), "{said}");
}

#[test]
fn wrong_usage_is_told_from_failure() {
    for arguments in [&["run"][..], &["--socket"], &["--sockets=/x"]] {
        let (code, said) = failed(Command::new(env!("CARGO_BIN_EXE_onlooker-holder")).args(arguments));
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.starts_with("onlooker-holder: ") && said.contains("--help"), "{said}");
    }
    for (argument, expected) in [("--help", "--socket PATH"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = Command::new(env!("CARGO_BIN_EXE_onlooker-holder")).arg(argument).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(String::from_utf8(output.stdout).unwrap().contains(expected), "{argument}");
    }
}
