// SPDX-License-Identifier: Apache-2.0
//! Group load against /proc/loadavg.

use onlooker_metrics::groups::Group;
use onlooker_testbed::try_often;

use crate::regions::{Collecting, between, file};
use crate::support::SIDES;

#[test]
fn load_averages_are_those_of_proc_loadavg() {
    let collecting = Collecting::new(&[Group::LOAD]);
    for side in SIDES {
        try_often("load averages", || {
            let loads =
                || file("/proc/loadavg").split(' ').take(3).map(|load| load.parse().unwrap()).collect::<Vec<f64>>();
            let before = loads();
            let values = collecting.read(Group::LOAD, side);
            let after = loads();
            assert_eq!(values.len(), 3);
            for (index, name) in ["node_load1{}", "node_load5{}", "node_load15{}"].iter().enumerate() {
                between(values[*name], before[index], after[index], 0.0051)
                    .map_err(|reason| format!("{name}: {reason}"))?;
            }
            Ok(())
        });
    }
}
