// SPDX-License-Identifier: Apache-2.0
//! Rules that steer packets to receive queues, by ethtool(8): it knows every driver's ways, and the operator knows it.
//!
//! Its texts are read, since it has no JSON for these.

use std::io::ErrorKind;
use std::process::Command;

use serde::Serialize;

use crate::LaneError;

/// Runs a program and gives what it prints.
///
/// # Errors
/// It is not there, or failed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, LaneError> {
    let failed = |what: String| LaneError::Command { command: format!("{program} {}", arguments.join(" ")), what };
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output().map_err(|error| {
        failed(match error.kind() {
            ErrorKind::NotFound => format!("{program} is not installed"),
            _ => error.to_string(),
        })
    })?;
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() {
        return Ok(out);
    }
    let said = if error.trim().is_empty() { out } else { error };
    Err(failed(said.trim().replace('\n', "; ")))
}

/// The same for ethtool.
///
/// # Errors
/// As [`run`].
pub fn ethtool(arguments: &[&str]) -> Result<String, LaneError> {
    run("ethtool", arguments)
}

/// The driver of a device.
#[must_use]
pub fn driver(device: &str) -> Option<String> {
    let text = ethtool(&["-i", device]).ok()?;
    text.lines().find_map(|line| line.strip_prefix("driver: ")).map(str::to_owned)
}

/// A rule that sends datagrams to a UDP port to a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// ethtool's number of it.
    pub id: u32,
    /// `udp4` or `udp6`.
    pub flow: &'static str,
    /// Destination port.
    pub port: u16,
    /// Receive queue.
    pub queue: u32,
}

/// Those rules of a device; `None` where it has no rules at all.
#[must_use]
pub fn rules(device: &str) -> Option<Vec<Rule>> {
    ethtool(&["-n", device]).ok().map(|text| parse_rules(&text))
}

/// Rules in what `ethtool -n` prints; others than those of whole UDP ports are left out.
#[must_use]
pub fn parse_rules(text: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    for part in text.split("Filter: ").skip(1) {
        let value = |label: &str| part.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
        let flow = match value("Rule Type:") {
            Some("UDP over IPv4") => "udp4",
            Some("UDP over IPv6") => "udp6",
            _ => continue,
        };
        let port = value("Dest port:").and_then(|text| text.strip_suffix(" mask: 0x0"));
        let queue = value("Action:").and_then(|text| text.strip_prefix("Direct to queue "));
        let id = part.split_whitespace().next();
        if let (Some(Ok(id)), Some(Ok(port)), Some(Ok(queue))) =
            (id.map(str::parse), port.map(str::parse), queue.map(str::parse))
        {
            rules.push(Rule { id, flow, port, queue });
        }
    }
    rules
}

/// The number of a rule in what `ethtool -N` prints.
#[must_use]
pub fn parse_added(text: &str) -> Option<u32> {
    text.split_once("rule with ID ").and_then(|(_, id)| id.split_whitespace().next()?.parse().ok())
}

/// How many entries of the table that spreads packets each queue has, of what `ethtool -x` prints; `None` where the
/// device does not spread.
#[must_use]
pub fn parse_weights(text: &str, queues: u32) -> Option<Vec<u32>> {
    let mut weights = vec![0; usize::try_from(queues).ok()?];
    let mut any = false;
    // The key behind it has colons, too.
    let table = text.split("RSS hash key").next().unwrap_or_default();
    for line in table.lines() {
        let Some((index, entries)) = line.split_once(':') else { continue };
        if index.trim().parse::<u32>().is_err() {
            continue;
        }
        for queue in entries.split_whitespace() {
            *weights.get_mut(queue.parse::<usize>().ok()?)? += 1;
            any = true;
        }
    }
    any.then_some(weights)
}

/// Whether a feature is on, of what `ethtool -k` prints, and whether it can be switched.
#[must_use]
pub fn parse_feature(text: &str, name: &str) -> Option<(bool, bool)> {
    let state = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "))?;
    Some((state.starts_with("on"), !state.contains("[fixed]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_whole_ports_are_read() {
        let text = "8 RX rings available\nTotal 4 rules\n\nFilter: 1023\n\tRule Type: UDP over IPv4\n\
            \tSrc IP addr: 0.0.0.0 mask: 255.255.255.255\n\tDest IP addr: 0.0.0.0 mask: 255.255.255.255\n\
            \tTOS: 0x0 mask: 0xff\n\tSrc port: 0 mask: 0xffff\n\tDest port: 4791 mask: 0x0\n\tAction: Direct to queue 7\n\n\
            Filter: 1022\n\tRule Type: UDP over IPv6\n\tDest port: 4791 mask: 0x0\n\tAction: Direct to queue 7\n\n\
            Filter: 5\n\tRule Type: TCP over IPv4\n\tDest port: 80 mask: 0x0\n\tAction: Direct to queue 1\n\n\
            Filter: 4\n\tRule Type: UDP over IPv4\n\tDest port: 53 mask: 0xff00\n\tAction: Direct to queue 1\n\n\
            Filter: 3\n\tRule Type: UDP over IPv4\n\tDest port: 53 mask: 0x0\n\tAction: Drop\n";
        let rule = |id, flow| Rule { id, flow, port: 4791, queue: 7 };
        assert_eq!(parse_rules(text), [rule(1023, "udp4"), rule(1022, "udp6")]);
        assert!(parse_rules("4 RX rings available\nTotal 0 rules\n").is_empty());
    }

    #[test]
    fn the_number_of_a_new_rule() {
        assert_eq!(parse_added("Added rule with ID 1023\n"), Some(1023));
        assert_eq!(parse_added(""), None);
    }

    #[test]
    fn weights_are_entries_of_the_table() {
        let text = "RX flow hash indirection table for eth0 with 4 RX ring(s):\n\
            \x20   0:      0     1     2     3     0     1     2     3\n\x20   8:      0     0     2     3\n\
            RSS hash key:\n60:5a:56:da\nRSS hash function:\n    toeplitz: on\n";
        assert_eq!(parse_weights(text, 4), Some(vec![4, 2, 3, 3]));
        assert_eq!(parse_weights(text, 3), None, "a queue that the device has not got");
        assert_eq!(parse_weights("Cannot get RX flow hash indirection table\n", 4), None);
    }

    #[test]
    fn features_that_can_be_switched() {
        let text = "Features for eth0:\ngeneric-receive-offload: on\nntuple-filters: off [fixed]\n";
        assert_eq!(parse_feature(text, "generic-receive-offload"), Some((true, true)));
        assert_eq!(parse_feature(text, "ntuple-filters"), Some((false, false)));
        assert_eq!(parse_feature(text, "ntuple"), None);
    }
}
