// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker demo`: what it shows, and that nothing of it is left, however it ends.

use onlooker_testbed::{PATIENCE, binary, is_root, json, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// What one start says of leftovers would be another test's killed demo.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_sample(command: &mut Command) -> &mut Command {
    static BUILT: OnceLock<()> = OnceLock::new();
    let dir = env!("CARGO_TARGET_TMPDIR");
    BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/c/examples/shop.c");
        let program = format!("{dir}/onlooker-demo-shop");
        assert!(Command::new("cc").args(["-pthread", source, "-o", &program]).status().unwrap().success());
    });
    command.env("PATH", format!("{dir}:{}", std::env::var("PATH").unwrap_or_default()))
}

/// A demo, and the lines that it has said.
struct Demo {
    child: Child,
    lines: Receiver<Value>,
    said: Vec<Value>,
}

impl Demo {
    fn start(command: &mut Command) -> Self {
        // The sample program is compiled where none is built; the agent is another package's program.
        let _ = binary("onlooker-agent", "onlooker-agent");
        let command = command.args(["--json", "--keep-going-for", "120s"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sender.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
            }
        });
        Self { child, lines, said: Vec::new() }
    }

    /// With a sample program on PATH: only one test waits for the compiler.
    fn here() -> Self {
        Self::start(with_sample(&mut Command::new(env!("CARGO_BIN_EXE_onlooker"))).args([
            "demo",
            "--listen",
            "127.0.0.1:0",
        ]))
    }

    /// The first document with `key` in it.
    fn until(&mut self, key: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no `{key}` after {:?}", self.said));
            self.said.push(line.clone());
            if line.get(key).is_some() {
                return line;
            }
        }
    }

    fn ready(&mut self) -> Value {
        self.until("ready")["ready"].clone()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn wait(&mut self) -> ExitStatus {
        until("the demo's end", || self.child.try_wait().unwrap())
    }

    fn said(&self, key: &str, name: &str) -> Option<&Value> {
        self.said.iter().find(|line| line[key] == name)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Its own cleaning-up is what a failed test needs, too.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

fn address(ready: &Value) -> SocketAddr {
    ready["address"].as_str().unwrap().parse().unwrap()
}

/// Sum of all series of a metric, as the page would find them.
fn sum(address: SocketAddr, host: &str, metric: &str) -> f64 {
    let found = json(address, &format!("/api/onlooker/v1/hosts/{host}/series?search={metric}&limit=100"));
    let series = found["series"].as_array().unwrap();
    assert!(!series.is_empty(), "{metric} is there");
    series.iter().filter_map(|series| series["value"].as_f64()).sum()
}

fn moves(address: SocketAddr, host: &str, metric: &str) {
    let before = sum(address, host, metric);
    until(metric, || (sum(address, host, metric) > before).then_some(()));
}

fn is_gone(pid: &Value) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    // Killed with its parent, it is a zombie until somebody asks.
    stat.is_err() || stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

/// All that is left of a demo: processes, names, files, mounts.
fn left(ready: &Value) -> Vec<String> {
    let mut left = Vec::new();
    for (name, pid) in ready["pids"].as_object().unwrap() {
        if !is_gone(pid) {
            left.push(format!("process {name} {pid}"));
        }
    }
    let of = |key: &str, directory: &str| ready[key].as_str().map(|name| format!("{directory}{name}"));
    let paths = [of("directory", ""), of("namespace", "/run/netns/"), of("device", "/sys/class/net/")];
    left.extend(paths.into_iter().flatten().filter(|path| Path::new(path).exists()));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = ready["bpffs"].as_str().unwrap_or("no mount");
    left.extend(mounts.lines().filter(|line| line.contains(mount)).map(str::to_owned));
    left
}

/// Names of the responder's programs in the kernel: pins and filters hold them.
fn has_programs(pid: &Value) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    fds.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("bpf")))
}

