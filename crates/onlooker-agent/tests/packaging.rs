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
    is("Service.RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK");
    is("Service.ProtectHome", "read-only");
    is("Service.RuntimeDirectory", "onlooker");
    is("Service.StateDirectory", "onlooker");
    is("Service.DynamicUser", "yes");
    // Start times of owners, all of procfs, real uids.
    for absent in ["ProtectProc", "ProcSubset", "PrivateUsers", "PrivateNetwork", "ProtectClock"] {
        assert!(!unit.contains_key(&format!("Service.{absent}")), "{absent}");
    }
    let config = onlooker_agent_lib::config::Config::default();
    let memory_max =
        unit["Service.MemoryMax"][0].strip_suffix('M').and_then(|mib| mib.parse::<u64>().ok()).expect("MiB");
    assert!(
        memory_max << 20 >= config.quota.bytes.as_bytes() + (64 << 20),
        "room for [quota] bytes and the agent itself"
    );
    assert!(config.agent.socket.starts_with("/run/onlooker") && config.agent.state_dir.ends_with("onlooker"));
}

fn drop_in() -> String {
    fs::read_to_string(unit_path().with_file_name("onlooker-agent.service.d/kernel.conf")).unwrap()
}

#[test]
fn the_kernel_responders_drop_in_gives_what_it_needs_and_no_more() {
    let text = drop_in();
    for line in [
        "CapabilityBoundingSet=CAP_BPF CAP_NET_ADMIN CAP_PERFMON CAP_SYSLOG",
        "ReadWritePaths=/sys/fs/bpf",
        "User=root",
        "NoNewPrivileges=yes",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    assert!(text.lines().any(|line| line.starts_with("SystemCallFilter=") && line.contains("bpf")));
    let config = onlooker_agent_lib::config::Config::default();
    assert!(config.kernel.bpffs.starts_with("/sys/fs/bpf"));
}

#[test]
fn systemd_accepts_the_unit() {
    systemd_accepts(None);
}

#[test]
fn systemd_accepts_the_unit_with_the_kernel_responders_drop_in() {
    systemd_accepts(Some(drop_in()));
}

fn systemd_accepts(drop_in: Option<String>) {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("onlooker-agent.service");
    let text = fs::read_to_string(unit_path()).unwrap();
    let here = text.replace("/usr/bin/onlooker-agent", env!("CARGO_BIN_EXE_onlooker-agent"));
    assert_ne!(here, text, "the unit starts the agent");
    fs::write(&path, here).unwrap();
    let with_drop_in = drop_in.is_some();
    if let Some(text) = drop_in {
        let directory = copy.path().join("onlooker-agent.service.d");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("kernel.conf"), text).unwrap();
    }
    // Without systemd the first test has to do.
    let Ok(verify) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else { return };
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && !said.contains("onlooker-agent.service:"), "{said}");
    if with_drop_in {
        return;
    }
    // Exposure in tenths of systemd's 0 to 10. Asking the clock (adjtimex) is 0.6 of it, whether or not anybody could set it; netlink and seeing file systems 0.2.
    let mut security = Command::new("systemd-analyze");
    let output =
        security.args(["security", "--offline=true", "--threshold=22", "--no-pager"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn systemd_accepts_the_lanes_unit() {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("onlooker-lane@eth0.service");
    let text = fs::read_to_string(unit_path().with_file_name("onlooker-lane@.service")).unwrap();
    fs::write(&path, text.replace("/usr/bin/onlooker-agent", env!("CARGO_BIN_EXE_onlooker-agent"))).unwrap();
    assert!(text.contains("CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_NICE\n"), "rules and threads, priorities");
    assert!(!text.contains("ProtectKernelTunables"), "files of sysfs are written");
    assert!(!text.contains("RestrictRealtime"), "that would forbid what it is for");
    let Ok(verify) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else { return };
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && !said.contains("onlooker-lane@eth0.service:"), "{said}");
}
