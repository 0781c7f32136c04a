// SPDX-License-Identifier: Apache-2.0
//! Runs the tables of what a host has many of ([`onlooker_metrics::tables`]) every so often while somebody reads.
//!
//! Part of the main thread's event loop, which a run holds up for as long as it takes (docs/tables.md has the cost). Regions begin anew with each agent: their memory is a slab
//! of their own with the kernel responder, else a memfd, and one range serves both responders. Whether somebody reads is seen by READs answered, over either way, as for what
//! is sampled beside computed metrics ([`crate::pace`]): without any there is no run, and a look at the counters at most once a minute.
//!
//! A run that is longer than expected (100,000 sockets) is not repeated before twenty times its CPU time is over: 5 % of a processor at most.

use std::path::Path;
use std::rc::Rc;

use onlooker_metrics::connections::Connections;
use onlooker_metrics::tables::{Ground, Region, Source, cgroups, connections, processes};
use onlooker_region::map::{Map, sealed_memfd};
use onlooker_region::slab::{PAGE_BYTES, Range};
use onlooker_responder::Home;
use rustix::time::{ClockId, clock_gettime};

use crate::config::Config;
use crate::counters::{Counter, Counters};
use crate::directory::{Backing, Directory, SchemaText};
use crate::host;
use crate::ids::Ids;
use crate::kernel::Kernel;
use crate::kernel::ledger::Source as Place;
use crate::pace::Pace;
use crate::system;

/// A run is followed by a pause of so many times its CPU time, at least.
const LEAST_PAUSE: u64 = 20;

struct Running {
    name: &'static str,
    source: Box<dyn Source>,
    pace: Pace,
    /// What was last said of a run that failed.
    failure: Option<String>,
}

/// All tables.
pub struct Tables {
    running: Vec<Running>,
    kernel: Option<Rc<Kernel>>,
    counters: Counters,
}

/// What is configured, with its regions, to be built as soon as they have memory.
struct Draft {
    name: &'static str,
    interval_ns: u64,
    regions: Vec<Region>,
    build: Box<dyn FnOnce(Vec<Ground>, u64) -> Box<dyn Source>>,
}

fn drafts(config: &Config, home: Option<Home>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    let wanted = &config.connections;
    if wanted.enabled {
        if let Some(home) = home {
            let options = wanted.options();
            drafts.push(Draft {
                name: connections::TABLE,
                interval_ns: options.interval.as_ns(),
                regions: connections::regions(&options),
                build: Box::new(move |grounds, now_ns| {
                    Box::new(connections::Table::new(&options, Connections::new(&home), &grounds, now_ns))
                }),
            });
        } else {
            system::log(
                "warning: [connections] enabled without a kernel responder: they are read by a BPF iterator that its loader installs; name devices in [kernel]",
            );
        }
    }
    if config.cgroups.enabled {
        let options = config.cgroups.options();
        drafts.push(Draft {
            name: cgroups::TABLE,
            interval_ns: options.interval.as_ns(),
            regions: cgroups::regions(&options),
            build: Box::new(move |grounds, now_ns| Box::new(cgroups::Table::new(&options, &grounds, now_ns))),
        });
    }
    if config.processes.enabled {
        let options = config.processes.options();
        drafts.push(Draft {
            name: processes::TABLE,
            interval_ns: options.interval.as_ns(),
            regions: processes::regions(&options),
            build: Box::new(move |grounds, now_ns| {
                processes::source(&options, Path::new("/proc"), &grounds[0], now_ns)
            }),
        });
    }
    drafts
}

impl Tables {
    /// Publishes what is configured. What cannot be had is said and left out.
    #[must_use]
    pub fn install(config: &Config, directory: &mut Directory, ids: &mut Ids, counters: &Counters) -> Self {
        let kernel = directory.kernel().cloned();
        let home = kernel.as_ref().and_then(|_| Home::new(&config.kernel.bpffs, &config.kernel.name).ok());
        let mut tables = Self { running: Vec::new(), kernel: kernel.clone(), counters: counters.clone() };
        let drafts = drafts(config, home);
        if drafts.is_empty() {
            return tables;
        }
        let now_ns = host::boot_time_ns();
        let mut memory = Memory::new(kernel.as_deref(), drafts.iter().flat_map(|draft| &draft.regions));
        for Draft { name, interval_ns, regions, build } in drafts {
            let published: Result<Vec<Ground>, String> =
                regions.iter().map(|region| publish(region, &mut memory, directory, ids)).collect();
            match published {
                Ok(grounds) => {
                    let mut pace = Pace::new(interval_ns);
                    pace.begin(now_ns, tables.answered());
                    let source = build(grounds, now_ns);
                    tables.running.push(Running { name, source, pace, failure: None });
                }
                Err(error) => system::log(&format!("warning: no table of {name}: {error}")),
            }
        }
        tables
    }

