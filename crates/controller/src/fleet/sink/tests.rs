// SPDX-License-Identifier: Apache-2.0
use super::super::fixture::{Host, World};
use super::*;
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};

/// Of pressure, the totals move every 2 s, and what is in progress at every READ: the region is read as often as that, and each time is a row of both.
#[test]
fn a_computed_group_has_a_row_a_reading_however_seldom_its_values_move() {
    let schema = |acquisition: &str| {
        format!(
            r#"{{"name":"p","groups":[{{"kind":"guarded","acquisition":"{acquisition}","blocks":1,"fields":[
            {{"name":"x_total","metric":"counter","type":"u64","resolution_ns":2000000000}}]}}]}}"#
        )
    };
    for (acquisition, expected_ns) in [("computed", 10_000_000), ("sampled", 2_000_000_000)] {
        let (mut world, mut host) = (World::new(), Host::new(64));
        let _region = host.region(2, "p", &[], &schema(acquisition));
        world.read("a", &host);
        let host = world.fleet.host("a").unwrap();
        let shown = host.look();
        let (key, _) = shown.entities.find(r#"x_total{instance="a"}"#).unwrap();
        let target = Target { interval: std::time::Duration::from_millis(10), ..(*host.target).clone() };
        let interval_ns = row_interval_ns(&target, &shown.entities.get(&key).unwrap().series);
        assert_eq!(interval_ns, expected_ns, "{acquisition}");
    }
}

#[test]
fn what_only_other_responders_serve_is_shown_as_not_read() {
    const QUEUE: &str = r#"{"name":"queue","groups":[{"kind":"guarded","blocks":1,"fields":[
        {"name":"depth","metric":"gauge","type":"u64"}]}]}"#;
    let mut world = World::new();
    let mut host = Host::new(64);
    host.responders = RESPONDER_KERNEL;
    let _unserved = host.region(1, "unserved", &[], QUEUE);
    host.responders = RESPONDER_TCP;
    let _served = host.region(2, "served", &[], QUEUE);
    // What the agent computes or samples for this responder is not missing, whatever it has for others; a program's region of such a name is.
    let _twins = [(3, "node_cpu"), (4, "node_agent_sampled")].map(|(id, name)| host.region(id, name, &[], QUEUE));
    host.responders = RESPONDER_KERNEL;
    let _others =
        [(5, "node_cpu"), (6, "node_agent"), (300, "node_cpu")].map(|(id, name)| host.region(id, name, &[], QUEUE));
    for _ in 0..2 {
        world.read("web-1", &host);
        world.pass(1_000_000_000);
        let shown = world.fleet.host("web-1").unwrap();
        let regions: Vec<(String, bool)> =
            shown.look().regions.iter().map(|region| (region.entry.name.clone(), region.problem.is_some())).collect();
        let expected = [
            ("served", false),
            ("node_cpu", false),
            ("node_agent_sampled", false),
            ("unserved", true),
            ("node_cpu", false),
            ("node_agent", false),
            ("node_cpu", true),
        ];
        assert_eq!(regions, expected.map(|(name, is_missing)| (name.to_owned(), is_missing)));
    }
}
