// SPDX-License-Identifier: Apache-2.0
//! A real agent in a directory of its own, and a reader at its TCP port.
#![allow(dead_code, reason = "each test file uses a part of it")]

use onlooker_region::Block;
use onlooker_region::columns::Plan;
use onlooker_region::control::{Directory, RegionEntry, assemble_schema, schema_extent};
use onlooker_wire::tcp_read::{self, Decoded};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything, on a machine however busy: no test passes or fails by it unless a state is never reached.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "timed out: {what}; the SDK: {:?}", onlooker_sdk::status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Has the SDK of this process use `socket`. Called before anything of the SDK.
pub(crate) fn use_socket(socket: &Path) {
    // SAFETY: first statement of the only test of its process: no other thread looks at the environment.
    unsafe { std::env::set_var("ONLOOKER_SOCKET", socket) };
}

/// The agent's program: `ONLOOKER_AGENT`, or built beside this test.
fn agent_program() -> PathBuf {
    if let Some(program) = std::env::var_os("ONLOOKER_AGENT") {
        return program.into();
    }
    let mut directory = std::env::current_exe().expect("a path");
    directory.pop();
    directory.pop();
    let profile = if directory.ends_with("release") { "release" } else { "dev" };
    let target = directory.parent().expect("a target directory");
    let built = Command::new(env!("CARGO"))
        .args(["build", "-q", "-p", "onlooker-agent", "--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the agent does not build");
    directory.join("onlooker-agent")
}

/// A directory with a configuration in it; agents come and go.
pub(crate) struct Site {
    pub(crate) directory: tempfile::TempDir,
    program: PathBuf,
}

impl Site {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().display();
        let config = format!(
            "[agent]\nsocket = \"{path}/run/agent.sock\"\nstate_dir = \"{path}/state\"\n\
             [bootstrap]\nlisten = \"127.0.0.1:0\"\ntls = false\n[tcp]\nlisten = \"127.0.0.1:0\"\n\
             [limits]\ngrace = \"300ms\"\nreuse_delay = \"100ms\"\n"
        );
        std::fs::write(directory.path().join("agent.toml"), config).expect("writes");
        Self { directory, program: agent_program() }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("run/agent.sock")
    }

    fn command(&self, operation: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(operation).arg("--config").arg(self.directory.path().join("agent.toml"));
        command
    }

    /// Starts an agent and waits until it is ready.
    pub(crate) fn start(&self) -> Agent {
        let mut child = self.command("run").stderr(Stdio::piped()).spawn().expect("starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut log = String::new();
        while !log.contains("ready: ") {
            let before = log.len();
            stderr.read_line(&mut log).expect("reads");
            assert!(log.len() > before, "the agent ended: {log}");
        }
        let token = self.command("token").output().expect("runs").stdout;
        let token = String::from_utf8(token).expect("text").trim().to_owned();
        let address = |after: &str| {
            let rest = &log[log.find(after).expect("in the log") + after.len()..];
            rest[..rest.find([' ', '\n']).expect("ends")].trim_end_matches(',').to_owned()
        };
        let (bootstrap, tcp) = (address("bootstrap "), address("over TCP "));
        Agent { child, _stderr: stderr, bootstrap, tcp, token }
    }
}

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    child: Child,
    _stderr: BufReader<ChildStderr>,
    bootstrap: String,
    tcp: String,
    token: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }
}

/// Reads an agent's regions.
pub(crate) struct Reader {
    stream: TcpStream,
    directory: Directory,
    incarnation: u32,
    va: u64,
    rkey: u32,
    bytes: u64,
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("sets");
    stream
}

