// SPDX-License-Identifier: Apache-2.0
//! One hostile host among honest ones: what it lists beyond its quota costs itself, and the others lose no row, no series and no time.

#[path = "../../reader/tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code)]
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use memory::{Host, Region};
use onlooker_bootstrap::{Secret, Token};
use onlooker_controller::fleet::{Fleet, FleetSink, Quota, Shown};
use onlooker_controller::keep::Keeper;
use onlooker_controller::{Reading, Sink as _};
use onlooker_framestore::{Named, Store};
use onlooker_reader::clock::{Moment, Relation, steady_ns};
use onlooker_reader::drive::read_host;
use onlooker_reader::{Broken, Completion, Frames, Limits, Outcome, Read, Requester, Session, Via};
use onlooker_region::Block;
use onlooker_region::guard::commit;
use onlooker_region::limits::FIRST_PROGRAM_REGION;
use onlooker_targets::{Choice, Priority, Target};
use onlooker_testbed::until;
use onlooker_wire::tcp_read;

const NODE: &str = r#"{"name":"node","groups":[{"kind":"guarded","blocks":1,"fields":[
    {"name":"node_load1","metric":"gauge","type":"u64"},{"name":"node_forks_total","metric":"counter","type":"u64","slot":1}]}]}"#;
const SHOP: &str = r#"{"name":"shop","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"shop_total","metric":"counter","type":"u64"}]}]}"#;
/// As wide as a guarded block: what one program can change at random with each reading.
const NOISE: &str = r#"{"name":"noise","groups":[{"kind":"guarded","blocks":1,"fields":[
    {"name":"noise","metric":"gauge","type":"u64","array":{"label":"n","count":124,"stride":1}}]}]}"#;

/// The same, twice as wide.
const WIDE: &str = r#"{"name":"wide","groups":[{"kind":"guarded","blocks":2,"fields":[
    {"name":"wide","metric":"gauge","type":"u64","array":{"label":"n","count":248,"stride":1}}]}]}"#;

/// A program's region number.
const fn program(number: u32) -> u32 {
    FIRST_PROGRAM_REGION + number
}

/// Nearly as many values as a region can have, in blocks of 127.
fn flood() -> String {
    r#"{"name":"flood","groups":[{"kind":"plain","blocks":64,"fields":[
        {"name":"flood_total","metric":"counter","type":"u64","array":{"label":"n","count":8128,"stride":1}}]}]}"#
        .into()
}

/// Answers every READ at the next poll.
struct Direct<'a>(&'a Host, Vec<Read>);

impl Requester for Direct<'_> {
    fn max_read_blocks(&self) -> u32 {
        64
    }

    fn in_flight(&self) -> usize {
        self.1.len()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize, Broken> {
        self.1.extend(reads);
        Ok(reads.len())
    }

    fn poll(&mut self, memory: &mut [Block], _: u64, completions: &mut Vec<Completion>) -> Result<(), Broken> {
        for read in self.1.drain(..) {
            let asked = tcp_read::Read { va: read.va, rkey: read.rkey, length_bytes: read.blocks * 1024 };
            let bytes = self.0.memory.read(&asked).unwrap();
            let blocks = &mut memory[read.at as usize..][..read.blocks as usize];
            for (block, bytes) in blocks.iter_mut().zip(bytes.chunks_exact(1024)) {
                block.bytes_mut().copy_from_slice(bytes);
            }
            completions.push(Completion { id: read.id, outcome: Outcome::Done });
        }
        Ok(())
    }

    fn wait(&mut self, _: Duration) -> Result<(), Broken> {
        Ok(())
    }
}

/// A host in memory and how it is read.
struct Watched {
    host: Host,
    session: Session,
    target: Arc<Target>,
    regions: Vec<Region>,
}

impl Watched {
    /// With a region of its agent and one of a program.
    fn start(name: &str) -> Self {
        let mut host = Host::new(1024);
        let regions = vec![host.region(1, "node", &[], NODE), host.region(program(0), "shop", &[("pid", "7")], SHOP)];
        let session = Session::new(&host.answer(1), Via::Tcp, 64, Limits::default());
        let token = Token { fingerprint: None, secret: Secret::new([7; 32]) };
        let target = Target {
            name: name.into(),
            host: "127.0.0.1".into(),
            port: 1,
            token,
            labels: BTreeMap::new(),
            interval: Duration::from_millis(10),
            priority: Priority::Normal,
            choice: Choice::Tcp,
        };
        Self { host, session, target: Arc::new(target), regions }
    }

