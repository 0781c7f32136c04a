// SPDX-License-Identifier: Apache-2.0
//! `onlooker-agent join` as it is typed: no paths given, on a host of its own (network, mounts, /etc, /run, /var/lib and BPF file system), towards a real controller in another
//! network namespace. Needs root.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Command, Output};

use onlooker_testbed::{Process, binary, is_root, until};
use serde_json::Value;
use tempfile::TempDir;

const TOKEN: &str = "a-token-for-hosts-that-join";
const CONTROLLER: &str = "198.18.90.1";
const HOST: &str = "198.18.90.2";

/// What the host keeps of itself: everything that a join may write.
const WATCHED: &str = "/etc/onlooker /etc/systemd /run /var/lib";

/// Two namespaces that a veth pair joins. They end with the processes that hold them.
struct World {
    dir: TempDir,
    host: Process,
    network: Process,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let network = hold("ip link set lo up", &["--net"]);
        // /etc is as outside until somebody writes to it; the rest is empty.
        let mounts = "mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /mnt && mkdir /mnt/upper /mnt/work \
             && mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc \
             && mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /opt && mount -t bpf bpf /sys/fs/bpf && ip link set lo up";
        let host = hold(mounts, &["--net", "--mount"]);
        let world = Self { dir, host, network };
        let (host, network) = (world.host.pid().to_string(), world.network.pid().to_string());
        ok(Command::new("ip")
            .args(["link", "add", "eth0", "netns", &network, "type", "veth", "peer", "name", "eth0", "netns", &host]));
        for (space, address) in [(&world.network, CONTROLLER), (&world.host, HOST)] {
            ok(enter(space, "ip").args(["addr", "add", &format!("{address}/30"), "dev", "eth0"]));
            ok(enter(space, "ip").args(["link", "set", "eth0", "up"]));
        }
        // Where a service sees it, unlike what stands in /tmp or in a home.
        ok(enter(&world.host, "cp").arg(binary("onlooker-agent", "onlooker-agent")).arg("/opt/onlooker-agent"));
        world
    }

    fn on_host(&self, program: &str) -> Command {
        enter(&self.host, program)
    }

    fn agent(&self, arguments: &[&str]) -> Command {
        let mut command = self.on_host("/opt/onlooker-agent");
        command.args(arguments).env_remove("ONLOOKER_JOIN_TOKEN");
        command
    }

    /// A controller that hosts may join, on all addresses of its namespace.
    fn controller(&self) -> Process {
        let path = |name: &str| self.dir.path().join(name);
        fs::write(path("join-token"), TOKEN).unwrap();
        fs::write(path("token"), "a-token-for-operators").unwrap();
        let text = format!(
            "[http]\nlisten = \"0.0.0.0:7180\"\ntoken_file = {:?}\njoin_token_file = {:?}\n[joined]\nfile = {:?}\nmin_interval = \"10ms\"\n[store]\ndir = {:?}\nhot_file = {:?}\nhot_bytes = \"16MiB\"\nmax_bytes = \"64MiB\"\n",
            path("token"),
            path("join-token"),
            path("joined.json"),
            path("store"),
            path("hot"),
        );
        fs::write(path("controller.toml"), text).unwrap();
        let mut command = enter(&self.network, binary("onlooker", "onlooker").to_str().unwrap());
        command.arg("controller").arg("--config").arg(path("controller.toml"));
        Process::start(&mut command, "dashboard http").0
    }

    /// What the controller says, as its operator asks.
    fn asked(&self, path: &str) -> Value {
        let script = "import sys, urllib.request as r; print(r.urlopen(r.Request(sys.argv[1], headers={'Authorization': 'Bearer a-token-for-operators'})).read().decode())";
        let url = format!("http://127.0.0.1:7180{path}");
        let output = ok(enter(&self.network, "python3").args(["-c", script, &url]));
        serde_json::from_str(&output).unwrap_or_else(|error| panic!("{path}: {error}: {output}"))
    }

    fn names(&self) -> Vec<String> {
        let targets = self.asked("/api/onlooker/v1/targets");
        targets["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|target| target["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Everything that a join may write, with contents; of the BPF file system, whose contents change by themselves, the names.
    fn tree(&self) -> BTreeSet<String> {
        let script = format!(
            "find {WATCHED} /sys/fs/bpf -printf '%p %y %m %U %l\\n' 2>/dev/null; find {WATCHED} -type f -exec sha256sum {{}} + 2>/dev/null"
        );
        let output = self.on_host("sh").args(["-c", &script]).output().unwrap();
        text(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// It is as it was.
    fn unchanged_since(&self, before: &BTreeSet<String>, said: &str) {
        let now = self.tree();
        let changes: Vec<&String> = now.symmetric_difference(before).collect();
        assert!(changes.is_empty(), "{changes:#?}\n{said}");
    }

    /// Starts the agent as an operator would where systemd does not run.
    fn start(&self) -> Process {
        Process::start(&mut self.agent(&["run"]), "ready: ").0
    }

    /// Joins where systemd does not run: the agent is started when it is wanted.
    fn join(&self, arguments: &[&str]) -> ((i32, String), Process) {
        let mut join = self.agent(arguments);
        std::thread::scope(|scope| {
            let join = scope.spawn(move || said(&join.output().unwrap()));
            let listens = ["-qs", "listen = \"198", "/etc/onlooker/agent.toml"];
            until("the configuration", || self.on_host("grep").args(listens).status().unwrap().success().then_some(()));
            let agent = self.start();
            (join.join().unwrap(), agent)
        })
    }

    fn write(&self, path: &str, text: &str) {
        let script = format!("mkdir -p \"$(dirname {path})\" && cat > {path} <<'END'\n{text}END\n");
        ok(self.on_host("sh").args(["-c", &script]));
    }

    fn read(&self, path: &str) -> String {
        ok(self.on_host("cat").arg(path))
    }
}

fn hold(mounts: &str, spaces: &[&str]) -> Process {
    let script = format!("{mounts} && echo held >&2 && exec sleep 3600");
    Process::start(Command::new("unshare").args(spaces).args(["sh", "-c", &script]), "held").0
}

fn enter(space: &Process, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &space.pid().to_string(), "--net", "--mount", "--", program]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Exit code and all that was said.
fn said(output: &Output) -> (i32, String) {
    (output.status.code().unwrap(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

fn url() -> String {
    format!("http://{CONTROLLER}:7180")
}

#[test]
fn a_dry_run_changes_nothing_and_a_wrong_token_or_no_controller_neither() {
    if !is_root("join in namespaces") {
        return;
    }
    let world = World::new();
    let before = world.tree();
    let (code, said_) = said(&world.agent(&["join", &url(), TOKEN]).output().unwrap());
    assert_eq!(code, 1, "{said_}");
    assert!(said_.contains("nothing listens there"), "{said_}");
    let controller = world.controller();
    for (arguments, code, parts) in [
        (
            vec!["join", "--dry-run", &url(), TOKEN],
            0,
            vec![
                "would configuration: write /etc/onlooker/agent.toml",
                "+devices = [\"eth0\"]",
                "saddr 198.18.90.1/32",
                "takes the token",
                "would join",
            ],
        ),
        (vec!["join", &url(), "another-token-than-that"], 1, vec!["(401)", "join_token_file"]),
        (vec!["join", "--dry-run", &url(), "another-token-than-that"], 1, vec!["(401)"]),
        (vec!["join", &url()], 2, vec!["ONLOOKER_JOIN_TOKEN"]),
        (vec!["join", "ftp://x", TOKEN], 2, vec!["http://HOST:PORT"]),
        (vec!["join", "--device", "eth7", &url(), TOKEN], 1, vec!["eth7"]),
        (vec!["join", "--undo"], 0, vec!["nothing to undo"]),
    ] {
        let (found, said) = said(&world.agent(&arguments).output().unwrap());
        assert_eq!(found, code, "{arguments:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{arguments:?}: {said}");
    }
    let output =
        world.agent(&["join", "--dry-run", "--json", &url()]).env("ONLOOKER_JOIN_TOKEN", TOKEN).output().unwrap();
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["ok"], &object["dry_run"]), (&Value::from(true), &Value::from(true)), "{object}");
    assert!(object["firewall"]["nftables"][0].as_str().unwrap().contains("7177, 7178"), "{object}");
    world.unchanged_since(&before, "");
    assert!(world.names().is_empty());
    drop(controller);
}

#[test]
fn a_host_is_watched_after_one_command_and_nothing_is_left_after_another() {
    if !is_root("join in namespaces") {
        return;
    }
    let world = World::new();
    let before = world.tree();
    let controller = world.controller();
    world.write("/mnt/token", &format!("{TOKEN}\n"));
    let how = ["--name", "web-1", "--label", "dc=a", "--interval", "20ms", "--priority", "low"];
    let url = url();
    let arguments: Vec<&str> = ["join"].into_iter().chain(how).chain([&*url, "@/mnt/token"]).collect();
    let (joined, agent) = world.join(&arguments);
    assert_eq!(joined.0, 0, "{}", joined.1);
    for part in [
        "waiting 60 s for you to start the agent",
        "the controller reads this host as web-1",
        "via kernel (no process wakes up here)",
        "cross the network in the clear",
    ] {
        assert!(joined.1.contains(part), "{}", joined.1);
    }
    // Values, at the controller.
    let host = until("values", || {
        let host = world.asked("/api/onlooker/v1/hosts/web-1");
        (host["state"] == "reading" && host["via"] == "kernel" && host["series"].as_u64()? > 20).then_some(host)
    });
    assert_eq!((host["labels"]["dc"].as_str(), host["interval_ms"].as_f64()), (Some("a"), Some(20.0)), "{host}");
    assert_eq!(host["priority"], "low", "{host}");
    let series = until("computed metrics", || {
        let series = world.asked("/api/onlooker/v1/hosts/web-1/series?search=node_memory_MemTotal_bytes");
        series["series"].as_array().filter(|series| !series.is_empty()).cloned()
    });
    assert!(series[0]["value"].as_f64().unwrap() > 1e6, "{series:?}");

    // Again: nothing is to be done, and the host stays where it is.
    let once = world.tree();
    let (code, again) = said(&world.agent(&arguments).output().unwrap());
    assert_eq!(code, 0, "{again}");
    assert!(
        again.contains("kept  configuration") && again.contains("the controller reads this host as web-1"),
        "{again}"
    );
    world.unchanged_since(&once, &again);
    assert_eq!(world.names(), ["web-1"]);
    // The name of a host is not another's, who has another token.
    world.write("/mnt/other.toml", "[agent]\nstate_dir = \"/mnt/other\"\n");
    let other = ["join", "--config", "/mnt/other.toml", "--name", "web-1", "--dry-run", &url, TOKEN];
    let (code, taken) = said(&world.agent(&other).output().unwrap());
    assert_eq!(code, 1, "{taken}");
    assert!(taken.contains("(409)") && taken.contains("--replace"), "{taken}");

    // The controller forgets it at once; the rest waits for the agent's end, which only its starter can bring about.
    let (code, running) = said(&world.agent(&["join", "--undo"]).output().unwrap());
    assert_eq!(code, 1, "{running}");
    assert!(running.contains("stop it, then run this again"), "{running}");
    assert!(world.names().is_empty());
    agent.terminate();
    let (code, undone) = said(&world.agent(&["join", "--undo"]).output().unwrap());
    assert_eq!(code, 0, "{undone}");
    ok(world.on_host("sh").args(["-c", "rm -r /run/onlooker; rmdir /sys/fs/bpf/onlooker 2>/dev/null; true"]));
    world.unchanged_since(&before, &undone);
    drop(controller);
}

#[test]
fn a_firewall_in_the_way_is_named_and_the_same_command_goes_on_from_there() {
    if !is_root("join in namespaces") {
        return;
    }
    let world = World::new();
    let controller = world.controller();
    // The host reaches the controller, and the controller not the address that it is told: its packets end at a neighbour that is none.
    let address = "198.18.91.2";
    ok(world.on_host("ip").args(["addr", "add", "198.18.91.2/32", "dev", "eth0"]));
    for arguments in ["route add 198.18.91.2/32 dev eth0", "neigh add 198.18.91.2 lladdr 02:00:00:00:00:99 dev eth0"] {
        ok(enter(&world.network, "ip").args(arguments.split(' ')));
    }
    let place = format!("{address}:7177");
    let arguments = ["join", "--name", "web-2", "--address", &place, &url(), TOKEN];
    let ((code, failed), agent) = world.join(&arguments);
    assert_eq!(code, 1, "{failed}");
    for part in [
        "the controller cannot read this host",
        "apply the firewall rules above (TCP 7177 and 7178, and UDP 7179 on the way)",
        "Then run the same command again",
        "nft insert rule inet filter input ip saddr 198.18.90.1/32 tcp dport { 7177, 7178 } accept",
        "iptables -I INPUT -s 198.18.90.1/32 -p udp --dport 7179 -j ACCEPT",
    ] {
        assert!(failed.contains(part), "{failed}");
    }
    assert!(world.names().is_empty());
    ok(enter(&world.network, "ip").args(["neigh", "del", address, "dev", "eth0"]));
    let (code, joined) = said(&world.agent(&arguments).output().unwrap());
    assert_eq!(code, 0, "{joined}");
    assert!(joined.contains("kept  configuration") && joined.contains("198.18.91.2:7177 via kernel"), "{joined}");
    assert_eq!(world.names(), ["web-2"]);
    // A controller that is gone keeps the host; what is here goes, and the rest can be done later.
    drop(controller);
    agent.terminate();
    let (code, left) = said(&world.agent(&["join", "--undo"]).output().unwrap());
    assert_eq!(code, 1, "{left}");
    assert!(left.contains("web-2 is still watched") && left.contains("remove /etc/onlooker/agent.toml"), "{left}");
    let controller = world.controller();
    let (code, undone) = said(&world.agent(&["join", "--undo"]).output().unwrap());
    assert_eq!(code, 0, "{undone}");
    assert!(world.names().is_empty());
    ok(world.on_host("test").args(["!", "-e", "/var/lib/onlooker"]));
    drop(controller);
}

#[test]
fn somebody_elses_configuration_is_changed_only_by_force_and_comes_back() {
    if !is_root("join in namespaces") {
        return;
    }
    let world = World::new();
    let controller = world.controller();
    let theirs = "# theirs\n[agent]\nhost = \"db\"\n[bootstrap]\nlisten = \"127.0.0.1:7177\"\n";
    world.write("/etc/onlooker/agent.toml", theirs);
    let before = world.tree();
    let (code, refused) = said(&world.agent(&["join", &url(), TOKEN]).output().unwrap());
    assert_eq!(code, 2, "{refused}");
    assert!(refused.contains("-listen = \"127.0.0.1:7177\"\n+listen = \"198.18.90.2:7177\""), "{refused}");
    world.unchanged_since(&before, "");
    let ((code, joined), agent) = world.join(&["join", "--force", &url(), TOKEN]);
    assert_eq!(code, 0, "{joined}");
    assert!(joined.contains("via tcp") && joined.contains("--device eth0 turns it on"), "{joined}");
    assert_eq!(world.read("/etc/onlooker/agent.toml.before-join"), theirs);
    assert!(world.read("/etc/onlooker/agent.toml").starts_with("# theirs\n[agent]\nhost = \"db\"\n"));
    // One that runs has not read what is written now: it must be another process that serves then.
    let device = ["join", "--device", "eth0", &url(), TOKEN];
    let errors = world.dir.path().join("join-errors");
    let again = std::thread::scope(|scope| {
        let join = scope.spawn(|| {
            let output = world.agent(&device).stderr(File::create(&errors).unwrap()).output().unwrap();
            said(&output)
        });
        let is_told = || {
            let told = fs::read_to_string(&errors).ok()?;
            told.contains("it was started before /etc/onlooker/agent.toml was changed").then_some(())
        };
        until("the one that runs is looked at", is_told);
        agent.terminate();
        let agent = world.start();
        let (code, joined) = join.join().unwrap();
        assert_eq!(code, 0, "{joined}");
        assert!(joined.contains("via kernel"), "{joined}");
        agent
    });
    // What was changed since is not ours any more.
    let text = world.read("/etc/onlooker/agent.toml");
    world.write("/etc/onlooker/agent.toml", &format!("{text}# a word\n"));
    again.terminate();
    let (code, undone) = said(&world.agent(&["join", "--undo"]).output().unwrap());
    assert_eq!(code, 0, "{undone}");
    assert!(undone.contains("was changed since: left as it is"), "{undone}");
    assert!(world.read("/etc/onlooker/agent.toml").ends_with("# a word\n"));
    assert!(world.names().is_empty());
    drop(controller);
}

/// What a join needs of systemd, in a few lines; the unit's ExecStart is obeyed.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >>/mnt/systemctl.log
start() {
  line=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/onlooker-agent.service)
  $line >/mnt/agent.log 2>&1 </dev/null &
  echo $! >/mnt/pid
  until grep -q 'ready: ' /mnt/agent.log; do kill -0 $! || exit 1; sleep 0.1; done
}
stop() {
  [ -e /mnt/pid ] || return 0
  kill "$(cat /mnt/pid)"
  while kill -0 "$(cat /mnt/pid)" 2>/dev/null; do sleep 0.1; done
  rm -r /mnt/pid /run/onlooker
}
case $1 in
  is-enabled) [ -e /mnt/enabled ] ;;
  is-active) [ -e /mnt/pid ] ;;
  enable) touch /mnt/enabled && start ;;
  disable) rm -f /mnt/enabled ;;
  stop) stop ;;
  restart) stop && start ;;
  daemon-reload) ;;
  *) exit 1 ;;
