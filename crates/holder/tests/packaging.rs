// SPDX-License-Identifier: Apache-2.0
//! The shipped unit: what it must say, that it fits the agent's, and systemd's own opinion where systemd is installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use onlooker_holder::DEFAULT_SOCKET;

const DROP_IN: &str = "onlooker-holder.service.d/kernel.conf";

fn packaged(name: &str) -> String {
    let packaging = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
    fs::read_to_string(packaging.join(name)).unwrap()
}

/// `section.key` to all its values.
fn unit(name: &str) -> BTreeMap<String, Vec<String>> {
    let (mut section, mut values) = (String::new(), BTreeMap::<String, Vec<String>>::new());
    for line in packaged(name).lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            values.entry(format!("{section}.{key}")).or_default().push(value.to_owned());
        }
    }
    values
}

#[test]
fn the_unit_is_hardened_and_leaves_what_a_device_needs() {
    let unit = unit("onlooker-holder.service");
    let is =
        |key: &str, value: &str| assert_eq!(unit.get(key).map(Vec::as_slice), Some(&[value.to_owned()][..]), "{key}");
    is("Unit.Before", "onlooker-agent.service");
    is("Service.Type", "notify");
    is("Service.Restart", "on-failure");
    is("Service.RestartPreventExitStatus", "2");
    is("Service.Environment", "RDMAV_ALLOW_DISASSOC_DESTROY=1");
    is("Service.LimitMEMLOCK", "infinity");
    is("Service.NoNewPrivileges", "yes");
    is("Service.CapabilityBoundingSet", "");
    is("Service.ProtectSystem", "strict");
    is("Service.RestrictAddressFamilies", "AF_UNIX AF_NETLINK");
    is("Service.DevicePolicy", "closed");
    is("Service.DeviceAllow", "char-infiniband_verbs rw");
    // Devices, the network namespace that their addresses are in, peers' real uids; and the memory of others that
    // becomes resident here.
    for absent in ["PrivateDevices", "PrivateNetwork", "PrivateUsers", "MemoryMax"] {
        assert!(!unit.contains_key(&format!("Service.{absent}")), "{absent}");
    }
    let directory = Path::new("/run").join(&unit["Service.RuntimeDirectory"][0]);
    assert_eq!(Path::new(DEFAULT_SOCKET).parent(), Some(directory.as_path()));
}

#[test]
fn holder_and_agent_have_one_user_and_different_directories() {
    let (holder, agent) = (unit("onlooker-holder.service"), unit("onlooker-agent.service"));
    for same in ["Service.User", "Service.DynamicUser"] {
        assert_eq!(holder[same], agent[same], "{same}");
    }
    // systemd removes it when the agent stops.
    assert_ne!(holder["Service.RuntimeDirectory"], agent["Service.RuntimeDirectory"]);
    let (holder, agent) = (unit(DROP_IN), unit("onlooker-agent.service.d/kernel.conf"));
    for same in ["Service.User", "Service.DynamicUser"] {
        assert_eq!(holder[same], agent[same], "{same}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    systemd_accepts(None);
}

#[test]
fn systemd_accepts_the_unit_with_its_drop_in() {
    systemd_accepts(Some(&packaged(DROP_IN)));
}

fn systemd_accepts(drop_in: Option<&str>) {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("onlooker-holder.service");
    let text = packaged("onlooker-holder.service");
    // Any program will do: without feature `device` there is no holder.
    let here = text.replace("/usr/bin/onlooker-holder", std::env::current_exe().unwrap().to_str().unwrap());
    assert_ne!(here, text, "the unit starts the holder");
    fs::write(&path, here).unwrap();
    if let Some(text) = drop_in {
        fs::create_dir(copy.path().join("onlooker-holder.service.d")).unwrap();
        fs::write(copy.path().join(DROP_IN), text).unwrap();
    }
    // Without systemd the first test has to do.
    let Ok(verify) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else { return };
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && !said.contains("onlooker-holder.service:"), "{said}");
    if drop_in.is_some() {
        return;
    }
    // Exposure in tenths of systemd's 0 to 10.
    let mut security = Command::new("systemd-analyze");
    let output =
        security.args(["security", "--offline=true", "--threshold=16", "--no-pager"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
