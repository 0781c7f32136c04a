// SPDX-License-Identifier: Apache-2.0
use super::super::fixture::{Host, World};
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP};

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
    // What the agent computes or samples for this responder is not missing, whatever it has for others; a program's
    // region of such a name is.
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