    /// When [`Tables::expire`] has something to do next, if ever.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.running.iter().map(|running| running.pace.next_ns()).min()
    }

    /// A reader may begin, or a source may be there now that was not.
    pub fn wake(&mut self, now_ns: u64) {
        self.running.iter_mut().for_each(|running| running.pace.wake(now_ns));
    }

    /// Runs what is due.
    pub fn expire(&mut self, now_ns: u64) {
        let answered = self.answered();
        for Running { name, source, pace, failure } in &mut self.running {
            if pace.next_ns() > now_ns || !pace.is_wanted(now_ns, answered) {
                continue;
            }
            let begin_ns = thread_cpu_ns();
            let result = source.run(now_ns);
            let took_ns = thread_cpu_ns().saturating_sub(begin_ns);
            let told = source.told();
            told.runs += 1;
            told.run_ns += took_ns;
            pace.not_before(now_ns.saturating_add(took_ns.saturating_mul(LEAST_PAUSE)));
            if let Err(error) = result {
                told.failed += 1;
                if failure.as_ref() != Some(&error) {
                    system::log(&format!("warning: {name}: {error}"));
                    *failure = Some(error);
                }
            }
        }
    }

    /// READs answered, over either way; where the kernel's are not known, those over TCP.
    fn answered(&self) -> u64 {
        let by_kernel = self.kernel.as_ref().and_then(|kernel| kernel.answered().ok()).unwrap_or(0);
        by_kernel.wrapping_add(self.counters.get(Counter::Reads))
    }
}

/// CPU time of this thread: on a busy host a run lasts longer than it costs.
fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Where regions get memory.
struct Memory<'a> {
    /// The kernel responder's, and how much of its slab of tables is taken.
    slab: Option<(&'a Kernel, onlooker_responder::Slab, u64)>,
}

impl<'a> Memory<'a> {
    fn new<'b>(kernel: Option<&'a Kernel>, regions: impl Iterator<Item = &'b Region>) -> Self {
        let Some(kernel) = kernel else { return Self { slab: None } };
        let bytes = regions.map(|region| region.bytes().next_multiple_of(PAGE_BYTES)).sum();
        match kernel.create_tables(bytes) {
            Ok(slab) => Self { slab: Some((kernel, slab, 0)) },
            Err(error) => {
                system::log(&format!("warning: tables are served over TCP only: {error}"));
                Self { slab: None }
            }
        }
    }

    fn take(&mut self, bytes: u64) -> Result<(Map, Option<Place>), String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let Some((kernel, slab, taken)) = &mut self.slab else {
            let memory = sealed_memfd("onlooker-table", bytes).and_then(|fd| Map::of(fd, 0, bytes, true));
            return Ok((memory.map_err(|error| text(&error))?, None));
        };
        let range = Range { offset: *taken, bytes: bytes.next_multiple_of(PAGE_BYTES) };
        *taken += range.bytes;
        let map = kernel.map_tables(slab, range).map_err(|error| text(&error))?;
        let words = usize::try_from(bytes / 8).unwrap_or(0);
        Ok((map.window(0..words), Some(Place::Slab { slab: slab.index(), range })))
    }
}

fn publish(
    region: &Region,
    memory: &mut Memory<'_>,
    directory: &mut Directory,
    ids: &mut Ids,
) -> Result<Ground, String> {
    region.schema.check().map_err(|error| error.to_string())?;
    let (map, place) = memory.take(region.bytes())?;
    let identity = ids.take().map_err(|error| error.to_string())?;
    let text = SchemaText::of(&region.schema);
    let backing = match place {
        Some(place) => Backing::Slab(map.clone(), place),
        None => Backing::Tcp(map.clone()),
    };
    ids.publish(directory, None, region.name, &text, identity, backing).map_err(|refusal| {
        ids.give(identity.region);
        refusal.to_string()
    })?;
    Ok(Ground { memory: map, identity })
}
