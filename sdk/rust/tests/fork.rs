// SPDX-License-Identifier: Apache-2.0
//! Forks: a child has its own copies at the same addresses, published or not, and the parent's regions never feel it.

mod common;

use common::{Agent, PATIENCE, Reader, Site, eventually, use_socket};
use onlooker_sdk::{Counter, Fork, Region, State, Text, follow_fork};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

onlooker_sdk::globals! {
    /// Globals of the test.
    pub static GLOBALS: Globals = "globals" {
        total: Counter = "g_total";
    }
}

/// A forked child that does `work`, reports a byte, and ends when it is told to.
struct Forked {
    pid: Pid,
    /// Closed to end the child.
    leash: Option<OwnedFd>,
}

impl Forked {
    fn new(work: impl FnOnce() -> bool) -> Self {
        let (said, say) = rustix::pipe::pipe().expect("a pipe");
        let (end, leash) = rustix::pipe::pipe().expect("a pipe");
        // SAFETY: the child only uses what the SDK's handlers have put in order, a pipe, and _exit; it does not return from here.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            drop((leash, said));
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(false);
            let _told = rustix::io::write(&say, &[u8::from(fine)]);
            // Blocks until the parent closes its end.
            let _closed = rustix::io::read(&end, &mut [0; 1]);
            // SAFETY: ends the process, without destructors that belong to the parent.
            unsafe { libc::_exit(0) };
        }
        drop((say, end));
        let mut fine = [0];
        assert_eq!(rustix::io::read(&said, &mut fine).expect("reads"), 1, "the child died");
        assert_eq!(fine[0], 1, "the child found something wrong");
        Self { pid: Pid::from_raw(pid).expect("not 0"), leash: Some(leash) }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        drop(self.leash.take());
        waitpid(Some(self.pid), WaitOptions::empty()).expect("ends");
    }
}

fn of_process(reader: &mut Reader, pid: u32, name: &str) -> Option<std::collections::BTreeMap<String, f64>> {
    let region = reader.regions().into_iter().find(|region| region.name == name && region.pid == pid)?;
    Some(reader.values(&region))
}

#[test]
#[allow(clippy::too_many_lines, reason = "one process, one story")]
fn children_have_copies_of_their_own() {
    let site = Site::new();
    use_socket(&site.socket());
    let agent: Agent = site.start();
    onlooker_sdk::start();
    let mut builder = Region::builder("forked");
    let total = builder.counter("total");
    let level = builder.gauge::<u64>("level");
    let (pair, (left, right)) = builder.guarded(|g| (g.counter::<u64>("left_total"), g.counter::<u64>("right_total")));
    let (rows, hits) = builder.table::<(Text<8>,), _>(["name"], 10, |t| t.counter::<u64>("hits_total"));
    let region = builder.open().expect("opens");
    let (total, level, pair, rows) = (region.get(total), region.get(level), region.get(pair), region.get(rows));
    total.add(10);
    level.set(5);
    GLOBALS.total.add(100);
    rows.upsert(("a",), |row| row.set(hits, 1)).expect("room");
    assert!(onlooker_sdk::wait(PATIENCE));
    let mut reader = agent.reader();

    // Detached by default. Another thread commits all the while: the child finds no lock taken and no commit half done.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                pair.commit(|pair| {
                    pair.add(left, 1);
                    pair.add(right, 1);
                });
            }
        });
        for _ in 0..50 {
            let child = Forked::new(|| {
                total.add(1000);
                GLOBALS.total.add(1000);
                level.set(6);
                let (l, r) = pair.commit(|pair| {
                    pair.add(left, 1_000_000);
                    pair.add(right, 1_000_000);
                    (pair.get(left), pair.get(right))
                });
                let row = rows.upsert(("a",), |row| {
                    row.add(hits, 7);
                    row.get(hits)
                });
                let status = onlooker_sdk::status();
                l == r
                    && (total.value(), GLOBALS.total.value(), level.value()) == (1010, 1100, 6)
                    && row == Ok(8)
                    && (status.state, status.published) == (State::Detached, 0)
            });
            drop(child);
        }
        stop.store(true, Relaxed);
    });
    let pair_now = pair.commit(|pair| (pair.get(left), pair.get(right)));
    assert!(pair_now.0 == pair_now.1 && pair_now.0 < 1_000_000_000);
    assert_eq!((total.value(), GLOBALS.total.value(), level.value()), (10, 100, 5));
    let values = of_process(&mut reader, std::process::id(), "forked").expect("published");
    assert_eq!((values["total{}"], values["hits_total{name=a}"]), (10.0, 1.0));
    assert_eq!(onlooker_sdk::status().state, State::Connected, "the parent's connection does not feel its children");

    // A child that keeps publishing, and one that begins afresh.
    for (mode, expected, globals) in [(Fork::Keep, 11.0, 101.0), (Fork::Fresh, 1.0, 1.0)] {
        follow_fork(mode);
        let child = Forked::new(|| {
            total.inc();
            GLOBALS.total.inc();
            onlooker_sdk::wait(PATIENCE)
        });
        let pid = u32::try_from(child.pid.as_raw_nonzero().get()).expect("positive");
        let values = of_process(&mut reader, pid, "forked").expect("the child is published");
        assert_eq!((values["total{}"], values["level{}"], values["hits_total{name=a}"]), (expected, 5.0, 1.0));
        assert_eq!(of_process(&mut reader, pid, "globals").expect("published")["g_total{}"], globals);
        let parent = of_process(&mut reader, std::process::id(), "forked").expect("published");
        assert_eq!(parent["total{}"], 10.0);
        drop(child);
        eventually("the child's regions end", || of_process(&mut reader, pid, "forked").is_none().then_some(()));
    }

    // A detached child that wants to, after all.
    follow_fork(Fork::Detach);
    let child = Forked::new(|| {
        let before = onlooker_sdk::status().state;
        follow_fork(Fork::Keep);
        before == State::Detached && onlooker_sdk::wait(PATIENCE)
    });
    drop(child);

    // Within a commit: it ends in both.
    let mut child = None;
    let committed = pair.commit(|pair| {
        pair.set(left, 77);
        child = Some(Forked::new(|| true));
        pair.get(left)
    });
    drop(child);
    assert_eq!(committed, 77);
    assert_eq!(of_process(&mut reader, std::process::id(), "forked").expect("published")["left_total{}"], 77.0);

    // Nothing of the SDK is inherited, and no copy is left open.
    let descriptors = |pid: u32, kind: &str| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("reads");
        let links = links.filter_map(|entry| std::fs::read_link(entry.expect("an entry").path()).ok());
        links.filter(|link| link.to_string_lossy().contains(kind)).count()
    };
    let child = Forked::new(|| true);
    let pid = u32::try_from(child.pid.as_raw_nonzero().get()).expect("positive");
    let me = std::process::id();
    assert_eq!((descriptors(me, "socket:"), descriptors(pid, "socket:")), (1, 1), "the reader's");
    assert_eq!((descriptors(me, "memfd"), descriptors(pid, "memfd")), (0, 0));
}
