// SPDX-License-Identifier: Apache-2.0
//! Group vmstat.

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::{SIDES, Side};

const EVENTS: [&str; 7] = ["pgpgin", "pgpgout", "pswpin", "pswpout", "pgfault", "pgmajfault", "oom_kill"];

fn vmstat(event: &str) -> f64 {
    let text = file("/proc/vmstat");
    let line = text.lines().find(|line| line.split(' ').next() == Some(event));
    line.unwrap_or_else(|| panic!("/proc/vmstat has no {event}")).split(' ').nth(1).unwrap().parse().unwrap()
}

fn sum(collecting: &Collecting, event: &str, side: Side) -> f64 {
    let prefix = format!("node_vmstat_{event}{{cpu=");
    let values = collecting.read(Group::VMSTAT, side);
    values.iter().filter(|(series, _)| series.starts_with(&prefix)).map(|(_, value)| value).sum()
}

#[test]
fn events_add_up_to_those_of_proc_vmstat() {
    let collecting = Collecting::new(&[Group::VMSTAT]);
    for side in SIDES {
        for event in EVENTS {
            try_often(event, || {
                let before = vmstat(event);
                // procfs halves what is paged in and out, and drops the rest.
                between(sum(&collecting, event, side), before, vmstat(event), 0.5)
            });
        }
    }
}

/// Minor faults of this thread.
fn own_faults() -> f64 {
    let text = file("/proc/thread-self/stat");
    let after_name = text.rsplit_once(')').unwrap().1;
    after_name.split_whitespace().nth(7).unwrap().parse().unwrap()
}

#[test]
fn faults_of_a_process_are_seen() {
    let collecting = Collecting::new(&[Group::VMSTAT]);
    let before = sum(&collecting, "pgfault", SIDES[0]);
    let own_before = own_faults();
    for _ in 0..16 {
        // Too large for the heap: pages of its own, which are there once they are written to; as few faults as eight where pages are huge.
        let mut taken = vec![0_u8; 16 << 20];
        taken.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        assert_eq!(taken[4096], 1);
    }
    let own = own_faults() - own_before;
    let all = sum(&collecting, "pgfault", SIDES[0]) - before;
    assert!(own >= 128.0 && all >= own, "{own} faults of this thread, and {all} of all");
}
