// SPDX-License-Identifier: Apache-2.0
//! Lanes on a real device: veth pairs in namespaces of their own. Needs root and ethtool.

use std::fs;
use std::process::Command;

use clap::{Args as _, FromArgMatches as _};
use onlooker_lane::{LaneError, Options, run};
use onlooker_testbed::{Network, World};
use serde_json::Value;
use tempfile::TempDir;

/// A veth device of two queues, and where its lane's record is.
struct Host {
    state: TempDir,
    other_end: Network,
    _world: World,
}

/// Runs a program of the system.
fn system(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Host {
    fn new() -> Self {
        let world = World::new();
        // sysfs shows the devices of the namespace that mounted it.
        system("mount", &["-t", "sysfs", "sysfs", "/sys"]);
        let other_end = Network::new();
        let host = Self { state: tempfile::tempdir().unwrap(), other_end, _world: world };
        host.add_device();
        host
    }

    fn add_device(&self) {
        self.other_end.add_veth_with_queues("lane0", "other0", 2);
        system("ip", &["link", "set", "lane0", "up"]);
        fs::write("/sys/class/net/lane0/queues/rx-1/rps_cpus", "2").unwrap();
    }

    /// What `onlooker-agent lane` does with such arguments, and the lines that it prints.
    fn lane(&self, arguments: &str) -> (Result<(), LaneError>, Vec<String>) {
        let state = self.state.path().to_str().unwrap();
        let arguments = ["lane", "--state", state].into_iter().chain(arguments.split(' '));
        let matches = Options::augment_args(clap::Command::new("lane")).try_get_matches_from(arguments).unwrap();
        let options = Options::from_arg_matches(&matches).unwrap();
        let mut lines = Vec::new();
        let result = run(&options, 4791, &mut |line| {
            lines.push(line.to_owned());
            Ok(())
        });
        (result, lines)
    }

    fn done(&self, arguments: &str) -> Vec<String> {
        let (result, lines) = self.lane(arguments);
        result.unwrap_or_else(|error| panic!("{arguments}: {error}\n{lines:#?}"));
        lines
    }

    fn refused(&self, arguments: &str) -> LaneError {
        self.lane(arguments).0.unwrap_err()
    }

    fn shown(&self) -> Value {
        let text = self.done("show lane0 --json").join("\n");
        serde_json::from_str::<Value>(&text).unwrap()[0].take()
    }

    /// The record is gone, or never was.
    fn has_no_record(&self) -> bool {
        fs::read_dir(self.state.path()).unwrap().next().is_none()
    }
}

fn rps() -> String {
    fs::read_to_string("/sys/class/net/lane0/queues/rx-1/rps_cpus").unwrap().trim().to_owned()
}

fn merges_packets() -> bool {
    system("ethtool", &["-k", "lane0"]).contains("generic-receive-offload: on")
}

#[test]
fn a_lane_is_set_shown_and_undone() {
    let host = Host::new();
    let before = (rps(), merges_packets(), host.shown());
    assert_eq!(before.2["receive_queues"], 2);
    assert_eq!(before.2["rules"], Value::Null, "veth has no rules");

    let dry = host.done("set lane0 --queue 1 --steered --cpus 1 --priority 7 --dry-run");
    assert_eq!((rps(), merges_packets(), host.shown()), before, "{dry:#?}");
    assert!(host.has_no_record());

    let lines = host.done("set lane0 --queue 1 --steered --cpus 1 --priority 7");
    assert_eq!(lines.len(), dry.len() + 1, "{lines:#?}");
    let shown = host.shown();
    let thread = &shown["threads"]["1"];
    assert_eq!((&thread["priority"], &thread["cpus"]), (&7.into(), &"1".into()), "{shown:#}");
    assert_eq!(shown["is_set"], true);
    assert_eq!(rps(), "0");
    let text = host.done("show lane0").join("\n");
    assert!(text.contains("thread   of queue 1: pid ") && text.contains("SCHED_FIFO 7, CPUs 1"), "{text}");

    host.done("undo lane0");
    assert_eq!((rps(), merges_packets(), host.shown()), before);
    assert!(host.has_no_record());
    assert_eq!(host.done("undo lane0"), ["lane0: nothing to undo"]);
}

#[test]
fn a_second_set_takes_the_place_of_the_first() {
    let host = Host::new();
    let before = (rps(), merges_packets(), host.shown());
    host.done("set lane0 --queue 1 --steered");
    host.done("set lane0 --shared --priority 3");
    let shown = host.shown();
    for queue in ["0", "1"] {
        assert_eq!(shown["threads"][queue]["priority"], 3, "{shown:#}");
    }
    host.done("undo lane0");
    assert_eq!((rps(), merges_packets(), host.shown()), before);
}

#[test]
fn what_failed_half_way_is_undone() {
    let host = Host::new();
    let before = (rps(), merges_packets(), host.shown());
    // No machine has this processor: taskset fails when the thread is there already.
    let error = host.refused("set lane0 --queue 1 --steered --cpus 99999");
    assert!(error.to_string().contains("taskset"), "{error}");
    assert_eq!((rps(), merges_packets(), host.shown()), before);
    assert!(host.has_no_record());
}

#[test]
fn what_a_device_cannot_have_is_refused() {
    let host = Host::new();
    let error = host.refused("set lane0");
    assert!(matches!(&error, LaneError::Unable(why) if why.contains("--shared")), "{error}");
    let error = host.refused("set lane0 --queue 2 --steered");
    assert!(error.is_usage() && error.to_string().contains("0 to 1"), "{error}");
    let error = host.refused("set lane1 --shared");
    assert!(error.is_usage() && error.to_string().contains("lane1"), "{error}");
    assert!(host.has_no_record());
}

#[test]
fn a_device_that_is_gone_needs_no_undoing() {
    let host = Host::new();
    host.done("set lane0 --queue 1 --steered");
    system("ip", &["link", "delete", "lane0"]);
    host.add_device();
    assert_eq!(host.shown()["is_set"], false, "another device of that name");
    assert_eq!(rps(), "2");
    host.done("undo lane0");
    assert_eq!(rps(), "2", "what was done to the first one is not undone on the second");
    assert!(host.has_no_record());
}

#[test]
fn a_device_that_was_down_gets_a_lane_again() {
    let host = Host::new();
    let before = (rps(), merges_packets(), host.shown());
    for state in ["down", "up"] {
        host.done("set lane0 --queue 1 --steered --cpus 0");
        system("ip", &["link", "set", "lane0", "down"]);
        system("ip", &["link", "set", "lane0", state]);
        assert_eq!(host.shown()["threads"], serde_json::json!({}), "it ended with the device");
        host.done("undo lane0");
        assert!(host.has_no_record());
        system("ip", &["link", "set", "lane0", "up"]);
    }
    host.done("set lane0 --queue 1 --steered");
    system("ip", &["link", "set", "lane0", "down"]);
    system("ip", &["link", "set", "lane0", "up"]);
    host.done("set lane0 --queue 1 --steered");
    assert_eq!(host.shown()["threads"]["1"]["priority"], 1);
    host.done("undo lane0");
    assert_eq!((rps(), merges_packets(), host.shown()), before);
}

/// No device here has rules. This stands for one: it says what ethtool says of a card of four queues, and writes down
/// what it is told to do.
const CARD: &str = r#"#!/bin/sh
case "$1" in
  -i) echo "driver: card" ;;
  -n) echo "4 RX rings available"; echo "Total 0 rules" ;;
  -k) echo "ntuple-filters: off"; echo "generic-receive-offload: on" ;;
  -x) echo "RX flow hash indirection table for lane0 with 4 RX ring(s):"; echo "    0:      0     1     0     1" ;;
  -N) echo "$@" >>TOLD; [ "$3" != delete ] && echo "Added rule with ID 102$(wc -l <TOLD)" ;;
  *) echo "$@" >>TOLD ;;