#[test]
fn values_move_soon_and_ctrl_c_leaves_nothing() {
    if !is_root("the demo's namespace and responder") {
        return;
    }
    let _lock = one_at_a_time();
    let mut demo = Demo::here();
    let ready = demo.ready();
    let address = address(&ready);
    assert_eq!(ready["missing"], serde_json::json!([]));
    assert_eq!(ready["host"], "demo-host");
    let host = json(address, "/api/onlooker/v1/hosts/demo-host");
    assert_eq!((host["via"].as_str(), host["state"].as_str()), (Some("kernel"), Some("reading")), "{host}");
    assert_eq!(host["interval_ms"].as_f64(), Some(10.0));
    assert_eq!(json(address, "/api/onlooker/v1/hosts/this-machine")["via"], "tcp");
    for metric in ["node_cpu_seconds_total", "shop_visits_total", "shop_orders_total", "shop_till_sales_total"] {
        moves(address, "demo-host", metric);
    }
    assert!(has_programs(&ready["pids"]["onlooker-agent"]));
    let bpffs = Path::new(ready["bpffs"].as_str().unwrap());
    assert!(fs::read_dir(bpffs).unwrap().count() > 0, "pins");

    // Without its agent the host is read all the same.
    let agent = ready["pids"]["onlooker-agent"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap()));
    kill_process(agent.unwrap(), Signal::KILL).unwrap();
    let note = demo.until("note");
    assert!(note["text"].as_str().unwrap().contains("keeps answering"), "{note}");
    moves(address, "demo-host", "node_cpu_seconds_total");

    demo.signal(Signal::INT);
    assert_eq!(demo.until("ended")["ended"], "interrupted");
    assert!(demo.wait().success());
    assert_eq!(left(&ready), Vec::<String>::new());
}

#[test]
fn a_closed_terminal_and_sigterm_end_it_as_well() {
    if !is_root("the demo's namespace and responder") {
        return;
    }
    let _lock = one_at_a_time();
    for (signal, why) in [(Signal::HUP, "the terminal was closed"), (Signal::TERM, "told to end")] {
        let mut demo = Demo::here();
        // In the middle of its start.
        demo.until("step");
        demo.signal(signal);
        assert_eq!(demo.until("ended")["ended"], why);
        assert!(demo.wait().success());
        let directory = demo.said.last().unwrap()["remains"].clone();
        assert_eq!(directory, serde_json::json!([]));
    }
}

#[test]
fn a_killed_one_takes_its_children_along_and_the_next_removes_the_rest() {
    if !is_root("the demo's namespace and responder") {
        return;
    }
    let _lock = one_at_a_time();
    let mut killed = Demo::here();
    let before = killed.ready();
    killed.signal(Signal::KILL);
    let pids = before["pids"].as_object().unwrap().clone();
    until("the children's end", || pids.values().all(is_gone).then_some(()));
    killed.wait();
    assert!(Path::new("/run/netns").join(before["namespace"].as_str().unwrap()).exists());

    // A namespace of a demo's name that no demo has noted is somebody else's.
    let foreign = "onlooker-demo-31";
    let ip = |arguments: &[&str]| Command::new("ip").args(arguments).status().unwrap().success();
    assert!(ip(&["netns", "add", foreign]));
    let mut next = Demo::here();
    let after = next.ready();
    let removed = next.said("step", "removed").map(|line| line["text"].as_str().unwrap().to_owned());
    let kept = ip(&["netns", "exec", foreign, "true"]);
    assert!(ip(&["netns", "del", foreign]));
    assert!(kept, "what is not a demo's is left alone");
    assert!(removed.is_some_and(|text| text.contains(before["namespace"].as_str().unwrap())), "{:?}", next.said);
    moves(address(&after), "demo-host", "shop_visits_total");
    next.signal(Signal::INT);
    next.wait();
    assert_eq!((left(&before), left(&after)), (vec![], vec![]));
}