    /// Its guarded regions move: each of their values, by what `value` says of it.
    fn moves(&self, value: impl Fn(u64) -> u64) {
        let now_ns = steady_ns();
        for Region { entry, words, .. } in self.regions.iter().filter(|region| region.entry.bytes == 1024) {
            commit(words.block(0), entry.identity, now_ns, |payload| {
                (0..payload.len()).for_each(|slot| payload.set(slot, value(slot as u64)));
            });
        }
    }

    fn read(&mut self, sink: &mut FleetSink) {
        let began = Moment::now();
        let mut requester = Direct(&self.host, Vec::new());
        read_host(&mut requester, &mut self.session, u64::MAX, steady_ns).unwrap();
        let mut frames = Frames::default();
        self.session.take(&mut frames);
        let ended = Moment::now();
        let reading = Reading {
            due_ns: began.steady_ns,
            began_ns: began.steady_ns,
            ended_ns: ended.steady_ns,
            repeated: 0,
            frames,
            boot: None,
            counters: None,
            relation: Relation::new(began.steady_ns, began, ended),
        };
        sink.reading(&self.target, &reading);
    }
}

fn store_config(dir: &Path) -> onlooker_framestore::Config {
    onlooker_framestore::Config::keeping_all(dir.join("store"), dir.join("hot"), 4 << 20, 64 << 20)
}

/// Of each host and region the tracks: how many rows, and the reasons of gaps.
type Log = BTreeMap<(String, String), Vec<(u64, BTreeSet<String>)>>;

/// Two honest hosts and a hostile one, fleet and store.
struct World {
    dir: tempfile::TempDir,
    fleet: Arc<Fleet>,
    sink: Option<FleetSink>,
    keeper: Option<Keeper>,
    said: Arc<Mutex<Vec<String>>>,
    honest: [Watched; 2],
    hostile: Watched,
    readings: u64,
}

const SMALL: Quota = Quota {
    series: 2_000,
    tracks: 100,
    memory_bytes: 8 << 20,
    new_tracks_per_hour: 100,
    values_per_s: 1 << 20,
    log_bytes_per_s: 1,
    log_burst_bytes: 64 << 10,
};

impl World {
    /// Regions that nothing happens to have their tracks.
    fn start() -> Self {
        let mut world = Self::within(SMALL);
        world
            .read_until_kept(&[("a", "node"), ("a", "shop"), ("b", "node"), ("b", "shop"), ("mallory", "node")], |_| 1);
        world
    }

    fn within(quota: Quota) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (keeper, to, _) = Keeper::start(store_config(dir.path()), |_| {}).unwrap();
        let fleet = Arc::new(Fleet::within(quota));
        let said = Arc::new(Mutex::new(Vec::new()));
        let say = {
            let said = said.clone();
            move |text: &str| said.lock().unwrap().push(text.to_owned())
        };
        let sink = FleetSink::new(fleet.clone(), to, keeper.counters()).saying(Arc::new(say));
        let (honest, hostile) = ([Watched::start("a"), Watched::start("b")], Watched::start("mallory"));
        Self { dir, fleet, sink: Some(sink), keeper: Some(keeper), said, honest, hostile, readings: 0 }
    }

    /// All are read once; the hostile host's values are `value`'s.
    fn read(&mut self, value: impl Fn(u64) -> u64) {
        self.readings += 1;
        let sink = self.sink.as_mut().unwrap();
        for host in &mut self.honest {
            host.moves(|slot| self.readings + slot);
            host.read(sink);
        }
        self.hostile.moves(value);
        self.hostile.read(sink);
    }

    /// Reads until each of these has rows in the store: those of a track that it has not made yet when a controller ends are not kept.
    fn read_until_kept(&mut self, wanted: &[(&str, &str)], value: impl Fn(u64) -> u64 + Copy) {
        let store = self.keeper.as_ref().unwrap().store();
        until("rows of each", || {
            self.read(value);
            let has_rows = |(host, region): &(&str, &str)| {
                store.series_of(host).iter().any(|named| named.region == *region && !times(&store, named).is_empty())
            };
            wanted.iter().all(has_rows).then_some(())
        });
    }

    fn shown<T>(&self, host: &str, look: impl FnOnce(&Shown) -> T) -> T {
        look(&self.fleet.host(host).unwrap().look())
    }

    /// What is in the log once all is written.
    fn end(mut self) -> Log {
        let counters = self.keeper.as_ref().unwrap().counters();
        drop(self.sink.take());
        drop(self.keeper.take());
        assert_eq!(counters.refused_rows.load(Ordering::Relaxed), 0, "the store was never behind");
        let (store, ..) = onlooker_framestore::open(store_config(self.dir.path())).unwrap();
        // An entity may have been in several tracks of its host, one after the other.
        let mut entities: BTreeMap<_, (BTreeSet<u64>, BTreeSet<String>)> = BTreeMap::new();
        for host in store.newest_of_hosts().into_keys() {
            for named in store.series_of(&host) {
                let key = (host.clone(), named.region.clone(), named.series[0].text());
                let (times_ns, reasons) = entities.entry(key).or_default();
                times_ns.extend(times(&store, &named));
                reasons.extend(store.gaps(&named.columns, 0, u64::MAX).into_iter().map(|gap| gap.reason));
            }
        }
        let mut all = Log::new();
        for ((host, region, _), (times_ns, reasons)) in entities {
            all.entry((host, region)).or_default().push((times_ns.len() as u64, reasons));
        }
        all
    }
}

