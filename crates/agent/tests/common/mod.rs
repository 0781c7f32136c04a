// SPDX-License-Identifier: Apache-2.0
//! A real agent in a directory of its own, a program at its socket, and a reader at its ports.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod reader;
pub(crate) mod world;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::units::Span;
use onlooker_local::seqpacket;
use onlooker_region::block::{Identity, init_plain, plain_place};
use onlooker_region::map::Map;
use onlooker_responder::SlabMapping;
use onlooker_testbed::{Process, binary, uninterrupted};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) use reader::Reader;

/// Longest wait for an answer: shorter than the sockets linger that a hostile program hands over.
const PATIENCE: Duration = Duration::from_secs(20);

/// A directory with a configuration in it; agents come and go.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) config: Config,
}

impl Place {
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        config.agent.socket = dir.path().join("run/agent.sock");
        config.agent.state_dir = dir.path().join("state");
        config.bootstrap.listen = "127.0.0.1:0".parse().expect("an address");
        config.tcp.listen = config.bootstrap.listen;
        config.bootstrap.tls = false;
        config.limits.grace = Span::from_ms(300);
        config.limits.reuse_delay = Span::from_ms(100);
        change(&mut config);
        let place = Self { dir, config };
        place.write();
        place
    }

    /// Writes a changed configuration.
    pub(crate) fn write(&self) {
        fs::write(self.config_path(), toml::to_string(&self.config).expect("serialises")).expect("writes");
    }

    pub(crate) fn config_path(&self) -> PathBuf {
        self.dir.path().join("agent.toml")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary("onlooker-agent", "onlooker-agent"));
        command.args(arguments).arg("--config").arg(self.config_path());
        command
    }

    pub(crate) fn token(&self) -> String {
        let output = self.command(&["token"]).output().expect("runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    pub(crate) fn start(&self) -> Agent {
        self.start_by(self.command(&["run"]))
    }

    /// An agent that may open only so many files.
    pub(crate) fn start_with_files(&self, files: u32) -> Agent {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {files}; exec \"$@\"")).arg("sh");
        let run = self.command(&["run"]);
        command.arg(run.get_program()).args(run.get_args());
        self.start_by(command)
    }

    /// With these capabilities only, as a service manager's bounding set has it.
    pub(crate) fn start_with_capabilities(&self, names: &[&str]) -> Agent {
        let mut command = Command::new("setpriv");
        command.arg(format!("--bounding-set=-all,+{}", names.join(",+"))).arg("--");
        let run = self.command(&["run"]);
        command.arg(run.get_program()).args(run.get_args());
        self.start_by(command)
    }

    fn start_by(&self, mut command: Command) -> Agent {
        let (process, ready) = Process::start(&mut command, "ready: ");
        let address = |after: &str| -> SocketAddr {
            let rest = &ready[ready.find(after).expect("in the log") + after.len()..];
            rest[..rest.find([' ', '\n']).expect("ends")].trim_end_matches(',').parse().expect("an address")
        };
        let (bootstrap, tcp) = (address("bootstrap "), address("over TCP "));
        let (pid, log) = (process.pid(), process.heard());
        let (socket, token) = (self.config.agent.socket.clone(), self.token());
        Agent { process: Some(process), pid, bootstrap, tcp, socket, token, log }
    }
}

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    process: Option<Process>,
    pid: u32,
    pub(crate) bootstrap: SocketAddr,
    pub(crate) tcp: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) token: String,
    /// What it said until it was ready.
    pub(crate) log: String,
}

