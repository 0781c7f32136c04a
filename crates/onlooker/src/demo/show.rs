// SPDX-License-Identifier: Apache-2.0
//! The steps of a demo, in their order, and their end in the opposite one.

use super::api::{self, Moving};
use super::ending::Ending;
use super::network::{self, Network};
use super::place::Place;
use super::process::{CONTROLLER, Process};
use super::settings::{self, Agent, SAMPLED, Target};
use super::tell::Teller;
use super::watched::Watched;
use super::{Arguments, DemoError, beside, sample};
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// The watched host's name where it is a namespace.
const HOST: &str = "demo-host";
/// This machine's.
const MACHINE: &str = "this-machine";
const KERNEL_METRIC: &str = "node_cpu_seconds_total";
const SAMPLE_METRIC: &str = "shop_visits_total";
/// How long values may take until they move: a saturated machine is slow, and not broken.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long the responder may take after that; it loads its collectors behind the agent's start.
const RESPONDER_PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(40);
/// Ports that are tried.
const PORTS: u16 = 100;

/// A demo that runs.
#[derive(Debug)]
pub(super) struct Show {
    pub(super) place: Place,
    processes: Vec<Process>,
    targets: Vec<Target>,
    made: Vec<String>,
    network: Option<Network>,
    telemetry: bool,
}

impl Show {
    pub(super) fn new(place: Place, telemetry: bool) -> Self {
        Self { place, processes: Vec::new(), targets: Vec::new(), made: Vec::new(), network: None, telemetry }
    }

    /// All of it, until it is to end: never `Ok`.
    pub(super) fn all(
        &mut self,
        arguments: &Arguments,
        ending: &mut Ending,
        teller: &mut Teller,
    ) -> Result<(), DemoError> {
        let agent = beside("onlooker-agent").ok_or_else(|| DemoError::NoProgram {
            name: "onlooker-agent",
            beside: std::env::current_exe().unwrap_or_default(),
        })?;
        let mut watched = Watched::make(&mut self.place)?;
        let missing_before = watched.missing.len();
        watched.missing.iter().for_each(|missing| teller.note("missing", missing));
        let (outside, inside) = self.place.addresses();
        let host = if watched.net.is_some() { HOST } else { MACHINE };
        if watched.net.is_some() {
            let (namespace, device) = (self.place.namespace(), self.place.device());
            teller.step(
                "namespace",
                &format!(
                    "network namespace {namespace} is the watched host: {inside} on eth0, joined to {device} here"
                ),
            );
            self.made.extend([format!("namespace {namespace}"), format!("device {device}")]);
            self.agent(&agent, HOST, (inside, outside), &watched, arguments.interval, "demo", ending)?;
            let responder = if watched.bpffs.is_some() { ", with its BPF responder on eth0" } else { "" };
            teller.step("agent", &format!("onlooker-agent in it{responder}"));
        }
        let loopback = Ipv4Addr::LOCALHOST;
        let interval = if watched.net.is_some() { SAMPLED } else { arguments.interval };
        self.agent(&agent, MACHINE, (loopback, loopback), &Watched::default(), interval, "here", ending)?;
        teller.step("machine", "onlooker-agent for this machine, on loopback over TCP");
        let sample = self.sample(host, &watched, ending)?;
        match &sample {
            Ok(how) => teller.step("sample", &format!("sample program `shop` ({how})")),
            Err(missing) => teller.note("missing", missing),
        }
        if self.telemetry {
            self.network(&watched, inside, teller)?;
        }
        let address = self.controller(arguments.listen, ending, teller)?;
        teller.step("controller", &format!("controller: http://{address}/"));
        let seen = self.moving(address, host, sample.is_ok(), ending)?;
        teller.step("moving", &format!("values move: {}", seen.join(" and ")));
        if watched.bpffs.is_some() && !answers_in_softirq(address, ending)? {
            watched.missing.push(self.no_responder());
            watched.missing[missing_before..].iter().for_each(|missing| teller.note("missing", missing));
        }
        if let Some(time) = arguments.keep_going_for {
            ending.end_after(time);
        }
        self.ready(address, host, &watched, teller);
        loop {
            ending.sleep(Duration::from_millis(200))?;
            self.look(&watched, teller)?;
        }
    }

    /// The made-up network begins to report to the watched host.
    fn network(&mut self, watched: &Watched, collector: Ipv4Addr, teller: &mut Teller) -> Result<(), DemoError> {
        if watched.bpffs.is_none() {
            teller.note("missing", "no telemetry: it needs the BPF responder, and so root");
            return Ok(());
        }
        let collector = SocketAddr::from((collector, onlooker_wire::dta::PORT));
        let network = Network::start(collector).map_err(|source| DemoError::System {
            operation: "report to",
            object: collector.to_string().into(),
            source,
        })?;
        self.network = Some(network);
        teller.step("network", "eight made-up switches report paths, drops and, soon, a loop");
        Ok(())
    }