#[test]
fn two_run_beside_each_other() {
    if !is_root("the demo's namespace and responder") {
        return;
    }
    let _lock = one_at_a_time();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let mut first =
        Demo::start(with_sample(&mut Command::new(env!("CARGO_BIN_EXE_onlooker"))).args(["demo", "--listen", &listen]));
    let one = first.ready();
    assert!(address(&one).port() > taken.local_addr().unwrap().port());
    assert!(first.said("note", "port").is_some(), "{:?}", first.said);
    let mut second = Demo::here();
    let two = second.ready();
    assert!(second.said("note", "running").is_some() && second.said("step", "removed").is_none(), "{:?}", second.said);
    for key in ["namespace", "device", "directory", "address"] {
        assert_ne!(one[key], two[key]);
    }
    second.signal(Signal::INT);
    second.wait();
    assert_eq!(left(&two), Vec::<String>::new());
    // The other one has not noticed.
    moves(address(&one), "demo-host", "shop_visits_total");
    first.signal(Signal::INT);
    first.wait();
    assert_eq!(left(&one), Vec::<String>::new());
}

#[test]
fn without_root_it_reads_over_tcp_and_says_what_is_missing() {
    if !is_root("becoming nobody") {
        return;
    }
    let _lock = one_at_a_time();
    // Somewhere where nobody may go, unlike perhaps the build directory.
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let agent = binary("onlooker-agent", "onlooker-agent");
    for (from, name) in [(Path::new(env!("CARGO_BIN_EXE_onlooker")), "onlooker"), (&agent, "onlooker-agent")] {
        fs::copy(from, dir.path().join(name)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(dir.path().join("onlooker"));
    command.args(["demo", "--listen", "127.0.0.1:0"]).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", "/tmp");
    let mut demo = Demo::start(&mut command);
    let ready = demo.ready();
    assert!(ready["missing"][0].as_str().unwrap().contains("not root"), "{ready}");
    assert!(demo.said("note", "missing").is_some());
    let host = json(address(&ready), "/api/onlooker/v1/hosts/this-machine");
    assert_eq!((ready["host"].as_str(), host["via"].as_str()), (Some("this-machine"), Some("tcp")));
    for metric in ["node_cpu_seconds_total", "shop_visits_total"] {
        moves(address(&ready), "this-machine", metric);
    }
    demo.signal(Signal::INT);
    assert!(demo.wait().success());
    assert_eq!(left(&ready), Vec::<String>::new());
}

#[test]
fn a_made_up_network_reports_its_paths_drops_and_a_loop() {
    if !is_root("a made-up network that reports to the demo's host") {
        return;
    }
    let _guard = one_at_a_time();
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
    let mut demo = Demo::start(with_sample(&mut command).args(["demo", "--telemetry", "--listen", "127.0.0.1:0"]));
    let ready = demo.ready();
    let (address, flow) = (address(&ready), ready["flow"].as_str().unwrap().to_owned());
    let ask = |path: &str| json(address, &format!("/api/onlooker/v1/hosts/demo-host/telemetry{path}"));
    let names: Vec<Value> = ask("")["tables"].as_array().unwrap().iter().map(|table| table["name"].clone()).collect();
    assert_eq!(names, ["flow_paths", "drops", "loops", "flow_bytes"]);
    let drop = until("a drop", || ask("/drops/entries?format=flow,u32,u8")["entries"].as_array()?.first().cloned());
    assert!(drop["entry"].as_str().unwrap().ends_with("/tcp 6 3"), "at switch 6, of a full queue: {drop}");
    let looped = until("the loop", || ask("/loops/entries?format=flow,u32,u8")["entries"].as_array()?.first().cloned());
    assert_eq!(looped["entry"], format!("{flow} 7 1"));
    let asked = flow.replace('>', "-");
    let path = until("the flow's path in circles", || {
        let found = ask(&format!("/flow_paths?key={asked}&format=u32"))["keys"][0].clone();
        found["value"].as_str()?.ends_with(",7,8,7,8").then_some(found)
    });
    // It is reported each second.
    assert!(path["age_ms"].as_u64().is_some_and(|age_ms| age_ms < 5000), "{path}");
    assert!(ask(&format!("/flow_bytes?key={asked}"))["keys"][0]["count"].as_u64() > Some(0));
    demo.signal(Signal::INT);
    assert!(demo.wait().success());
    assert_eq!(left(&ready), [""; 0]);
}