esac
"#;

#[test]
fn where_systemd_runs_one_command_does_it_all_and_another_leaves_nothing() {
    if !is_root("join in namespaces") {
        return;
    }
    let world = World::new();
    let controller = world.controller();
    ok(world.on_host("mkdir").args(["-p", "/run/systemd/system", "/opt/bin"]));
    world.write("/opt/bin/systemctl", SYSTEMCTL);
    ok(world.on_host("chmod").args(["755", "/opt/bin/systemctl"]));
    let path = format!("/opt/bin:{}", std::env::var("PATH").unwrap());
    let agent = |arguments: &[&str]| said(&world.agent(arguments).env("PATH", &path).output().unwrap());
    let before = world.tree();
    let (code, dry) = agent(&["join", "--dry-run", &url(), TOKEN]);
    assert_eq!(code, 0, "{dry}");
    for part in [
        "would unit: write /etc/systemd/system/onlooker-agent.service",
        "+ExecStart=/opt/onlooker-agent run",
        "would service: run systemctl enable --now",
    ] {
        assert!(dry.contains(part), "{dry}");
    }
    world.unchanged_since(&before, "");
    let (code, joined) = agent(&["join", "--name", "web-3", &url(), TOKEN]);
    let log = || {
        world.read("/mnt/systemctl.log").lines().filter(|line| !line.starts_with("is-")).collect::<Vec<_>>().join("; ")
    };
    let stop = || drop(world.on_host("/opt/bin/systemctl").arg("stop").output());
    if code != 0 {
        stop();
        panic!("{joined}");
    }
    let (code, again) = agent(&["join", "--name", "web-3", &url(), TOKEN]);
    let names = world.names();
    let (undo_code, undone) = agent(&["join", "--undo"]);
    stop();
    assert!(joined.contains("via kernel"), "{joined}");
    assert_eq!((code, undo_code), (0, 0), "{again}{undone}");
    assert!(again.contains("kept  service") && again.contains("kept  unit"), "{again}");
    assert_eq!(names, ["web-3"]);
    assert_eq!(
        log(),
        "daemon-reload; enable --now onlooker-agent.service; stop onlooker-agent.service; disable onlooker-agent.service; daemon-reload; stop"
    );
    assert!(world.names().is_empty());
    world.unchanged_since(&before, &undone);
    drop(controller);
}
