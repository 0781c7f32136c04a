// SPDX-License-Identifier: Apache-2.0
//! Which of a host's devices count, and how full a file system is: the rules for everybody who adds devices up, or says
//! which is the fullest.
//!
//! `ui/src/host/vitals.ts` and `ui/src/host/devices.ts` have the same; `devices/devices.json` holds the two together.

/// How devices are called whose traffic another one counts, too: bridges, bonds, tunnels, containers' ends.
const VIRTUAL: [&str; 14] =
    ["veth", "docker", "br-", "virbr", "cni", "cali", "flannel", "tap", "tun", "wg", "bond", "team", "ifb", "dummy"];
/// Disks made of others, which count again, or of memory.
const COMPOUND: [&str; 4] = ["dm-", "md", "drbd", "zram"];

/// Whether no other network device counts what this one does. VLANs are called by their device, a dot and a number.
#[must_use]
pub fn counts_on_its_own(device: &str) -> bool {
    let is_vlan = device.contains('.') || device.starts_with("vlan");
    let is_bridge = device.strip_prefix("br").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    device != "lo" && !is_vlan && !is_bridge && !VIRTUAL.iter().any(|start| device.starts_with(start))
}

/// Whether no other disk counts what this one does.
#[must_use]
pub fn is_own_disk(device: &str) -> bool {
    !COMPOUND.iter().any(|start| device.starts_with(start))
}

/// Share of a file system that is used, as `df` has it: what is kept for root is neither used nor to be had. `None` for
/// those without any size.
#[must_use]
pub fn used_share(size: f64, free: f64, available: f64) -> Option<f64> {
    let used = size - free;
    Some(used / (used + available)).filter(|share| share.is_finite())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn traffic_is_counted_once() {
        // The dashboard's test reads the same.
        let devices: BTreeMap<String, Vec<String>> =
            serde_json::from_str(include_str!("devices/devices.json")).unwrap();
        assert!(devices["own"].iter().all(|device| counts_on_its_own(device)));
        assert!(!devices["others"].iter().any(|device| counts_on_its_own(device)));
        assert!(is_own_disk("sda") && is_own_disk("nvme0n1") && !is_own_disk("dm-0") && !is_own_disk("md127"));
    }

    #[test]
    fn full_is_what_users_cannot_have() {
        assert_eq!(used_share(100.0, 10.0, 0.0), Some(1.0), "the last tenth is kept for root");
        assert_eq!((used_share(100.0, 60.0, 60.0), used_share(0.0, 0.0, 0.0)), (Some(0.4), None));
    }
}