    fn keep(&mut self, process: Process) -> Result<(), DemoError> {
        let mark = process.mark();
        self.processes.push(process);
        self.place.note(|state| state.processes.extend(mark))
    }

    #[allow(clippy::too_many_arguments)] // one caller for each of two hosts
    fn agent(
        &mut self,
        program: &Path,
        host: &'static str,
        (listen, reader): (Ipv4Addr, Ipv4Addr),
        watched: &Watched,
        interval: Duration,
        role: &'static str,
        ending: &Ending,
    ) -> Result<(), DemoError> {
        let dir = self.place.path(host);
        let system = |operation, object: &Path, source| DemoError::System { operation, object: object.into(), source };
        fs::create_dir(&dir).map_err(|error| system("make", &dir, error))?;
        let settings =
            Agent { dir: &dir, listen, reader, bpffs: watched.bpffs.as_deref(), host, telemetry: self.telemetry };
        let config = dir.join("agent.toml");
        fs::write(&config, settings.toml()).map_err(|error| system("write", &config, error))?;
        let config = config.display().to_string();
        let net = watched.net.as_deref();
        let log = dir.join("agent.log");
        let name = if host == HOST { "onlooker-agent" } else { "onlooker-agent (this machine)" };
        self.keep(Process::start(name, net, program, &["run", "--config", &config], &[], log)?)?;
        let agent = self.processes.last_mut().expect("it has just been put there");
        let line = agent.until_says("ready: ", ending)?;
        let address = line.split("bootstrap ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let address = address.ok_or_else(|| agent.failed(format!("does not say where it listens: {line}")))?.to_owned();
        let token = dir.join("token");
        let mut teller =
            Process::start("onlooker-agent token", None, program, &["token", "--config", &config], &[], token.clone())?;
        if !teller.finish(ending)? {
            return Err(teller.failed("failed".into()));
        }
        self.targets.push(Target { name: host, address, token, interval, role });
        Ok(())
    }

    fn sample(
        &mut self,
        host: &str,
        watched: &Watched,
        ending: &Ending,
    ) -> Result<Result<&'static str, String>, DemoError> {
        let (program, how) = match sample::program(&mut self.place, ending)? {
            Ok(found) => found,
            Err(missing) => return Ok(Err(missing)),
        };
        let socket = self.place.path(host).join("agent.sock");
        let log = self.place.path("shop.log");
        // Longer than anybody looks on.
        let arguments = ["1000000"];
        let environment = [("ONLOOKER_SOCKET", socket.as_path())];
        self.keep(Process::start("shop", watched.net.as_deref(), &program, &arguments, &environment, log)?)?;
        Ok(Ok(how))
    }

    fn controller(&mut self, listen: SocketAddr, ending: &Ending, teller: &Teller) -> Result<SocketAddr, DemoError> {
        let program = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
        let config = self.place.path("controller.toml");
        let last = if listen.port() == 0 { 0 } else { listen.port().saturating_add(PORTS) };
        for port in listen.port()..=last {
            let address = SocketAddr::new(listen.ip(), port);
            fs::write(&config, settings::controller(&self.place.dir, address, &self.targets))
                .map_err(|source| DemoError::System { operation: "write", object: config.clone(), source })?;
            let path = config.display().to_string();
            let log = self.place.path("controller.log");
            let mut controller =
                Process::start(CONTROLLER, None, &program, &["controller", "--config", &path], &[], log)?;
            match controller.until_says("dashboard http://", ending) {
                Ok(line) => {
                    self.keep(controller)?;
                    let said =
                        line.split("dashboard http://").nth(1).and_then(|rest| rest.trim_end_matches('/').parse().ok());
                    if !listen.ip().is_loopback() {
                        teller.note("open", "the page asks for no token: everybody who reaches this address sees it");
                    }
                    return Ok(said.unwrap_or(address));
                }
                Err(DemoError::Process { tail, .. }) if tail.contains("in use") && port < last => {
                    teller.note("port", &format!("port {port} is taken"));
                }
                Err(error) => return Err(error),
            }
        }
        Err(DemoError::NoPort(listen))
    }

    /// Waits until the page has something to show.
    fn moving(
        &self,
        address: SocketAddr,
        host: &'static str,
        sample: bool,
        ending: &Ending,
    ) -> Result<Vec<String>, DemoError> {
        let (begin, mut kernel, mut shop) = (Instant::now(), Moving::default(), Moving::default());
        loop {
            let of_kernel = kernel.look(address, host, KERNEL_METRIC);
            let of_shop = !sample || shop.look(address, host, SAMPLE_METRIC);
            if of_kernel && of_shop {
                return Ok([kernel.seen.map(|_| KERNEL_METRIC), shop.seen.map(|_| SAMPLE_METRIC)]
                    .into_iter()
                    .flatten()
                    .map(Into::into)
                    .collect());
            }
            if begin.elapsed() > PATIENCE {
                let said = match api::host(address, host) {
                    Some(found) => format!("state {}, error {}", found["state"], found["error"]),
                    None => "the controller does not answer".into(),
                };
                return Err(DemoError::Still { host, seconds: PATIENCE.as_secs(), said });
            }
            ending.sleep(POLL)?;
        }
    }

