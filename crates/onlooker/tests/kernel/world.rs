// SPDX-License-Identifier: Apache-2.0
//! A watched host with a kernel responder in one network namespace, and the place of its reader in another.

use crate::common::memory::{CONTROL_RKEY, CONTROL_VA, Host, INCARNATION, Region, Shared};
use crate::common::{plain_token, responder_at, serve_at};
use onlooker_bootstrap::{Answer, KERNEL, Responder, frame};
use onlooker_metrics::collect::{InstalledGroup, Options, install};
use onlooker_region::control::{Place, RESPONDER_KERNEL, RESPONDER_TCP};
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::map::Map;
use onlooker_responder::{Config, Device, Home, Hook, Kind, Pinned, Prefix};
use onlooker_testbed::{Network, bring_up, run};
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const HOST_IP: [&str; 2] = ["10.79.1.1", "fd79:1::1"];
const READER_IP: [&str; 2] = ["10.79.1.2", "fd79:1::2"];
pub(crate) const PORT: u16 = 7179;
const BOOTSTRAP_PORT: u16 = 7177;
const TCP_PORT: u16 = 7178;
const SLAB: u32 = 0;
const SLAB_BLOCKS: u32 = 1024;
/// Room for the classes of all computed groups.
pub(crate) const CONTROL_BLOCKS: u32 = 256;

pub(crate) const GAUGE: &str = r#"{"name":"node","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"GAUGE","metric":"gauge","type":"u64"}]}]}"#;

/// A schema with one gauge.
pub(crate) fn gauge(name: &str) -> String {
    GAUGE.replace("GAUGE", name)
}

/// False, and said aloud, where these tests cannot run.
pub(crate) fn is_possible() -> bool {
    onlooker_testbed::is_root("reads over the kernel responder")
}

/// The watched host. The test's thread is in its namespaces; its BPF file system is at the usual place there.
pub(crate) struct World {
    reader: Network,
    _own: onlooker_testbed::World,
    pub(crate) pinned: Pinned,
    pub(crate) host: Host,
    words: Map,
    used: Arc<Mutex<u32>>,
    answer: Arc<Mutex<Answer>>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(1024, 1500)
    }

    /// With a responder of longer READs, and an MTU of the reader's device.
    pub(crate) fn with(max_read_bytes: u32, reader_mtu: u32) -> Self {
        let own = onlooker_testbed::World::new();
        run("mount", &["--bind", own.bpffs().to_str().unwrap(), "/sys/fs/bpf"]);
        let reader = Network::new();
        connect(&reader, reader_mtu);

        let home = Home::new(Path::new("/sys/fs/bpf"), "test").unwrap();
        let config = Config { source_rate: None, cpu_rate: None, max_read_bytes, ..Config::new(PORT) };
        let pinned = Pinned::load(&config, &home).unwrap_or_else(|error| panic!("{error}"));
        let slab = pinned.create_slab(SLAB, SLAB_BLOCKS).unwrap();
        let words = Map::shared(slab.map(0, SLAB_BLOCKS, true).unwrap());
        pinned.attach(&Device::named("ve1").unwrap(), Hook::Tc).unwrap();
        for ip in READER_IP {
            pinned.allow(Prefix::host(ip.parse().unwrap())).unwrap();
        }
        pinned.set_lease(Duration::from_secs(7200)).unwrap();
        let used = Arc::new(Mutex::new(0));
        let host = host(&words, &used, CONTROL_RKEY, INCARNATION);
        let answer = Arc::new(Mutex::new(told(&host, max_read_bytes)));
        let world = Self { reader, _own: own, pinned, host, words, used, answer };
        world.publish(CONTROL_RKEY, CONTROL_VA, 0, CONTROL_BLOCKS);
        world.serve();
        world
    }

    /// Bootstrap endpoint and TCP responder, on both addresses.
    fn serve(&self) {
        for ip in HOST_IP {
            let at = |port| SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port);
            let answer = self.answer.clone();
            serve_at(at(BOOTSTRAP_PORT), move |mut stream| {
                let _ = crate::common::read_message(&mut stream);
                let _ = stream.write_all(&frame::encode(&answer.lock().unwrap().encode()).unwrap());
            });
            responder_at(at(TCP_PORT), &self.host.memory);
        }
    }

    /// Changes what the bootstrap endpoint answers.
    pub(crate) fn answer(&self, change: impl FnOnce(&mut Answer)) {
        change(&mut self.answer.lock().unwrap());
    }

    fn publish(&self, rkey: u32, va: u64, first_block: u32, blocks: u32) {
        let kind = Kind::Memory { slab: SLAB, first_block };
        self.pinned.add_region(rkey, &onlooker_responder::Region { va, blocks, kind }).unwrap();
    }

    /// A region with one gauge, served as `responders` say.
    pub(crate) fn region(&mut self, id: u32, name: &str, metric: &str, responders: u32) -> Region {
        self.region_of(id, name, &gauge(metric), responders)
    }

    /// A region of any schema.
    pub(crate) fn region_of(&mut self, id: u32, name: &str, schema: &str, responders: u32) -> Region {
        let first_block = *self.used.lock().unwrap();
        self.host.responders = responders;
        let region = self.host.region(id, name, &[], schema);
        let (blocks, memory) = (*self.used.lock().unwrap() - first_block, &self.host.memory);
        if responders & RESPONDER_KERNEL != 0 {
            self.publish(region.entry.rkey, region.entry.va, first_block, blocks);
        }
        if responders & RESPONDER_TCP == 0 {
            memory.remove(region.entry.rkey);
        }
        region
    }

    /// The kernel's own metrics: regions that have no memory and are computed at each READ.
    pub(crate) fn computed(&mut self, first_id: u32) -> Vec<InstalledGroup> {
        let installed = install(&self.pinned, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        for (id, group) in (first_id..).zip(&installed.groups) {
            let region = self.region_of(id, group.name, &group.schema.canonical(), RESPONDER_KERNEL);
            let kind = Kind::Computed { collector: group.slot, identity: region.entry.identity.word() };
            let computed = onlooker_responder::Region { va: region.entry.va, blocks: group.blocks, kind };
            self.pinned.add_region(region.entry.rkey, &computed).unwrap();
        }
        installed.groups
    }

    /// Publishes a region's memory under another key.
    pub(crate) fn rekey(&self, region: &Region, first_block: u32, rkey: u32) {
        self.pinned.remove_region(region.entry.rkey).unwrap();
        self.publish(rkey, region.entry.va, first_block, 1);
    }

    /// What a restart of the agent that loses its directory does: another control region, elsewhere, of another incarnation; the old one goes.
    pub(crate) fn restart(&mut self) {
        let old = self.host.control.place();
        let (rkey, first_block) = (old.rkey + 1, *self.used.lock().unwrap());
        let memory = self.host.memory.clone();
        self.host = host(&self.words, &self.used, rkey, old.incarnation + 1);
        self.host.memory = memory;
        self.publish(rkey, CONTROL_VA, first_block, CONTROL_BLOCKS);
        *self.answer.lock().unwrap() = told(&self.host, self.pinned.config().max_read_bytes);
        self.pinned.remove_region(old.rkey).unwrap();
    }

    /// `onlooker ARGUMENTS` in the reader's namespace.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        self.reader.enter(|| onlooker(arguments).spawn().unwrap())
    }

    /// Its exit code, standard output, standard error.
    pub(crate) fn onlooker(&self, arguments: &[&str]) -> (i32, String, String) {
        told_by(&self.spawn(arguments).wait_with_output().unwrap())
    }

    /// The same at the host itself.
    pub(crate) fn at_host(arguments: &[&str]) -> (i32, String, String) {
        told_by(&onlooker(arguments).output().unwrap())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.pinned.home().purge();
    }
}

