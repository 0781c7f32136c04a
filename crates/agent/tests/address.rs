// SPDX-License-Identifier: Apache-2.0
//! An agent whose listening addresses come after it, go, and come back. Needs root: a network namespace.

mod common;

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::Place;
use common::world::World;
use onlooker_testbed::{run, until};

#[test]
fn addresses_may_come_later_go_and_come_back() {
    let Some(_world) = World::new() else { return };
    for (address, length) in [("192.0.2.7", 32), ("2001:db8::7", 128)] {
        let at = SocketAddr::new(address.parse().unwrap(), 0);
        let place = Place::new(|config| {
            (config.bootstrap.listen, config.tcp.listen) = (at, at);
            config.tcp.allow = vec![format!("{address}/{length}").parse().expect("a prefix")];
        });
        let device = |what: &str| run("ip", &["address", what, &format!("{address}/{length}"), "dev", "lo"]);
        let warning = format!("this host does not have {address} now");
        let check = || {
            let output = place.command(&["check-config"]).output().expect("runs");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).expect("text").matches(&warning).count()
        };
        assert_eq!(check(), 2, "[bootstrap] and [tcp]");

        let agent = place.start();
        assert_eq!(agent.log.matches(&warning).count(), 2, "{}", agent.log);
        // While it is connected its region stays.
        let client = agent.client();
        let region = client.publish("shop", 5);
        let is_there = || TcpStream::connect_timeout(&agent.bootstrap, Duration::from_secs(1)).is_ok();
        assert!(!is_there());
        for value in [6, 7] {
            device("add");
            until("the address is reached", || is_there().then_some(()));
            assert_eq!(check(), 0);
            region.set(value);
            assert_eq!(agent.reader().values("shop")["test_value{}"], f64::from(u32::try_from(value).unwrap()));
            device("del");
            until("it is not reached any more", || (!is_there()).then_some(()));
        }
    }
}