    /// Why the agent has no responder, in its own words.
    fn no_responder(&self) -> String {
        let log = self
            .processes
            .iter()
            .find(|process| process.name == "onlooker-agent")
            .map(Process::log)
            .unwrap_or_default();
        let line = log.lines().find(|line| line.contains("responder") || line.contains("computed"));
        format!(
            "no BPF responder: the agent's process answers over TCP. It says: {}",
            line.unwrap_or("nothing about it")
        )
    }

    fn ready(&self, address: SocketAddr, host: &str, watched: &Watched, teller: &Teller) {
        let mut text = format!("\nThe page is at  http://{address}/#/host/{host}  ({:.1} s)\n\n", teller.took_s());
        let mut hosts = Vec::new();
        for target in &self.targets {
            let via = api::host(address, target.name).and_then(|found| found["via"].as_str().map(str::to_owned));
            let how = match via.as_deref() {
                Some("kernel") => "answered in softirq by a BPF program: a read wakes no process there",
                _ => "answered by its agent's process over TCP",
            };
            let ms = target.interval.as_secs_f64() * 1e3;
            text += &format!("  {:<13} {:<22} read every {ms} ms, {how}\n", target.name, target.address);
            hosts.push(json!({ "name": target.name, "address": target.address, "interval_ms": ms, "via": via }));
        }
        text += "\n  On the host's page: live charts of the machine; search `shop` for the sample program's own counters and its latency as a heat map.\n";
        if self.network.is_some() {
            text += &format!(
                "  Telemetry: http://{address}/#/telemetry?host={host} has drops and a loop as they happen. Ask for the flow {}\n",
                network::example()
            );
        }
        text += "  On Reads (r): how long the reads take, and how late they are.\n";
        if watched.net.is_some() {
            text += &format!(
                "  To see a gap, with its reason:  ip link set {0} down; sleep 1; ip link set {0} up\n",
                self.place.device()
            );
        }
        text += "\nCtrl-C stops the demo and removes everything that it made.";
        let pids: serde_json::Map<String, Value> =
            self.processes.iter().map(|process| (process.name.to_owned(), process.pid().into())).collect();
        let facts = json!({
            "url": format!("http://{address}/#/host/{host}"), "address": address.to_string(), "host": host, "hosts": hosts,
            "seconds": teller.took_s(), "missing": watched.missing, "pids": pids, "directory": self.place.dir,
            "namespace": watched.net.as_ref().map(|_| self.place.namespace()), "device": watched.net.as_ref().map(|_| self.place.device()),
            "bpffs": watched.bpffs, "flow": self.network.as_ref().map(|_| network::example()),
        });
        teller.ready(&text, facts);
    }

    /// Somebody has stopped a process: only without the controller there is nothing to see any more.
    fn look(&mut self, watched: &Watched, teller: &Teller) -> Result<(), DemoError> {
        for process in &mut self.processes {
            let Some(status) = process.has_just_ended() else { continue };
            if process.name == CONTROLLER {
                return Err(process.failed(format!("ended ({status})")));
            }
            let what = match process.name {
                "onlooker-agent" if watched.bpffs.is_some() => ": its responder keeps answering",
                _ => "",
            };
            teller.note("process", &format!("{} has ended ({status}){what}", process.name));
        }
        Ok(())
    }

    /// Stops and removes everything; says what.
    pub(super) fn end(&mut self) -> String {
        self.network = None;
        // Readers first, so that nobody sees hosts fail.
        for process in self.processes.iter_mut().rev() {
            process.stop();
        }
        self.processes.clear();
        self.place.remove();
        let mut made = std::mem::take(&mut self.made);
        made.insert(0, "processes".into());
        made.push("pins and files".into());
        format!("{} are gone", made.join(", "))
    }
}

/// Whether the watched host's READs are answered by its responder; waits a little for it.
fn answers_in_softirq(address: SocketAddr, ending: &Ending) -> Result<bool, DemoError> {
    let begin = Instant::now();
    loop {
        let computed = |host: &Value| {
            let regions = host["regions_list"].as_array();
            regions.is_some_and(|regions| {
                regions.iter().any(|region| {
                    region["acquisition"].as_array().is_some_and(|how| how.iter().any(|how| how == "computed"))
                })
            })
        };
        if api::host(address, HOST).is_some_and(|host| host["via"] == "kernel" && computed(&host)) {
            return Ok(true);
        }
        if begin.elapsed() > RESPONDER_PATIENCE {
            return Ok(false);
        }
        ending.sleep(POLL)?;
    }
}