fn times(store: &Store, named: &Named) -> Vec<u64> {
    let mut times_ns = Vec::new();
    let read = store.read(&named.columns, 0, u64::MAX, |time_ns, _| {
        times_ns.push(time_ns);
        ControlFlow::Continue(())
    });
    assert_eq!(read.unwrap(), []);
    times_ns
}

/// What honest hosts have in the log is all that they told, and there is no gap in it.
fn assert_unharmed(all: &Log, hosts: &[&str], readings: u64) {
    for host in hosts {
        for region in ["node", "shop"] {
            let tracks = &all[&((*host).to_owned(), region.to_owned())];
            assert_eq!(*tracks, [(readings, BTreeSet::new())], "{host} {region}");
        }
    }
}

fn over(shown: &Shown) -> Vec<(&'static str, &'static str)> {
    shown.entities.ledger().over(false).map(|(whose, limit, _)| (whose.name(), limit.key())).collect()
}

#[test]
fn a_flood_of_series_is_left_out_and_told_once() {
    let mut world = World::start();
    let before: Vec<usize> = ["a", "b"].map(|host| world.shown(host, |shown| shown.entities.series())).into();
    let before_flood = world.readings;
    for number in 1..=7 {
        let region = world.hostile.host.region(program(number), "flood", &[("n", &number.to_string())], &flood());
        world.hostile.regions.push(region);
    }
    for _ in 0..40 {
        world.read(|_| 1);
    }
    // What the agent adds later has its room all the same.
    let late = world.hostile.host.region(2, "node_late", &[], NODE);
    world.hostile.regions.push(late);
    let before_late = world.readings;
    for _ in 0..40 {
        world.read(|_| 1);
    }
    world.read_until_kept(&[("mallory", "node_late")], |_| 1);
    let readings = world.readings;
    let after: Vec<usize> = ["a", "b"].map(|host| world.shown(host, |shown| shown.entities.series())).into();
    assert_eq!(before, after);
    world.shown("mallory", |shown| {
        assert_eq!(over(shown), [("programs", "series")]);
        let ledger = shown.entities.ledger();
        let (_, _, over) = ledger.over(false).next().unwrap();
        assert_eq!((over.rows, over.limit, over.used), (7 * (readings - before_flood), SMALL.series, 1));
        let excess = |region: &&onlooker_controller::fleet::Region| ledger.excess(region.entry.identity.word());
        let left_out: Vec<_> = shown.regions.iter().filter(|region| excess(region).is_some()).collect();
        assert_eq!(left_out.len(), 7);
        assert!(left_out.iter().all(|region| excess(region).unwrap().series == 8128));
        // Two of its agent's regions, one of a program, the boot time.
        assert_eq!(shown.entities.series(), 2 + 1 + 1);
    });
    let said = world.said.lock().unwrap().clone();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("host mallory") && said[0].contains("[quota] series (2000)"), "{said:?}");
    assert!(said[0].contains("flood of pid 4321"), "{said:?}");
    let all = world.end();
    assert_unharmed(&all, &["a", "b", "mallory"], readings);
    assert_eq!(all[&("mallory".into(), "node_late".into())], [(readings - before_late, BTreeSet::new())]);
    assert!(!all.contains_key(&("mallory".into(), "flood".into())));
}

#[test]
fn regions_that_come_and_go_make_so_many_tracks_and_no_more() {
    let mut world = World::start();
    for number in 1..=300 {
        let region = world.hostile.host.region(program(number), "brief", &[("n", &number.to_string())], SHOP);
        world.read(|_| 1);
        world.hostile.host.control.remove(region.slot, 3);
    }
    world.shown("mallory", |shown| {
        let over = over(shown);
        assert!(over.contains(&("programs", "new_tracks_per_hour")), "{over:?}");
        // Those of the readings that an entity is waited for.
        assert!(shown.entities.iter().count() < 40);
    });
    assert_eq!(world.said.lock().unwrap().len(), 1);
    let readings = world.readings;
    let all = world.end();
    assert_unharmed(&all, &["a", "b", "mallory"], readings);
    let brief = all[&("mallory".into(), "brief".into())].len();
    assert!((90..=110).contains(&brief), "{brief}");
}

