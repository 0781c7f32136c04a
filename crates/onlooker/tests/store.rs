// SPDX-License-Identifier: Apache-2.0
//! The real `onlooker store` with real stores: what it says, what it writes, and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use onlooker_framestore::client::{Appender, Description};
use onlooker_framestore::cold::Cold;
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::Line;
use onlooker_framestore::{Config, Store, Writer, open};
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};
use onlooker_testbed::{Agent, Controller, until};
use serde_json::Value;

/// 2025-11-24 16:15:00 UTC.
const FROM_NS: u64 = 1_764_000_900_000_000_000;

/// How a run ended: code, standard output, standard error.
type Ended = (Option<i32>, String, String);

fn store(what: &[&str], dir: &Path, more: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onlooker"));
    let output = command.arg("store").args(what).arg("--dir").arg(dir).args(more).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn description(host: &str) -> Description {
    let all = vec![
        Series::new("a_total", Metric::Counter, Form::Unsigned),
        Series::new("a_load", Metric::Gauge, Form::Float),
    ];
    Description {
        host: host.into(),
        common: vec![("instance".into(), host.into())],
        source: 0,
        region: Vec::new(),
        layout: Arc::new(Layout::new(vec![Part::new("a", 0, all).shared()], false)),
        texts: Vec::new(),
    }
}

/// A store with two hosts and a row of each every second, of an hour and a quarter.
struct World {
    dir: tempfile::TempDir,
    open: Option<(Store, Writer, Appender)>,
}

const ROWS: u64 = 4_500;

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut world = Self { dir, open: None };
        world.open();
        let (_, writer, appender) = world.open.as_mut().unwrap();
        for at in 0..ROWS {
            for host in ["web-1", "web-2"] {
                let track = appender.track(&description(host), FROM_NS).unwrap();
                let words = [at * 7, (at as f64).sqrt().to_bits()];
                appender.append(track, Line::ONLY, FROM_NS + at * 1_000_000_000, &words).unwrap();
            }
            if at % 250 == 0 {
                writer.turn().unwrap();
            }
        }
        writer.turn().unwrap();
        world
    }

    fn open(&mut self) {
        self.open = None;
        let (dir, ring) = (self.store(), self.dir.path().join("ring"));
        let (store, writer, appender, _) = open(Config::keeping_all(dir, ring, 4 << 20, 64 << 20)).unwrap();
        self.open = Some((store, writer, appender));
    }

    /// Nobody has it open, and all files of chunks are ended.
    fn close(&mut self) {
        self.open();
        self.open = None;
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// The first file of chunks.
    fn chunks(&self) -> PathBuf {
        let entries = fs::read_dir(self.store().join("warm")).unwrap();
        entries.map(|entry| entry.unwrap().path()).min().unwrap()
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn info_says_what_takes_the_room_beside_whoever_writes() {
    let world = World::new();
    let (code, out, err) = store(&["info"], &world.store(), &[]);
    assert_eq!((code, &*err), (Some(0), ""));
    for part in ["from 2025-11-24 16:15:00 to 2025-11-24 17:29:59 UTC", "chunks raw", "2 hosts, 2 tracks", "web-1"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (code, out, _) = store(&["info"], &world.store(), &["--json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    let rows = found["chunks"]["raw"]["rows"].as_u64().unwrap() + found["log"]["rows_in_no_chunk"].as_u64().unwrap();
    assert_eq!((code, rows), (Some(0), 2 * ROWS));
    assert_eq!(found["hosts"].as_array().unwrap().len(), 2);
    assert_eq!(found["hosts"][0]["values"], 2 * ROWS);
    assert_eq!((&found["from_ms"], &found["catalogue"]["parts"]), (&Value::from(FROM_NS / 1_000_000), &Value::from(1)));
    let (code, out, err) = store(&["info"], world.dir.path(), &[]);
    assert!(code == Some(1) && out.is_empty() && err.contains("there is no store in "), "{err}");
}

#[test]
fn verify_ends_with_0_1_or_2() {
    let mut world = World::new();
    let (code, out, err) = store(&["verify"], &world.store(), &[]);
    assert_eq!((code, &*err), (Some(0), ""), "{out}");
    assert!(out.starts_with("nothing is damaged: "), "{out}");
    world.close();

    let path = world.chunks();
    flip(&path, 700);
    let (code, out, err) = store(&["verify"], &world.store(), &[]);
    let place = format!("damaged  {} at byte ", path.display());
    assert!(code == Some(1) && err.is_empty() && out.starts_with(&place), "{out}{err}");
    assert!(out.contains("the checksum does not match (what was in it is lost)\n1 place is damaged: "), "{out}");
    let (code, out, _) = store(&["verify"], &world.store(), &["--json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &found["ok"], &found["damaged"][0]["lost"]), (Some(1), &Value::from(false), &Value::from(true)));
    assert_eq!(found["damaged"][0]["file"], path.to_str().unwrap());
    assert!(found["damaged"][0]["offset"].as_u64().unwrap() <= 700);
    flip(&path, 700);
    assert_eq!(store(&["verify"], &world.store(), &[]).0, Some(0));

    // A file that cannot be read, and no store at all.
    let gaps = world.store().join("gaps.log");
    fs::remove_file(&gaps).unwrap();
    fs::create_dir(&gaps).unwrap();
    let (code, out, err) = store(&["verify"], &world.store(), &[]);
    assert!(code == Some(2) && err.contains("gaps.log") && err.contains("1 of the store's files"), "{out}{err}");
    let (code, out, err) = store(&["verify"], world.dir.path(), &["--json"]);
    assert!(code == Some(2) && out.is_empty() && err.contains("there is no store in "), "{err}");
}

#[test]
fn export_writes_hours_once_and_says_why_it_cannot() {
    let mut world = World::new();
    let out = world.dir.path().join("out");
    let export = |host: &str, more: &[&str]| {
        let out = out.to_str().unwrap();
        store(&["export"], &world.store(), &[&["--host", host, "--out", out], more].concat())
    };
    let (code, text, err) = export("all", &[]);
    assert!(code == Some(1) && text.is_empty(), "{text}");
    assert!(
        err.contains("in use") && err.contains("systemctl stop onlooker-controller") && err.contains("cp -a"),
        "{err}"
    );
    assert!(!out.exists());
    world.close();

    let export = |host: &str, more: &[&str]| {
        let out = out.to_str().unwrap();
        store(&["export"], &world.store(), &[&["--host", host, "--out", out], more].concat())
    };
    let (code, _, err) = export("web3", &[]);
    assert!(code == Some(3) && err.contains("no host `web3`: did you mean `web-1`, `web-2`?"), "{err}");
    let (code, _, err) = export("all", &["--from", "yesterday"]);
    assert!(code == Some(2) && err.contains("2026-11-24T10:30"), "{err}");
    let (code, _, err) = export("all", &["--from", "2026-11-24", "--to", "2026-11-24"]);
    assert!(code == Some(1) && err.contains("--from is not before --to"), "{err}");
    let (code, text, err) = export("all", &[]);
    assert_eq!((code, &*err), (Some(0), ""), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("/cold/20251124T160000Z-20251124T170000Z-0.parquet  10800 rows, "), "{text}");
    assert!(lines[1].contains("/cold/20251124T170000Z-20251124T173000Z-0.parquet  7200 rows, "), "{text}");
    assert!(lines.len() == 3 && lines[2].starts_with("2 files, 18000 rows, "), "{text}");
    let (cold, _) = Cold::open(&out).unwrap();
    let labels = [("instance".to_owned(), "web-2".to_owned())];
    let read = cold.read("a_total", &labels, 0, u64::MAX).unwrap();
    let words: Vec<u64> = (0..ROWS).map(|at| at * 7).collect();
    assert_eq!(read[0].1.words, [words]);
    let (code, text, err) = export("all", &[]);
    assert!(code == Some(0) && text.is_empty() && err.contains("nothing is left to export"), "{text}{err}");
    let (code, _, err) = export("web-1", &[]);
    assert!(code == Some(1) && err.contains("an export of all hosts"), "{err}");
}

#[test]
fn export_of_a_damaged_store_says_so() {
    let mut world = World::new();
    world.close();
    flip(&world.chunks(), 700);
    let out = world.dir.path().join("out");
    let (code, text, err) = store(&["export"], &world.store(), &["--host", "all", "--out", out.to_str().unwrap()]);
    assert!(code == Some(1) && text.contains("2 files, "), "{text}");
    assert!(err.contains("are damaged; the files have a gap") && err.contains("onlooker store verify"), "{err}");
    let gaps = Cold::open(&out).unwrap().0.gaps(0, u64::MAX).unwrap();
    assert!(gaps.iter().any(|gap| gap.reason == "damaged"), "{gaps:?}");
}

#[test]
fn a_controller_may_run() {
    let agent = Agent::start();
    let mut controller = Controller::start("", &(agent.target("web 3") + "interval = \"20ms\"\n"));
    let dir = controller.dir().join("store");
    until("rows in the store", || {
        let (code, out, err) = store(&["info"], &dir, &["--json"]);
        assert_eq!((code, &*err), (Some(0), ""));
        let found: Value = serde_json::from_str(&out).unwrap();
        let host = found["hosts"].as_array()?.iter().find(|host| host["name"] == "web 3")?;
        (host["rows"].as_u64()? > 100).then_some(())
    });
    for _ in 0..10 {
        let (code, out, err) = store(&["verify"], &dir, &[]);
        assert_eq!((code, &*err), (Some(0), ""), "{out}");
    }
    let (out, copy) = (controller.dir().join("out"), controller.dir().join("copy"));
    let export = |dir: &Path, out: &Path| store(&["export"], dir, &["--host", "web 3", "--out", out.to_str().unwrap()]);
    let (code, _, err) = export(&dir, &out);
    assert!(code == Some(1) && err.contains("a controller runs"), "{err}");
    fs::create_dir(&copy).unwrap();
    let files = ["wal", "warm", "catalogue", "gaps.log"].map(|name| dir.join(name));
    assert!(Command::new("cp").arg("-a").args(files).arg(&copy).status().unwrap().success());
    let (code, text, err) = export(&copy, &controller.dir().join("out of the copy"));
    assert_eq!((code, &*err), (Some(0), ""), "{text}");
    controller.kill();
    let (code, text, err) = export(&dir, &out);
    assert_eq!((code, &*err), (Some(0), ""), "{text}");
    let loads = |out: &Path| {
        let (cold, _) = Cold::open(out).unwrap();
        let (mut loads, is_load) = (0, |name: &str| name == "node_load1");
        let scanned = cold.scan(0, u64::MAX, |of| is_load(&of.name), |_, samples| loads += samples.times_ns.len());
        scanned.map(|()| loads).unwrap()
    };
    let copied = loads(&controller.dir().join("out of the copy"));
    assert!(copied > 0 && loads(&out) >= copied);
}
