// SPDX-License-Identifier: Apache-2.0
//! A program that gives up its rights after the SDK has connected: what it opens and ends later is registered and removed all the same.

mod common;

use common::{PATIENCE, Site, eventually};
use onlooker_sdk::Region;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Set in the process that gives up its rights.
const PROGRAM: &str = "ONLOOKER_TEST_PROGRAM";

#[test]
fn waking_the_thread_needs_no_rights() {
    if std::env::var_os(PROGRAM).is_some() {
        return program();
    }
    let site = Site::new();
    let agent = site.start();
    let mut reader = agent.reader();
    let mut program = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "waking_the_thread_needs_no_rights", "--nocapture"])
        .env(PROGRAM, "1")
        .env("ONLOOKER_SOCKET", site.socket())
        .stdin(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut has_late = || reader.regions().iter().any(|region| region.name == "late");
    eventually("a region opened later", || {
        assert!(program.try_wait().expect("waits").is_none(), "the program ended");
        has_late().then_some(())
    });
    drop(program.stdin.take());
    eventually("its end, while the program runs", || (!has_late()).then_some(()));
    program.kill().expect("still runs");
    program.wait().expect("ends");
}

fn program() {
    let mut builder = Region::builder("early");
    let counter = builder.counter("early_total");
    let early = builder.open().expect("opens");
    early.get(counter).inc();
    assert!(onlooker_sdk::wait(PATIENCE));
    // SAFETY: calls with plain numbers. The first makes what stands under /proc/self root's.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 0), 0);
        if libc::getuid() == 0 {
            assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
        }
    }
    // That has woken the SDK's thread.
    std::thread::sleep(Duration::from_millis(100));
    let mut builder = Region::builder("late");
    let counter = builder.counter("late_total");
    let late = builder.open().expect("opens");
    late.get(counter).inc();
    // Until the test has seen it.
    let _end = std::io::stdin().read(&mut [0]).expect("reads");
    drop(late);
    std::thread::sleep(2 * PATIENCE);
}
