// SPDX-License-Identifier: Apache-2.0
//! A world of one test with an agent that has the kernel responder, and a reader by that.
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use onlooker_bootstrap::Answer;
use onlooker_reader::clock::steady_ns;
use onlooker_reader::drive::{DriveError, read_host};
use onlooker_reader::{Limits, ReadError, Requester, Session, Via};
use onlooker_region::control::RegionEntry;
use onlooker_region::schema::Acquisition;
use onlooker_responder::{Home, Pinned};
use onlooker_telemetry::{Memory, Table};
use onlooker_transport::soft::{Config, FlowConfig, SoftRequester};

use super::{Agent, Place};

pub(crate) struct World(onlooker_testbed::World);

impl World {
    /// `None`, said loudly, where this may not be made: the tests need root and BPF.
    pub(crate) fn new() -> Option<Self> {
        let own = onlooker_testbed::World::try_new();
        let skipped = |reason: &String| {
            eprintln!("SKIPPED: {reason}: run the tests of the kernel responder on a kernel with BPF, as root");
        };
        own.inspect_err(skipped).ok().map(Self)
    }

    pub(crate) fn bpffs(&self) -> &Path {
        self.0.bpffs()
    }

    /// A place whose agent has the kernel responder on `devices`.
    pub(crate) fn place(
        &self,
        devices: &[&str],
        change: impl FnOnce(&mut onlooker_agent_lib::config::Config),
    ) -> Place {
        Place::new(|config| {
            config.kernel.devices = devices.iter().map(ToString::to_string).collect();
            config.kernel.bpffs = self.bpffs().into();
            config.kernel.slab = onlooker_agent_lib::units::Size::from_bytes(64 << 10);
            config.limits.grace = onlooker_agent_lib::units::Span::from_s(3);
            change(config);
        })
    }

    pub(crate) fn home(&self) -> Home {
        Home::new(self.bpffs(), "agent").expect("a BPF file system")
    }

    pub(crate) fn pinned(&self) -> Pinned {
        Pinned::open(&self.home()).expect("a responder is pinned")
    }
}

/// A reader by the kernel responder, bootstrapped once: what it knows must stay right over restarts of the agent.
pub(crate) struct KernelReader {
    session: Session,
    requester: SoftRequester,
}

/// A region as it was read: its entry, and the values of its first field by name.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) entry: RegionEntry,
    pub(crate) values: Vec<(String, f64)>,
}

impl Seen {
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.values.iter().find(|(field, _)| field == name).unwrap_or_else(|| panic!("{name} of {self:?}")).1
    }
}

/// A value as it was read.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) region: String,
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
    pub(crate) time_ns: u64,
    pub(crate) resolution_ns: u64,
    pub(crate) acquisition: Acquisition,
}

impl KernelReader {
    pub(crate) fn connect(agent: &Agent) -> Self {
        Self::connect_at(agent, "127.0.0.1")
    }

    pub(crate) fn connect_at(agent: &Agent, address: &str) -> Self {
        let told = super::reader::bootstrap(agent.bootstrap, &agent.token);
        let answer = Answer::decode(told.to_string().as_bytes()).expect("an answer");
        let responder = answer.responder(onlooker_bootstrap::KERNEL).expect("the kernel responder is announced");
        let peer = SocketAddr::new(address.parse().expect("an address"), responder.port);
        let flow = FlowConfig { max_read_bytes: answer.max_read_blocks(responder) * 1024, ..FlowConfig::default() };
        let requester = SoftRequester::connect(peer, Config::default(), flow).expect("a requester");
        let session = Session::new(&answer, Via::Kernel, requester.max_read_blocks(), Limits::default());
        Self { session, requester }
    }

    /// On a busy machine a softirq may wait for longer than a session does.
    fn read(&mut self) -> Result<(), DriveError> {
        let mut read = || {
            let deadline_ns = steady_ns() + u64::try_from(Duration::from_secs(5).as_nanos()).expect("small");
            read_host(&mut self.requester, &mut self.session, deadline_ns, steady_ns)
        };
        let silence = Err(DriveError::Read(ReadError::Timeout));
        (0..3).map(|_| read()).find(|result| *result != silence).unwrap_or(silence)
    }

    /// The telemetry tables that there are now.
    pub(crate) fn tables(&mut self) -> Vec<Table> {
        self.read().expect("the directory is read");
        Table::all(self.session.directory())
    }

    pub(crate) fn memory(&mut self) -> Memory<'_, SoftRequester> {
        Memory { requester: &mut self.requester, timeout: Duration::from_secs(5) }
    }

    pub(crate) fn try_regions(&mut self) -> Result<Vec<Seen>, String> {
        self.read().map_err(|error| error.to_string())?;
        let mut regions = Vec::new();
        for frame in self.session.frames() {
            if let Some(problem) = frame.problem() {
                return Err(format!("{}: {problem:?}", frame.entry().name));
            }
            let mut values = Vec::new();
            frame.decode(|sample| values.push((sample.field.name.clone(), sample.scaled())));
            regions.push(Seen { entry: RegionEntry::clone(frame.entry()), values });
        }
        Ok(regions)
    }

    /// Each region's values by name, or why it could not be read.
    pub(crate) fn outcomes(&mut self) -> BTreeMap<String, Result<Vec<(String, f64)>, String>> {
        self.read().expect("the directory is read");
        let outcomes = self.session.frames().map(|frame| {
            let mut values = Vec::new();
            frame.decode(|sample| values.push((sample.field.name.clone(), sample.scaled())));
            let outcome = frame.problem().map_or(Ok(values), |problem| Err(format!("{problem:?}")));
            (frame.entry().name.clone(), outcome)
        });
        outcomes.collect()
    }

    /// Every value with its region, its labels and its time; regions that cannot be read are left out.
    pub(crate) fn series(&mut self) -> Vec<Series> {
        self.regions();
        let mut all = Vec::new();
        for frame in self.session.frames() {
            frame.decode(|sample| {
                all.push(Series {
                    region: frame.entry().name.clone(),
                    name: sample.field.name.clone(),
                    labels: sample.labels().into_iter().collect(),
                    value: sample.scaled(),
                    time_ns: sample.time_ns.unwrap_or(0),
                    resolution_ns: sample.field.resolution_ns,
                    acquisition: sample.group.acquisition,
                });
            });
        }
        all
    }

    pub(crate) fn regions(&mut self) -> Vec<Seen> {
        self.try_regions().unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn region(&mut self, name: &str) -> Option<Seen> {
        self.regions().into_iter().find(|region| region.entry.name == name)
    }

    pub(crate) fn value(&mut self, name: &str) -> f64 {
        self.value_of(name, "test_value")
    }

    pub(crate) fn value_of(&mut self, name: &str, field: &str) -> f64 {
        self.region(name).unwrap_or_else(|| panic!("no region {name}")).value(field)
    }
}
