// SPDX-License-Identifier: Apache-2.0
//! A program that publishes one counter, by the registration protocol alone: what an SDK does, in the open.
//!
//! Usage: `program SOCKET NAME`. Commands come as lines on standard input, each answered by a line: `create`, `publish`, `set N`, `hold` (a child
//! keeps the connection open), `raw JSON`, `quit`. The tests of the agent drive it to be crashed in the middle.

use std::error::Error;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use onlooker_local::seqpacket;
use onlooker_region::block::{Identity, init_plain, plain_place};
use onlooker_region::map::Map;
use onlooker_responder::SlabMapping;
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A memfd, or where the agent has a kernel responder, a BPF array.
fn map(slab: &OwnedFd, offset: u64, bytes: u64) -> Outcome<Map> {
    Map::of(slab, offset, bytes, true).or_else(|_| {
        let mapping = SlabMapping::of(slab, u32::try_from(offset / 1024)?, u32::try_from(bytes / 1024)?, true)?;
        Ok(Map::shared(mapping))
    })
}

struct Program {
    socket: OwnedFd,
    region: Option<(u64, Map)>,
}

impl Program {
    fn ask(&self, request: &str) -> Outcome<(Value, Option<OwnedFd>)> {
        seqpacket::send(&self.socket, request.as_bytes(), None)?;
        let mut buffer = vec![0; 1 << 17];
        let mut packet = seqpacket::receive(&self.socket, &mut buffer)?;
        Ok((serde_json::from_slice(&buffer[..packet.bytes])?, packet.descriptors.pop()))
    }

    fn create(&mut self, name: &str) -> Outcome<Value> {
        let field = json!({"name": "program_value", "metric": "gauge", "type": "u64"});
        let schema = json!({"name": "program", "groups": [{"kind": "plain", "blocks": 1, "fields": [field]}]});
        let request = json!({"op": "create", "name": name, "schema": schema});
        let (answer, descriptor) = self.ask(&request.to_string())?;
        if let (Some(descriptor), region) = (descriptor, &answer["region"]) {
            let number = |key: &str| region[key].as_u64().ok_or_else(|| format!("no {key} in {answer}"));
            let memory = map(&descriptor, number("offset")?, number("mapped_bytes")?)?;
            let identity = Identity::first(u32::try_from(number("id")?)?, u32::try_from(number("generation")?)?);
            init_plain(&memory.words()[..128], identity);
            self.region = Some((number("id")?, memory));
        }
        Ok(answer)
    }

    fn command(&mut self, name: &str, line: &str) -> Outcome<Value> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (verb, &self.region) {
            ("create", _) => self.create(name),
            ("publish", Some((id, _))) => Ok(self.ask(&json!({"op": "publish", "region": id}).to_string())?.0),
            ("set", Some((_, memory))) => {
                memory.words()[plain_place(0).1].store(rest.parse()?, Ordering::Relaxed);
                Ok(json!({"ok": true}))
            }
            ("hold", _) => {
                let child = Command::new("sleep")
                    .arg("60")
                    .stdin(Stdio::from(self.socket.try_clone()?))
                    .stdout(Stdio::null())
                    .spawn()?;
                Ok(json!({"ok": true, "pid": child.id()}))
            }
            ("raw", _) => Ok(self.ask(rest)?.0),
            _ => Err(format!("`{line}` cannot be done now").into()),
        }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, socket, name] = arguments.as_slice() else { return Err("usage: program SOCKET NAME".into()) };
    let mut program = Program { socket: seqpacket::connected(Path::new(socket))?, region: None };
    let mut out = std::io::stdout();
    let (hello, _) = program.ask(&json!({"op": "hello", "version": 1, "sdk": "example"}).to_string())?;
    writeln!(out, "{hello}")?;
    for line in std::io::stdin().lock().lines() {
        match line?.as_str() {
            "quit" => break,
            line => writeln!(out, "{}", program.command(name, line)?)?,
        }
    }
    Ok(())
}