#[test]
fn noise_costs_the_log_its_share_and_leaves_a_gap_where_it_was_more() {
    let mut world = World::start();
    let noise = world.hostile.host.region(program(1), "noise", &[], NOISE);
    world.hostile.regions.push(noise);
    let mut state = 1_u64;
    for _ in 0..250 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        world.read(|slot| state.rotate_left(u32::try_from(slot % 64).unwrap()).wrapping_mul(slot | 1));
    }
    world.read_until_kept(&[("mallory", "noise")], |slot| slot);
    world.shown("mallory", |shown| {
        assert!(over(shown).contains(&("programs", "log_bytes_per_s")));
        // It is shown as it is all the same.
        assert_eq!(shown.entities.series(), 2 + 1 + 1 + 124);
    });
    let readings = world.readings;
    let all = world.end();
    assert_unharmed(&all, &["a", "b"], readings);
    let of = |region: &str| &all[&("mallory".into(), region.into())];
    assert_eq!(*of("node"), [(readings, BTreeSet::new())], "the agent's own have their share for themselves");
    let (rows, reasons) = &of("noise")[0];
    assert!((50..100).contains(rows), "64 KiB of 1 KiB each: {rows}");
    assert_eq!(*reasons, BTreeSet::from(["over_quota".to_owned()]));
}

#[test]
fn who_has_too_many_values_decoded_waits_and_nobody_else() {
    // So few that none comes back while this runs.
    let mut world = World::within(Quota { values_per_s: 70, ..SMALL });
    for host in world.honest.iter_mut().chain([&mut world.hostile]) {
        // Honest ones are read seldom.
        host.read(world.sink.as_mut().unwrap());
    }
    let noise = world.hostile.host.region(program(1), "noise", &[], NOISE);
    world.hostile.regions.push(noise);
    for number in 0..60 {
        world.readings += 1;
        world.hostile.moves(|slot| number + slot);
        world.hostile.read(world.sink.as_mut().unwrap());
    }
    world.shown("mallory", |shown| {
        assert_eq!(over(shown), [("programs", "values_per_s")]);
        assert_eq!(shown.entities.series(), 2 + 1 + 1 + 124, "it stays as it was");
    });
    // What has no track yet when a controller ends is not kept.
    let store = world.keeper.as_ref().unwrap().store();
    until("its track", || store.series_of("mallory").iter().any(|named| named.region == "noise").then_some(()));
    drop(store);
    let all = world.end();
    let of = |region: &str| &all[&("mallory".into(), region.into())];
    assert_eq!(*of("node"), [(61, BTreeSet::new())], "the agent's own are decoded all the same");
    let (rows, reasons) = &of("noise")[0];
    assert!((1..60).contains(rows), "{rows}");
    assert_eq!(*reasons, BTreeSet::from(["over_quota".to_owned()]));
}

#[test]
fn what_outgrows_its_quota_leaves_a_gap_in_what_there_is_of_it() {
    // Beside what else there is the first block has room, both have not.
    let mut world = World::within(Quota { series: 300, ..SMALL });
    let noise = world.hostile.host.region(program(2), "noise", &[], NOISE);
    world.hostile.regions.push(noise);
    let wide = world.hostile.host.region(program(1), "wide", &[], WIDE);
    let write = |index: u16| {
        let block = wide.words.block(index.into());
        commit(block, wide.entry.identity.at(index), steady_ns(), |payload| payload.set(0, steady_ns()));
    };
    // Being written for ever.
    wide.words.block(1)[0].store(1, Ordering::Relaxed);
    let store = world.keeper.as_ref().unwrap().store();
    until("its track has rows", || {
        write(0);
        world.read(|_| 1);
        let has_rows = |named: &Named| named.region == "wide" && !times(&store, named).is_empty();
        store.series_of("mallory").iter().any(has_rows).then_some(())
    });
    drop(store);
    world.shown("mallory", |shown| assert_eq!(over(shown), []));
    for _ in 0..10 {
        (0..2).for_each(write);
        world.read(|_| 1);
    }
    world.shown("mallory", |shown| assert_eq!(over(shown), [("programs", "series")]));
    let all = world.end();
    let tracks = &all[&("mallory".to_owned(), "wide".to_owned())];
    assert!(tracks.len() == 1 && tracks[0].0 > 0, "{tracks:?}");
    assert_eq!(tracks[0].1, BTreeSet::from(["over_quota".to_owned()]));
}
