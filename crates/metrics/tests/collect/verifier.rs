// SPDX-License-Identifier: Apache-2.0
//! How much of the verifier's budget (1,000,000 instructions) each collector takes.

use onlooker_metrics::collect::{Options, install};
use onlooker_metrics::groups::Group;

use crate::support::{PORT, Rig, unlimited};

/// A tenth of the limit.
const MOST_INSNS: u32 = 100_000;

#[test]
#[allow(clippy::print_stdout)]
fn collectors_stay_far_below_the_verifier_s_limit() {
    let rig = Rig::new(&unlimited(PORT));
    let installed = install(&rig.responder, &Options::default()).unwrap();
    println!(
        "{:10} {:14} {:>14} {:>16} {:>12}",
        "group", "program", "verified_insns", "translated_insns", "jited_bytes"
    );
    let there = Group::computed().filter(|group| group.absence().is_none()).count();
    assert_eq!(installed.groups.len(), there, "{:?}", installed.refused);
    for group in &installed.groups {
        for info in &group.programs {
            println!(
                "{:10} {:14} {:>14} {:>16} {:>12}",
                group.group, info.name, info.verified_insns, info.translated_insns, info.jited_bytes
            );
            assert!(info.verified_insns > 0 && info.verified_insns < MOST_INSNS, "{info:?}");
            assert!(info.jited_bytes > 0, "{info:?} is not compiled");
        }
        assert_eq!(group.programs.len(), 2);
    }
}
