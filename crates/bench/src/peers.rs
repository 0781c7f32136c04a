// SPDX-License-Identifier: Apache-2.0
//! The programs that answer or are watched in the watched namespace, each on the watched core: Onlooker's agent with its TCP responder, Debian's
//! prometheus-node-exporter and netdata as they come (but for addresses, and netdata's cloud), redis-server without persistence.

use crate::children::{Running, silent, start};
use crate::machine::WATCHED_CORE;
use crate::world::{ASKING, WATCHED, World};
use anyhow::{Context, Result, bail};
use onlooker_bootstrap::Token;
use onlooker_reader::bootstrap::{Bootstrapped, bootstrap};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const AGENT_BOOTSTRAP_PORT: u16 = 7177;
const AGENT_TCP_PORT: u16 = 7178;
const NODE_EXPORTER_PORT: u16 = 9100;
const NETDATA_PORT: u16 = 19999;
const REDIS_PORT: u16 = 6379;

/// A program with its directory.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) running: Running,
    pub(crate) address: SocketAddr,
    _directory: TempDir,
}

fn watched(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 78, 1, 1)), port)
}

/// Starts a program and waits until it takes connections.
fn begin(world: &World, command: &mut Command, port: u16, directory: TempDir) -> Result<Peer> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut running = start(command, WATCHED_CORE, Some(world.watched()))?;
    let address = watched(port);
    let end = Instant::now() + Duration::from_secs(40);
    while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
        if running.has_ended() || Instant::now() > end {
            bail!("{name} does not take connections at {address}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Peer { running, address, _directory: directory })
}

/// The agent at `path`, and what it tells a reader.
pub(crate) fn agent(world: &World, path: &str) -> Result<(Peer, Bootstrapped)> {
    let directory = tempfile::tempdir()?;
    let base = directory.path().display();
    let file = directory.path().join("agent.toml");
    let config = format!(
        "[agent]\nsocket = \"{base}/agent.sock\"\nstate_dir = \"{base}/state\"\n\
         [bootstrap]\nlisten = \"{WATCHED}:{AGENT_BOOTSTRAP_PORT}\"\n\
         [tcp]\nlisten = \"{WATCHED}:{AGENT_TCP_PORT}\"\nallow = [\"{ASKING}/32\"]\n"
    );
    fs::write(&file, config)?;
    let file = file.to_string_lossy().into_owned();
    let peer = begin(world, silent(path).args(["run", "--config", &file]), AGENT_BOOTSTRAP_PORT, directory)?;
    let output = Command::new(path).args(["token", "--config", &file]).output().context("asking for the token")?;
    let token = Token::parse(String::from_utf8(output.stdout)?.trim()).context("the agent's token")?;
    let told = bootstrap(&[peer.address], &token, "onlooker-bench", Duration::from_secs(5))?;
    Ok((peer, told))
}

pub(crate) fn node_exporter(world: &World) -> Result<Peer> {
    let listen = format!("--web.listen-address={WATCHED}:{NODE_EXPORTER_PORT}");
    begin(world, silent("prometheus-node-exporter").arg(listen), NODE_EXPORTER_PORT, tempfile::tempdir()?)
}

pub(crate) fn netdata(world: &World) -> Result<Peer> {
    let directory = tempfile::tempdir()?;
    let base = directory.path();
    for name in ["config", "cache", "lib", "log"] {
        fs::create_dir(base.join(name))?;
    }
    fs::write(base.join("config/.opt-out-from-anonymous-statistics"), "")?;
    let at = base.display();
    let config = format!(
        "[global]\nrun as user = root\nhostname = watched\n\
         [directories]\nconfig = {at}/config\ncache = {at}/cache\nlib = {at}/lib\nlog = {at}/log\n\
         [db]\nupdate every = 1\n[web]\nbind to = {WATCHED}:{NETDATA_PORT}\n\
         [registry]\nenabled = no\n[cloud]\nenabled = no\n[statsd]\nenabled = no\n"
    );
    let file = base.join("netdata.conf");
    fs::write(&file, config)?;
    let mut command = silent("netdata");
    command.arg("-D").arg("-c").arg(&file).arg("-P").arg(base.join("pid"));
    command.env("DO_NOT_TRACK", "1").env("DISABLE_TELEMETRY", "1");
    begin(world, &mut command, NETDATA_PORT, directory)
}

pub(crate) fn redis(world: &World) -> Result<Peer> {
    let directory = tempfile::tempdir()?;
    let mut command = silent("redis-server");
    command.args(["--bind", WATCHED, "--port", &REDIS_PORT.to_string(), "--protected-mode", "no"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(directory.path());
    begin(world, &mut command, REDIS_PORT, directory)
}