impl Agent {
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::connect(self)
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket)
    }

    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it as a service manager does; returns how it ended and what it said.
    pub(crate) fn terminate(&mut self) -> (ExitStatus, String) {
        self.process.take().expect("it runs").terminate_and_hear()
    }

    /// Waits until it says something; returns what it has said since it was asked last.
    pub(crate) fn until(&mut self, text: &str) -> String {
        self.process.as_mut().expect("it runs").until_says(text)
    }

    /// What it holds of memory, its own and shared. Not its text: the kernel drops and reads that again as it likes.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("reads");
        let kib =
            |line: &str| line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number");
        status.lines().filter(|line| line.starts_with("RssAnon:") || line.starts_with("RssShmem:")).map(kib).sum()
    }

    /// How often its threads have gone to sleep: a busy machine's scheduler interrupts them as well, which is not counted.
    pub(crate) fn switches(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).expect("reads");
        let of_task = |task: std::io::Result<fs::DirEntry>| {
            let status = fs::read_to_string(task.expect("a task").path().join("status")).unwrap_or_default();
            let counts = status
                .lines()
                .filter(|line| line.starts_with("voluntary_ctxt_switches"))
                .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
            counts.sum::<u64>()
        };
        tasks.map(of_task).sum()
    }

    /// The CPU time it has used, in hundredths of a second.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("reads");
        let (_, after_name) = stat.rsplit_once(") ").expect("a name");
        after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid())).expect("reads").count()
    }
}

/// A schema of one plain block with one gauge, or of `blocks` of them.
pub(crate) fn schema(blocks: u32) -> Value {
    let field = json!({"name": "test_value", "metric": "gauge", "type": "u64"});
    json!({"name": "test", "groups": [{"kind": "plain", "blocks": blocks, "fields": [field]}]})
}

/// A connection to the registration socket.
pub(crate) struct Client {
    pub(crate) socket: OwnedFd,
}

impl Client {
    /// Connected and greeted.
    pub(crate) fn connect(path: &Path) -> Self {
        let client = Self::silent(path);
        let answer = client.ask(&json!({"op": "hello", "version": 1, "sdk": "test"}));
        assert_eq!(answer["ok"], true, "{answer}");
        client
    }

    /// Connected only.
    pub(crate) fn silent(path: &Path) -> Self {
        let socket = seqpacket::connected(path).expect("connects");
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))
            .expect("sets");
        Self { socket }
    }

    pub(crate) fn send(&self, packet: &[u8], descriptor: Option<BorrowedFd>) -> std::io::Result<()> {
        seqpacket::send(&self.socket, packet, descriptor)
    }

    /// `None` at the end of the connection.
    pub(crate) fn receive(&self) -> Option<(Value, Option<OwnedFd>)> {
        let mut buffer = vec![0; 1 << 17];
        let received = uninterrupted(|| seqpacket::receive(&self.socket, &mut buffer));
        let mut packet = received.ok().filter(|packet| packet.bytes > 0)?;
        Some((serde_json::from_slice(&buffer[..packet.bytes]).expect("JSON"), packet.descriptors.pop()))
    }

    pub(crate) fn raw(&self, packet: &[u8]) -> Value {
        self.send(packet, None).expect("sends");
        self.receive().expect("an answer").0
    }

    pub(crate) fn ask(&self, request: &Value) -> Value {
        self.raw(request.to_string().as_bytes())
    }

    /// The error's code; its message must say something.
    pub(crate) fn refused(&self, request: &Value) -> String {
        refused(&self.ask(request))
    }

    pub(crate) fn adopt(&self, request: &Value, descriptor: impl AsFd) -> Value {
        self.send(request.to_string().as_bytes(), Some(descriptor.as_fd())).expect("sends");
        self.receive().expect("an answer").0
    }

    /// Creates, fills and publishes a region of one gauge.
    pub(crate) fn publish(&self, name: &str, value: u64) -> Published {
        let region = self.create(name, 1);
        region.set(value);
        let answer = self.ask(&json!({"op": "publish", "region": region.id}));
        assert_eq!(answer["ok"], true, "{answer}");
        region
    }

    /// Creates a region and writes its identities.
    pub(crate) fn create(&self, name: &str, blocks: u32) -> Published {
        self.send(json!({"op": "create", "name": name, "schema": schema(blocks)}).to_string().as_bytes(), None)
            .expect("sends");
        let (answer, descriptor) = self.receive().expect("an answer");
        assert_eq!(answer["ok"], true, "{answer}");
        Published::map(name, &answer["region"], &descriptor.expect("a slab"))
    }
}