esac
exit 0
"#;

#[test]
fn a_card_is_told_to_steer_and_then_to_forget_it() {
    let host = Host::new();
    // In this test's mount namespace only.
    let directory = tempfile::tempdir().unwrap();
    let (card, file) = (directory.path().join("ethtool"), directory.path().join("told"));
    fs::write(&card, CARD.replace("TOLD", file.to_str().unwrap())).unwrap();
    system("chmod", &["755", card.to_str().unwrap()]);
    system("ethtool", &["-K", "lane0", "gro", "on"]);
    let ethtool = system("sh", &["-c", "command -v ethtool"]);
    let ethtool = fs::canonicalize(ethtool.trim()).unwrap();
    system("mount", &["--bind", card.to_str().unwrap(), ethtool.to_str().unwrap()]);
    let told = |what: &str| {
        let text = fs::read_to_string(&file).expect(what);
        fs::remove_file(&file).unwrap();
        text
    };

    host.done("set lane0 --queue 1");
    assert_eq!(
        told("set"),
        "-K lane0 ntuple-filters on\n\
         -N lane0 flow-type udp4 dst-port 4791 action 1\n\
         -N lane0 flow-type udp6 dst-port 4791 action 1\n\
         -X lane0 weight 2 0\n"
    );
    host.done("undo lane0");
    assert_eq!(
        told("undo"),
        "-X lane0 weight 2 2\n-N lane0 delete 1023\n-N lane0 delete 1022\n-K lane0 ntuple-filters off\n"
    );
    let error = host.refused("set lane0 --queue 1 --cpus 99999");
    assert!(error.to_string().contains("taskset"), "{error}");
    assert!(told("a failure").ends_with("-K lane0 ntuple-filters off\n"));
    assert!(host.has_no_record());
}