impl Agent {
    pub(crate) fn reader(&self) -> Reader {
        let secret = self.token.rsplit('.').next().expect("a secret");
        let request = json!({"op": "bootstrap", "version": 1, "token": secret, "reader": "test"}).to_string();
        let mut stream = connect(&self.bootstrap);
        let length = u32::try_from(request.len()).expect("short");
        stream.write_all(&[&length.to_le_bytes()[..], request.as_bytes()].concat()).expect("writes");
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("reads");
        let mut answer = vec![0; u32::from_le_bytes(length) as usize];
        stream.read_exact(&mut answer).expect("reads");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let number = |key: &str| answer["control"][key].as_u64().unwrap_or_else(|| panic!("{key} of {answer}"));
        let incarnation = u32::try_from(number("generation")).expect("24 bits");
        Reader {
            stream: connect(&self.tcp),
            directory: Directory::new(incarnation),
            incarnation,
            va: number("va"),
            rkey: u32::try_from(number("rkey")).expect("32 bits"),
            bytes: number("bytes"),
        }
    }
}

impl Reader {
    fn more(&mut self, bytes: &mut Vec<u8>, missing: usize) {
        let from = bytes.len();
        bytes.resize(from + missing, 0);
        self.stream.read_exact(&mut bytes[from..]).expect("reads");
    }

    fn block(&mut self, va: u64, rkey: u32) -> Option<Block> {
        let read = tcp_read::Read { va, rkey, length_bytes: 1024 };
        let mut request = vec![0; tcp_read::LONGEST_REQUEST_BYTES];
        let length = tcp_read::encode_request(1, &[read], &mut request).expect("encodes");
        self.stream.write_all(&request[..length]).expect("writes");
        let expected = tcp_read::Header::new(1, 1).expect("a header");
        let mut bytes = Vec::new();
        while let Decoded::Need { missing_bytes } = tcp_read::decode_answer_header(&bytes, expected).expect("an answer")
        {
            self.more(&mut bytes, missing_bytes);
        }
        bytes.clear();
        loop {
            match tcp_read::decode_answer_item(&bytes, 1024).expect("an item") {
                Decoded::Complete { value, .. } => {
                    let mut block = Block::default();
                    block.bytes_mut().copy_from_slice(value.ok()?);
                    return Some(block);
                }
                Decoded::Need { missing_bytes } => self.more(&mut bytes, missing_bytes),
            }
        }
    }

    fn blocks(&mut self, va: u64, rkey: u32, count: u64) -> Option<Vec<Block>> {
        (0..count).map(|index| self.block(va + index * 1024, rkey)).collect()
    }

    /// Live regions now.
    pub(crate) fn regions(&mut self) -> Vec<RegionEntry> {
        let (va, rkey) = (self.va, self.rkey);
        eventually("a directory", || {
            let header = self.block(va, rkey)?;
            for index in self.directory.header(&header).ok()? {
                let block = self.block(va + u64::from(index) * 1024, rkey)?;
                self.directory.entry_block(index, &block).ok()?;
            }
            self.directory.complete();
            Some(())
        });
        self.directory.regions().filter(|region| !region.orphan).cloned().collect()
    }

    /// Values of a region as `name{label=value}`; histograms are their counts, with `name_sum`.
    pub(crate) fn values(&mut self, region: &RegionEntry) -> BTreeMap<String, f64> {
        let schema = self.directory.schema(region.schema).expect("its schema").clone();
        let (first, count) = schema_extent(&schema, self.va, self.bytes).expect("within");
        let blocks = self.blocks(schema.va, schema.rkey, count.into()).expect("the schema's blocks");
        let plan = Plan::new(assemble_schema(&schema, self.incarnation, first, &blocks).expect("a schema"));
        eventually("untorn blocks", || {
            let blocks = self.blocks(region.va, region.rkey, region.bytes / 1024)?;
            let mut values = BTreeMap::new();
            let refused = plan.decode(region.identity, &blocks, |sample| {
                let labels: Vec<String> =
                    sample.labels().iter().map(|(name, value)| format!("{name}={value}")).collect();
                values.insert(format!("{}{{{}}}", sample.field.name, labels.join(",")), sample.scaled());
            });
            refused.expect("enough blocks").is_empty().then_some(values)
        })
    }

    /// Values of the region of this name.
    pub(crate) fn named(&mut self, name: &str) -> BTreeMap<String, f64> {
        let region = self.regions().into_iter().find(|region| region.name == name);
        let region = region.unwrap_or_else(|| panic!("no region {name}"));
        self.values(&region)
    }
}
