// SPDX-License-Identifier: Apache-2.0
//! Whatever sits behind the socket, the program goes on: its values stay right, the error says what was wrong.

mod common;

use common::{PATIENCE, eventually, use_socket};
use onlooker_sdk::{Region, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept, bind, listen, recv, sendmsg, socket_with,
};
use serde_json::{Value, json};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What the peer answers to `create` after a good `hello`.
enum Script {
    /// These bytes, with these descriptors.
    Answer(Vec<u8>, Vec<OwnedFd>),
    /// Closes.
    Close,
}

fn slab(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("slab", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&fd, bytes).expect("grows");
    fcntl_add_seals(&fd, seals).expect("seals");
    fd
}

fn fixed() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW
}

fn region(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut answer = json!({"ok": true, "region": {"id": 17, "generation": 5, "offset": 4096, "bytes": 1024,
        "mapped_bytes": 4096, "slab_bytes": 65536, "resumed": false}});
    change(&mut answer);
    answer.to_string().into_bytes()
}

fn send(socket: &OwnedFd, packet: &[u8], fds: &[OwnedFd]) {
    let fds: Vec<BorrowedFd> = fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    }
    // The program may have closed the connection already.
    let _sent = sendmsg(socket, &[IoSlice::new(packet)], &mut control, SendFlags::NOSIGNAL);
}

/// Receives one packet; `None` at the end.
fn receive(socket: &OwnedFd) -> Option<Value> {
    let mut buffer = vec![0; 131_072];
    let (bytes, _) = recv(socket, &mut buffer[..], RecvFlags::empty()).ok()?;
    (bytes > 0).then(|| serde_json::from_slice(&buffer[..bytes]).expect("JSON"))
}

fn listener(path: &Path) -> OwnedFd {
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
    bind(&fd, &SocketAddrUnix::new(path).expect("an address")).expect("binds");
    listen(&fd, 8).expect("listens");
    fd
}

/// The program's next connection. After so many that ended soon it is in no hurry: a change of the socket's mode makes it look.
fn accepted(listener: &OwnedFd) -> OwnedFd {
    let path = PathBuf::from(std::env::var_os("ONLOOKER_SOCKET").expect("set"));
    eventually("a connection", || {
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        if poll(&mut ready, Some(&wait)).expect("polls") > 0 {
            return Some(accept(listener).expect("accepts"));
        }
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("sets");
        None
    })
}

