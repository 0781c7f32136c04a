// SPDX-License-Identifier: Apache-2.0
//! Standard error that nobody reads holds nobody up, however much there is to say.

mod common;

use onlooker_sdk::Region;
use rustix::pipe::{PipeFlags, pipe_with};
use std::time::Duration;

#[test]
fn nobody_waits_for_a_full_standard_error() {
    common::use_socket("/nonexistent/agent.sock".as_ref());
    // SAFETY: as in `use_socket`.
    unsafe { std::env::set_var("ONLOOKER_DEBUG", "1") };
    let (reading, writing) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
    while rustix::io::write(&writing, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writing, false).expect("blocks from here on");
    let normal = rustix::io::dup(std::io::stderr()).expect("a descriptor");
    rustix::stdio::dup2_stderr(&writing).expect("in place");
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut builder = Region::builder("stderr");
        let counter = builder.counter("c_total");
        let region = builder.open().expect("opens");
        region.get(counter).inc();
        while onlooker_sdk::status().errors < 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        done.send(()).expect("somebody waits");
    });
    let in_time = finished.recv_timeout(Duration::from_secs(10));
    rustix::stdio::dup2_stderr(&normal).expect("in place");
    drop(reading);
    in_time.expect("the SDK waits for standard error while it holds its lock");
}