fn onlooker(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
    command.args(arguments).env("ONLOOKER_TOKEN", plain_token().text());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn told_by(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&output.stdout), without_warning(&text(&output.stderr)));
    assert!(!err.contains("panicked"), "{err}");
    (output.status.code().expect("it ended by itself"), out, err)
}

/// All tokens here are for plain endpoints.
fn without_warning(err: &str) -> String {
    let others = err.lines().filter(|line| !line.contains("this token is for a plain endpoint"));
    others.fold(String::new(), |text, line| text + line + "\n")
}

/// A host whose directory and regions are in the slab.
fn host(words: &Map, used: &Arc<Mutex<u32>>, rkey: u32, incarnation: u32) -> Host {
    let place = Place { va: CONTROL_VA, rkey, incarnation, responders: RESPONDER_TCP | RESPONDER_KERNEL };
    let (words, used) = (words.clone(), used.clone());
    let allocate = move |blocks: usize| {
        let mut used = used.lock().unwrap();
        let from = *used as usize * BLOCK_WORDS;
        *used += u32::try_from(blocks).unwrap();
        assert!(*used <= SLAB_BLOCKS);
        Shared(words.window(from..from + blocks * BLOCK_WORDS))
    };
    let control = allocate(CONTROL_BLOCKS as usize);
    Host::within(control, place, Box::new(allocate))
}

fn told(host: &Host, max_read_bytes: u32) -> Answer {
    let mut answer = host.answer(TCP_PORT);
    let kernel =
        Responder { kind: KERNEL.into(), port: PORT, max_read_bytes: Some(max_read_bytes), ..Responder::default() };
    answer.responders.push(kernel);
    answer
}

fn connect(reader: &Network, reader_mtu: u32) {
    let up = |device: &str, [v4, v6]: [&str; 2], mtu: u32| {
        run("ip", &["link", "set", device, "mtu", &mtu.to_string()]);
        bring_up(device, &[&format!("{v4}/24"), &format!("{v6}/64")]);
    };
    reader.add_veth("ve1", "ve2");
    up("ve1", HOST_IP, 9000);
    reader.enter(|| up("ve2", READER_IP, reader_mtu));
}
