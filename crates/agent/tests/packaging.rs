// SPDX-License-Identifier: Apache-2.0
//! The shipped unit: what it must say, and systemd's own opinion where systemd is installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn unit_path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/onlooker-agent.service"))
}

/// `section.key` to all its values.
fn unit() -> BTreeMap<String, Vec<String>> {
    let (mut section, mut values) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for line in fs::read_to_string(unit_path()).unwrap().lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            values.entry(format!("{section}.{key}")).or_default().push(value.to_owned());
        }
    }
    values
}

#[test]
fn the_unit_is_hardened_and_leaves_what_the_agent_needs() {
    let unit = unit();
    let is =
        |key: &str, value: &str| assert_eq!(unit.get(key).map(Vec::as_slice), Some(&[value.to_owned()][..]), "{key}");
    is("Service.Type", "notify");
    is("Service.Restart", "always");
    is("Service.NoNewPrivileges", "yes");
    is("Service.CapabilityBoundingSet", "");
    is("Service.ProtectSystem", "strict");
    is("Service.RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6");
    is("Service.RuntimeDirectory", "onlooker");
    is("Service.StateDirectory", "onlooker");
    is("Service.DynamicUser", "yes");
    // Start times of owners, all of procfs, real uids.
    for absent in ["ProtectProc", "ProcSubset", "PrivateUsers", "PrivateNetwork"] {
        assert!(!unit.contains_key(&format!("Service.{absent}")), "{absent}");
    }
    let config = onlooker_agent::config::Config::default();
    let memory_max =
        unit["Service.MemoryMax"][0].strip_suffix('M').and_then(|mib| mib.parse::<u64>().ok()).expect("MiB");
    assert!(
        memory_max << 20 >= config.quota.bytes.as_bytes() + (64 << 20),
        "room for [quota] bytes and the agent itself"
    );
    assert!(config.agent.socket.starts_with("/run/onlooker") && config.agent.state_dir.ends_with("onlooker"));
}

#[test]
fn systemd_accepts_the_unit() {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("onlooker-agent.service");
    let text = fs::read_to_string(unit_path()).unwrap();
    let here = text.replace("/usr/bin/onlooker-agent", env!("CARGO_BIN_EXE_onlooker-agent"));
    assert_ne!(here, text, "the unit starts the agent");
    fs::write(&path, here).unwrap();
    // Without systemd the first test has to do.
    let Ok(verify) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else { return };
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && !said.contains("onlooker-agent.service:"), "{said}");
    // Exposure in tenths of systemd's 0 to 10.
    let mut security = Command::new("systemd-analyze");
    let output =
        security.args(["security", "--offline=true", "--threshold=20", "--no-pager"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
