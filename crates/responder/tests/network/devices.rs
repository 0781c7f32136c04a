// SPDX-License-Identifier: Apache-2.0
//! Devices that are renamed, removed and added again under a responder, and what `reattach` makes of it.

use onlooker_responder::{Hook, Pinned, Standing};
use onlooker_testbed::run;

use crate::requester::UdpRequester;
use crate::support::unlimited;
use crate::upgrade::Way;
use crate::world::{PORT, RESPONDER_DEVICE, World, device};

/// Each device's name and how it stands.
fn standings(responder: &Pinned, wanted: &[(&str, Hook)]) -> Vec<(String, &'static str)> {
    let told = responder.reattach(wanted).unwrap();
    told.into_iter()
        .map(|told| {
            let standing = match told.standing {
                Standing::Kept => "kept",
                Standing::Attached => "attached",
                Standing::Unlisted(_) => "unlisted",
                Standing::Gone => "gone",
                Standing::Missing => "missing",
                Standing::Failed(error) => panic!("{error}"),
            };
            (told.device, standing)
        })
        .collect()
}

fn expect(found: &[(String, &'static str)], expected: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = found.iter().map(|(device, standing)| (device.as_str(), *standing)).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_renamed_device_keeps_its_program_and_is_told_by_its_new_name() {
    for way in [Way::Tc, Way::Filter] {
        let world = World::new();
        let responder = world.responder(&unlimited(PORT));
        way.attach(&world, &responder);
        let mut requester = UdpRequester::new(&world, false);
        // Before 6.2 only a device that is down can be renamed.
        run("ip", &["link", "set", RESPONDER_DEVICE, "down"]);
        run("ip", &["link", "set", RESPONDER_DEVICE, "name", "renamed1"]);
        run("ip", &["link", "set", "renamed1", "up"]);
        // The requester's end notices a moment later that it has a carrier again.
        assert!((0..20).find_map(|_| requester.read_at(0, 1024)).is_some());
        expect(
            &standings(&responder, &[(RESPONDER_DEVICE, Hook::Tc)]),
            &[(RESPONDER_DEVICE, "missing"), ("renamed1", "unlisted")],
        );
        expect(&standings(&responder, &[("renamed1", Hook::Tc)]), &[("renamed1", "kept")]);
        assert!(requester.read_at(0, 1024).is_some());
    }
}

#[test]
fn a_device_that_comes_back_is_attached_again() {
    for way in [Way::Tc, Way::Filter, Way::Xdp] {
        let world = World::new();
        let responder = world.responder(&unlimited(PORT));
        way.attach(&world, &responder);
        let old = responder.attachments();
        let wanted = [(RESPONDER_DEVICE, way.hook())];
        expect(&standings(&responder, &wanted), &[(RESPONDER_DEVICE, "kept")]);
        run("ip", &["link", "delete", RESPONDER_DEVICE]);
        let gone = format!("with index {}", old[0].ifindex);
        expect(&standings(&responder, &wanted), &[(&gone, "gone"), (RESPONDER_DEVICE, "missing")]);
        assert_eq!(responder.attachments(), []);
        world.connect();
        assert_eq!(UdpRequester::new(&world, false).read_at(0, 64), None);
        expect(&standings(&responder, &wanted), &[(RESPONDER_DEVICE, "attached")]);
        assert_ne!(responder.attachments(), old);
        if way != Way::Xdp {
            assert!(UdpRequester::new(&world, false).read_at(0, 1024).is_some());
            assert!(UdpRequester::new(&world, true).read_at(0, 1024).is_some());
        }
    }
}

/// Indices are not reused by themselves, but `ip link add index` and the moving of devices between namespaces do it.
#[test]
fn another_device_with_the_old_one_s_index_is_not_taken_for_it() {
    for way in [Way::Tc, Way::Filter] {
        let world = World::new();
        let responder = world.responder(&unlimited(PORT));
        way.attach(&world, &responder);
        let index = device().index().to_string();
        run("ip", &["link", "delete", RESPONDER_DEVICE]);
        run("ip", &["link", "add", RESPONDER_DEVICE, "index", &index, "type", "veth", "peer", "name", "other"]);
        assert_eq!(device().index().to_string(), index);
        let gone = format!("with index {index}");
        expect(
            &standings(&responder, &[(RESPONDER_DEVICE, Hook::Tc)]),
            &[(&gone, "gone"), (RESPONDER_DEVICE, "attached")],
        );
    }
}

#[test]
fn what_somebody_else_removed_is_put_back() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    responder.attach_by_filter(&device()).unwrap();
    let mut requester = UdpRequester::new(&world, false);
    assert!(requester.read_at(0, 1024).is_some());
    run("tc", &["qdisc", "delete", "dev", RESPONDER_DEVICE, "clsact"]);
    assert_eq!(requester.read_at(0, 1024), None);
    let gone = format!("with index {}", device().index());
    expect(&standings(&responder, &[(RESPONDER_DEVICE, Hook::Tc)]), &[(&gone, "gone"), (RESPONDER_DEVICE, "attached")]);
    assert!(requester.read_at(0, 1024).is_some());
}

#[test]
fn a_filter_whose_loader_died_before_it_was_remembered_is_remembered() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    let attachment = responder.attach_by_filter(&device()).unwrap();
    let records = responder.home().path().join("filters");
    let record = std::fs::read_dir(&records).unwrap().next().unwrap().unwrap().path();
    std::fs::remove_dir(record).unwrap();
    assert_eq!(responder.attachments(), []);
    expect(&standings(&responder, &[(RESPONDER_DEVICE, Hook::Tc)]), &[(RESPONDER_DEVICE, "kept")]);
    let found = responder.attachments();
    assert_eq!((found.len(), found[0].ifindex), (1, attachment.ifindex));
    responder.home().purge().unwrap();
    assert_eq!(UdpRequester::new(&world, false).read_at(0, 1024), None);
}

#[test]
fn another_hook_and_other_addresses_are_followed() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    expect(&standings(&responder, &[(RESPONDER_DEVICE, Hook::Xdp)]), &[(RESPONDER_DEVICE, "attached")]);
    assert_eq!(responder.attachments()[0].hook, Hook::Xdp);
    expect(&standings(&responder, &[(RESPONDER_DEVICE, Hook::Tc)]), &[(RESPONDER_DEVICE, "attached")]);
    assert_eq!((responder.attachments().len(), responder.attachments()[0].hook), (1, Hook::Tc));
    run("ip", &["address", "add", "10.77.1.9/24", "dev", RESPONDER_DEVICE]);
    let ask = |own: &str| {
        let responder = (own.parse::<std::net::IpAddr>().unwrap(), PORT).into();
        let own = crate::world::REQUESTER_IP4.parse().unwrap();
        world.at_requester(|| UdpRequester::between(own, responder)).read_at(0, 1024).is_some()
    };
    assert!(!ask("10.77.1.9"));
    expect(&standings(&responder, &[(RESPONDER_DEVICE, Hook::Tc)]), &[(RESPONDER_DEVICE, "kept")]);
    assert!(ask("10.77.1.9"));
    expect(&standings(&responder, &[]), &[(RESPONDER_DEVICE, "unlisted")]);
    assert!(ask(crate::world::RESPONDER_IP4));
}
