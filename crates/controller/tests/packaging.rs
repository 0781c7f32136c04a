// SPDX-License-Identifier: Apache-2.0
//! The shipped unit: what it must say, and systemd's own opinion where systemd is installed; and what the process tells a service manager.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onlooker_controller::config::Config;
use onlooker_testbed::{Agent, Controller, Namespace, ServiceManager, binary, get, is_root, json as get_json, until};
use rustix::process::{Pid, Signal, kill_process};

fn unit_path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/onlooker-controller.service"))
}

#[test]
fn the_unit_is_hardened_and_has_the_directories_of_the_configuration() {
    let text = fs::read_to_string(unit_path()).unwrap();
    for line in [
        "Type=notify",
        "DynamicUser=yes",
        "StateDirectory=onlooker-controller",
        "RuntimeDirectory=onlooker-controller",
        // The rings are to be there again after a restart.
        "RuntimeDirectoryPreserve=yes",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        // What clients may take is bounded; should that be wrong, it costs this service and nobody else.
        "MemoryMax=4G",
        // A quarter of it is for HTTP: more than is configured by default.
        "LimitNOFILE=65536",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    // Of others' networks, it reads the host's.
    assert!(!text.contains("PrivateNetwork=") && !text.contains("IPAddressDeny="));
    let Config { store, http, .. } = Config::default();
    assert!(http.max_connections <= 65_536 / 4);
    // With the newest rows and the index of a full log there is room left.
    assert!(store.hot_bytes.as_bytes() + (1 << 30) < 2 << 30);
    assert!(
        store.dir.starts_with("/var/lib/onlooker-controller") && store.hot_file.starts_with("/run/onlooker-controller")
    );
}

#[test]
fn systemd_accepts_the_unit() {
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("onlooker-controller.service");
    let text = fs::read_to_string(unit_path()).unwrap();
    let here = text.replace("/usr/bin/onlooker", &binary("onlooker", "onlooker").display().to_string());
    assert_ne!(here, text, "the unit starts the controller");
    fs::write(&path, here).unwrap();
    // Without systemd the first test has to do.
    let Ok(verify) = Command::new("systemd-analyze").arg("verify").arg(&path).output() else { return };
    let said = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && !said.contains("onlooker-controller.service:"), "{said}");
    // Exposure in tenths of systemd's 0 to 10.
    let mut security = Command::new("systemd-analyze");
    let output =
        security.args(["security", "--offline=true", "--threshold=15", "--no-pager"]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// What AF_XDP sockets need is in the drop-in, and nothing else: a controller with these capabilities opens them.
#[test]
fn the_drop_in_gives_what_af_xdp_needs() {
    const CAPABILITIES: &str = "CAP_BPF CAP_NET_ADMIN CAP_NET_RAW";
    let text = fs::read_to_string(unit_path().with_file_name("onlooker-controller.service.d/af_xdp.conf")).unwrap();
    for line in [
        &format!("AmbientCapabilities={CAPABILITIES}"),
        &format!("CapabilityBoundingSet={CAPABILITIES}"),
        "PrivateUsers=no",
        "LimitMEMLOCK=256M",
        "RestrictAddressFamilies=AF_XDP",
        "SystemCallFilter=bpf",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    if !is_root("AF_XDP sockets with the drop-in's capabilities") {
        return;
    }
    let namespace = Namespace::new();
    let agent = Agent::start_kernel(&namespace, "");
    // The last one stands for LimitMEMLOCK=, which not every root may raise.
    let names = CAPABILITIES.split(' ').chain(["CAP_IPC_LOCK"]);
    let names = names.map(|name| name.trim_start_matches("CAP_").to_lowercase());
    let rest = ["[read]\nsockets = \"af_xdp\"\n", &agent.target("one")].concat();
    let mut controller = Controller::start("", &rest);
    controller.start_again_with(&names.collect::<Vec<_>>().join(",+"));
    let wanted = format!("AF_XDP on {} (native, copied)", namespace.outside_device());
    let outside = namespace.outside().to_string();
    until("READs by AF_XDP", || {
        let status = get_json(controller.address(), "/api/onlooker/v1/status");
        let shown = status["sockets"].get(&outside)?.as_str()?.to_owned();
        assert_eq!(shown, wanted);
        let metrics = get(controller.address(), "/metrics");
        let line = metrics.lines().find_map(|line| line.strip_prefix("onlooker_controller_soft_bypassed_total "))?;
        (line.parse::<u64>().unwrap() > 100).then_some(())
    });
}

#[test]
fn it_tells_the_service_manager_when_it_is_ready_and_when_it_stops() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let config = format!(
        "[http]\nlisten = \"127.0.0.1:0\"\n[store]\ndir = {:?}\nhot_file = {:?}\nhot_bytes = \"1MiB\"\nmax_bytes = \"64MiB\"\n[joined]\nfile = {:?}\n",
        at("store"),
        at("hot"),
        at("joined.json")
    );
    fs::write(at("controller.toml"), config).unwrap();
    let manager = ServiceManager::in_dir(dir.path());
    let mut command = Command::new(binary("onlooker", "onlooker"));
    command.args(["controller", "--config"]).arg(at("controller.toml")).env("NOTIFY_SOCKET", manager.path());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let ready = manager.told().unwrap_or_default();
    let asked = kill_process(Pid::from_child(&child), Signal::TERM);
    let stopping = manager.told().unwrap_or_default();
    let _ = asked.is_err().then(|| child.kill());
    let status = child.wait().unwrap();
    assert_eq!((ready.as_str(), stopping.as_str()), ("READY=1\nSTATUS=Watching 0 hosts", "STOPPING=1"));
    assert!(status.success(), "{status}");
}