/// The agent sees the end at once, also while a process that another test's thread has just forked has a copy of the socket.
impl Drop for Client {
    fn drop(&mut self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

pub(crate) fn refused(answer: &Value) -> String {
    assert_eq!(answer["ok"], false, "{answer}");
    assert!(answer["message"].as_str().is_some_and(|message| message.len() > 10), "{answer}");
    answer["error"].as_str().expect("a code").to_owned()
}

/// A region as its program sees it.
pub(crate) struct Published {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) generation: u64,
    pub(crate) offset: u64,
    pub(crate) resumed: bool,
    memory: Map,
}

impl Published {
    pub(crate) fn map(name: &str, region: &Value, slab: &OwnedFd) -> Self {
        let number = |key: &str| region[key].as_u64().unwrap_or_else(|| panic!("{key} of {region}"));
        let memory = Map::of(slab, number("offset"), number("mapped_bytes"), true).unwrap_or_else(|_| {
            let blocks = |key| u32::try_from(number(key) / 1024).expect("small");
            let mapping = SlabMapping::of(slab, blocks("offset"), blocks("mapped_bytes"), true);
            Map::shared(mapping.expect("a memfd or a BPF array"))
        });
        let resumed = region["resumed"] == true;
        let mine = Self {
            name: name.into(),
            id: number("id"),
            generation: number("generation"),
            offset: number("offset"),
            resumed,
            memory,
        };
        if !resumed {
            assert!(mine.memory.words().iter().all(|word| word.load(Ordering::Relaxed) == 0), "a new range is zero");
            let first = Identity::first(u32::try_from(mine.id).unwrap(), u32::try_from(mine.generation).unwrap());
            let blocks = usize::try_from(number("bytes") / 1024).unwrap();
            for (index, words) in (0..).zip(mine.memory.words().chunks_exact(128).take(blocks)) {
                init_plain(words, first.at(index));
            }
        }
        mine
    }

    pub(crate) fn set(&self, value: u64) {
        self.memory.words()[plain_place(0).1].store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.memory.words()[plain_place(0).1].load(Ordering::Relaxed)
    }
}

/// A region that must read right whatever is done to the agent beside it.
pub(crate) struct Bystander {
    _client: Client,
    region: Published,
    reader: Reader,
    value: u64,
}

impl Bystander {
    pub(crate) fn new(agent: &Agent) -> Self {
        let client = agent.client();
        let region = client.publish("bystander", 1);
        Self { _client: client, region, reader: agent.reader(), value: 1 }
    }

    /// Changes its value and reads it back through the agent.
    pub(crate) fn check(&mut self) {
        self.value += 1;
        self.region.set(self.value);
        let values = self.reader.values("bystander");
        #[allow(clippy::cast_precision_loss)]
        let expected = self.value as f64;
        assert_eq!(values.get("test_value{}"), Some(&expected), "{values:?}");
    }

    /// One of the agent's counters.
    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        self.reader.counter(name)
    }
}

/// The example program, in a process of its own.
pub(crate) struct Program {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(agent: &Agent, name: &str) -> Self {
        Self::start_by(Command::new(Self::path()), agent, name)
    }

    /// As another user.
    pub(crate) fn start_as(agent: &Agent, name: &str, uid: u32) -> Self {
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={uid}")).args(["--clear-groups", "--"]).arg(Self::path());
        Self::start_by(command, agent, name)
    }

    fn path() -> PathBuf {
        binary("onlooker-agent", "onlooker-agent").with_file_name("examples/program")
    }

    fn start_by(mut command: Command, agent: &Agent, name: &str) -> Self {
        command.arg(&agent.socket).arg(name).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts: built by `cargo test` and by `cargo build --examples`");
        let stdin = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut program = Self { child, stdin, stdout };
        let hello = program.line();
        assert_eq!(hello["ok"], true, "{hello}");
        program
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn tell(&mut self, command: &str) -> Value {
        writeln!(self.stdin, "{command}").expect("writes");
        self.line()
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("reads");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