fn greeted(listener: &OwnedFd) -> OwnedFd {
    let socket = accepted(listener);
    assert_eq!(receive(&socket).expect("hello")["op"], "hello");
    send(&socket, br#"{"ok":true,"version":1,"agent":"test","socket_uid":0,"a_later_key":[1]}"#, &[]);
    socket
}

#[test]
fn the_program_goes_on_whatever_the_agent_answers() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("agent.sock");
    use_socket(&path);
    let listener = listener(&path);

    let mut builder = Region::builder("faults");
    let counter = builder.counter("c_total");
    let shop = builder.open().expect("opens");
    let counter = shop.get(counter);
    counter.add(41);
    counter.inc();

    // hello first
    let hellos: [(&[u8], &str); 4] = [
        (br#"{"ok":false,"error":"version","message":"too old"}"#, "refused `hello`: version: too old"),
        (br#"{"ok":true,"version":2}"#, "not 1"),
        (b"\xff\x00garbage", "`hello` is not one"),
        (br#"[]"#, "`hello` is not one"),
    ];
    for (answer, expected) in hellos {
        let socket = accepted(&listener);
        assert_eq!(receive(&socket).expect("hello")["version"], 1);
        send(&socket, answer, &[]);
        says(expected);
    }

    let good = || slab(65536, fixed());
    let answer = |bytes: Vec<u8>, fds: Vec<OwnedFd>| Script::Answer(bytes, fds);
    let scripts = [
        (Script::Close, "closed the connection"),
        (answer(b"{}".to_vec(), vec![]), "`create` is not one"),
        (answer(vec![b' '; 20_000], vec![]), "longer than"),
        (answer(region(|_| ()), vec![]), "not one descriptor"),
        (answer(region(|_| ()), vec![good(), good()]), "not one descriptor"),
        (answer(region(|a| a["region"]["id"] = json!(0)), vec![good()]), "out of range"),
        (answer(region(|a| a["region"]["id"] = json!(1 << 24)), vec![good()]), "out of range"),
        (answer(region(|a| a["region"]["generation"] = json!(0)), vec![good()]), "out of range"),
        (answer(region(|a| a["region"]["generation"] = json!(-1)), vec![good()]), "`create` is not one"),
        (answer(region(|a| a["region"]["bytes"] = json!(2048)), vec![good()]), "another size"),
        (answer(region(|a| a["region"]["mapped_bytes"] = json!(1024)), vec![good()]), "another size"),
        (answer(region(|a| a["region"] = json!(null)), vec![good()]), "no `region`"),
        (answer(region(|a| a["region"]["offset"] = json!(100)), vec![good()]), "not on a boundary"),
        (answer(region(|a| a["region"]["offset"] = json!(65536)), vec![good()]), "outside of its slab"),
        (answer(region(|a| a["region"]["offset"] = json!(u64::MAX - 4095)), vec![good()]), "outside of its slab"),
        (answer(region(|_| ()), vec![slab(65536, SealFlags::SHRINK)]), "neither a memfd sealed"),
        (answer(region(|_| ()), vec![std::fs::File::open("/proc/self/exe").expect("opens").into()]), "neither a memfd"),
    ];
    for (script, expected) in scripts {
        let socket = greeted(&listener);
        assert_eq!(receive(&socket).expect("create")["name"], "faults");
        match script {
            Script::Answer(bytes, fds) => send(&socket, &bytes, &fds),
            Script::Close => rustix::net::shutdown(&socket, rustix::net::Shutdown::Both).expect("shuts down"),
        }
        // A range that cannot be used is given back.
        if expected.contains("boundary") || expected.contains("outside") || expected.contains("neither") {
            assert_eq!(receive(&socket).expect("remove"), json!({"op": "remove", "region": 17}));
        }
        says(expected);
        drop(socket);
        counter.inc();
        assert!(!shop.is_published());
    }

    // Refusals leave the connection in place.
    let socket = greeted(&listener);
    receive(&socket).expect("create");
    send(&socket, br#"{"ok":false,"error":"duplicate","message":"still there"}"#, &[]);
    says("duplicate: still there");
    assert_eq!(receive(&socket).expect("create again")["op"], "create");
    assert_eq!(onlooker_sdk::status().state, State::Connected);

    // And a good answer is used after all that.
    let memory = good();
    send(&socket, &region(|_| ()), &[memory.try_clone().expect("a descriptor")]);
    assert_eq!(receive(&socket).expect("publish"), json!({"op": "publish", "region": 17}));
    send(&socket, br#"{"ok":true}"#, &[]);
    assert!(onlooker_sdk::wait(PATIENCE));
    assert!(shop.is_published());
    let word = |index: u64| {
        let mut bytes = [0; 8];
        rustix::io::pread(&memory, &mut bytes, 4096 + index * 8).expect("reads");
        u64::from_le_bytes(bytes)
    };
    assert_eq!((word(0), word(1)), (17 << 16 | 5 << 40, 42 + 17));
    counter.inc();
    assert_eq!((word(1), counter.value()), (60, 60));

    // What comes unasked ends the connection; the region resumes where it is.
    send(&socket, b"{}", &[]);
    let socket = greeted(&listener);
    receive(&socket).expect("create");
    let switches = onlooker_sdk::status().switches;
    send(&socket, &region(|a| a["region"]["resumed"] = json!(true)), &[memory.try_clone().expect("a descriptor")]);
    assert!(onlooker_sdk::wait(PATIENCE));
    counter.inc();
    assert_eq!((word(1), onlooker_sdk::status().switches), (61, switches));

    // The same range as a new one: the values survive.
    drop(socket);
    let mut socket = greeted(&listener);
    receive(&socket).expect("create");
    let renewed = region(|a| a["region"]["id"] = json!(18));
    send(&socket, &renewed, &[memory.try_clone().expect("a descriptor")]);
    assert_eq!(receive(&socket).expect("publish"), json!({"op": "publish", "region": 18}));
    send(&socket, br#"{"ok":true}"#, &[]);
    assert!(onlooker_sdk::wait(PATIENCE));
    counter.inc();
    assert_eq!((word(0), word(1)), (18 << 16 | 5 << 40, 62));

    // Neither a refusal nor an answer that cannot be used leaves the region in the range of the connection before.
    for answer in
        [br#"{"ok":false,"error":"denied","message":"no"}"#.to_vec(), region(|a| a["region"]["offset"] = json!(65536))]
    {
        drop(socket);
        socket = greeted(&listener);
        receive(&socket).expect("create");
        let good = answer.windows(9).any(|part| part == b"\"ok\":true");
        let fds: Vec<OwnedFd> = good.then(|| memory.try_clone().expect("a descriptor")).into_iter().collect();
        send(&socket, &answer, &fds);
        if good {
            assert_eq!(receive(&socket).expect("remove")["op"], "remove");
        }
        says(if good { "outside of its slab" } else { "denied: no" });
        eventually("a retreat", || (onlooker_sdk::status().refused == 1).then_some(()));
        let (before, value) = (word(1), counter.value());
        counter.inc();
        assert_eq!((word(1), counter.value()), (before, value + 1));
        counter.add(u64::MAX); // back, for the sums below
        drop(socket);
        // And in place again.
        socket = greeted(&listener);
        receive(&socket).expect("create");
        send(&socket, &region(|a| a["region"]["id"] = json!(18)), &[memory.try_clone().expect("a descriptor")]);
        assert_eq!(receive(&socket).expect("publish")["op"], "publish");
        send(&socket, br#"{"ok":true}"#, &[]);
        assert!(onlooker_sdk::wait(PATIENCE));
    }

    // A BPF array: what a slab of the kernel responder is.
    drop(socket);
    let socket = greeted(&listener);
    receive(&socket).expect("create");
    match bpf_array(64) {
        Ok(array) => {
            send(
                &socket,
                &region(|a| a["region"]["offset"] = json!(65536)),
                &[array.try_clone().expect("a descriptor")],
            );
            assert_eq!(
                receive(&socket).expect("remove")["op"],
                "remove",
                "the kernel maps nothing outside of the array"
            );
            says("Invalid argument");
            drop(socket);
            let socket = greeted(&listener);
            receive(&socket).expect("create");
            send(&socket, &region(|_| ()), &[array.try_clone().expect("a descriptor")]);
            assert_eq!(receive(&socket).expect("publish")["op"], "publish");
            send(&socket, br#"{"ok":true}"#, &[]);
            assert!(onlooker_sdk::wait(PATIENCE));
            assert_eq!(bpf_word(&array, 4, 1), 62);
            counter.inc();
            assert_eq!((bpf_word(&array, 4, 0), bpf_word(&array, 4, 1)), (17 << 16 | 5 << 40, 63));
        }
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "only rights may be missing: {error}");
            drop(socket);
            counter.inc();
        }
    }

    // None of the SDK's descriptors is the program's: a daemon that closes all it finds does no harm, a fork inherits nothing.
    let socket = greeted(&listener);
    receive(&socket).expect("create");
    send(&socket, &region(|a| a["region"]["id"] = json!(19)), &[good()]);
    assert_eq!(receive(&socket).expect("publish"), json!({"op": "publish", "region": 19}));
    send(&socket, br#"{"ok":true}"#, &[]);
    assert!(onlooker_sdk::wait(PATIENCE));
    assert_eq!(counter.value(), 63);
    let (sdk, program) = (descriptors(true), descriptors(false));
    assert_eq!(sdk.iter().filter(|link| link.starts_with("socket:")).count(), 1, "{sdk:?}");
    assert_eq!(sdk.len(), 6, "standard streams, the connection, a pipe: {sdk:?}");
    assert!(sdk.iter().filter(|link| *link != "/dev/null").all(|link| !program.contains(link)), "{sdk:?} {program:?}");

    // An ended region is removed.
    drop((shop, counter));
    assert_eq!(receive(&socket).expect("remove"), json!({"op": "remove", "region": 19}));
}

/// What the descriptors of the SDK's thread, or of this one, stand for.
fn descriptors(of_the_sdk: bool) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("reads").map(|task| task.expect("a task").path());
    let is_the_sdk = |task: &std::path::PathBuf| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "onlooker")
    };
    let task =
        if of_the_sdk { tasks.into_iter().find(is_the_sdk).expect("a thread") } else { "/proc/thread-self".into() };
    let links = std::fs::read_dir(task.join("fd")).expect("reads");
    links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok()?.to_str().map(Into::into)).collect()
}

/// bpf(2) with the first bytes of its attributes.
fn bpf(command: i64, attributes: &mut [u64]) -> std::io::Result<i64> {
    // SAFETY: the attributes are as long as is said, and what they point at outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(attributes)) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

/// A mmapable array of blocks.
fn bpf_array(blocks: u64) -> std::io::Result<OwnedFd> {
    let (array, key_bytes, block_bytes, mmapable) = (2, 4 << 32, 1024, 1 << 10);
    let fd = bpf(0, &mut [array | key_bytes, block_bytes | blocks << 32, mmapable])?;
    let fd = i32::try_from(fd).expect("a descriptor");
    // SAFETY: the call has just made it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) })
}

/// Word `word` of block `block`.
fn bpf_word(array: &OwnedFd, block: u32, word: usize) -> u64 {
    let mut value = [0u64; 128];
    let fd = u64::try_from(std::os::fd::AsRawFd::as_raw_fd(array)).expect("positive");
    bpf(1, &mut [fd, std::ptr::from_ref(&block) as u64, value.as_mut_ptr() as u64, 0]).expect("looks up");
    value[word]
}

fn says(expected: &str) {
    eventually(expected, || onlooker_sdk::status().error.filter(|error| error.contains(expected)).map(|_| ()));
}
