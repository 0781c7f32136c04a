// SPDX-License-Identifier: Apache-2.0
//! `ONLOOKER_DISABLE=1`: everything works, nothing is published, no thread runs.

mod common;

use onlooker_sdk::{Region, State};
use std::time::Duration;

#[test]
fn disabled_means_no_thread() {
    common::use_socket("/nonexistent/agent.sock".as_ref());
    // SAFETY: as in `use_socket`.
    unsafe { std::env::set_var("ONLOOKER_DISABLE", "1") };
    let mut builder = Region::builder("disabled");
    let counter = builder.counter("c_total");
    let region = builder.open().expect("opens");
    let counter = region.get(counter);
    counter.add(3);
    onlooker_sdk::start();
    assert!(!onlooker_sdk::wait(Duration::from_millis(50)));
    let status = onlooker_sdk::status();
    assert_eq!((status.state, status.regions, status.errors, counter.value()), (State::Disabled, 1, 0, 3));
    let names = std::fs::read_dir("/proc/self/task").expect("reads").map(|task| {
        std::fs::read_to_string(task.expect("a task").path().join("comm")).expect("reads").trim().to_owned()
    });
    assert!(names.into_iter().all(|name| name != "onlooker"));
    drop((region, counter));
    assert_eq!(onlooker_sdk::status().regions, 0);
}
