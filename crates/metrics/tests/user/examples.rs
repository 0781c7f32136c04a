// SPDX-License-Identifier: Apache-2.0
//! The examples of docs/user-collectors.md, as they are shipped.

use onlooker_testbed::try_often;

use crate::reading::{BUDGET, Files, Served, between, check_one, file, sum};
use crate::support::SIDES;

const TABLE: &str = include_str!("../../../../examples/collectors/tcp.toml");
const OBJECT_TOML: &str = include_str!("../../../../examples/collectors/run_queue.toml");
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/example_run_queue.bpf.o"));

#[test]
fn the_table_tells_what_procfs_tells() {
    let files = Files::new();
    let served = Served::new(check_one(files.put("tcp.toml", TABLE), BUDGET).unwrap());
    assert_eq!((served.checked.region.as_str(), served.checked.schema.blocks()), ("user_tcp", 1));
    let pgfault = || {
        let text = file("/proc/vmstat");
        let line = text.lines().find(|line| line.starts_with("pgfault ")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    let rmem = file("/proc/sys/net/ipv4/tcp_rmem");
    let most: f64 = rmem.split_whitespace().nth(2).unwrap().parse().unwrap();
    for side in SIDES {
        try_often("page faults", || {
            let before = pgfault();
            let values = served.read(side);
            assert!((values["example_tcp_receive_buffer_bytes{limit=max}"] - most).abs() < 0.5, "{values:?}");
            assert!(
                values["example_pids{}"] >= 2.0 && sum(&values, "example_tcp_active_opens_total") >= 0.0,
                "{values:?}"
            );
            between(sum(&values, "example_page_faults_total"), before, pgfault())
        });
    }
}

#[test]
fn the_object_sees_a_busy_machine() {
    let files = Files::new();
    files.put("run_queue.bpf.o", OBJECT);
    let served = Served::new(check_one(files.put("run_queue.toml", OBJECT_TOML), BUDGET).unwrap());
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/present").unwrap();
    let last: f64 = cpus.trim().rsplit(['-', ',']).next().unwrap().parse().unwrap();
    for side in SIDES {
        let values = served.read(side);
        // This test runs.
        assert!(values["example_run_queue_longest{}"] >= 1.0, "{values:?}");
        assert!((sum(&values, "example_cpus") - (last + 1.0)).abs() < 0.5, "{values:?}");
        assert!(values["example_cpus{state=idle}"] <= last, "{values:?}");
    }
}
