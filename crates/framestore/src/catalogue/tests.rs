// SPDX-License-Identifier: Apache-2.0
//! Catalogues that were closed as a kill closes them, cut, flipped, forgotten in part, and on disks that fail.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_region::histogram::Shape;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};
use onlooker_series::text::Labels;

use super::item::Item;
use super::pair::{Loading, append_header, pack};
use super::{Catalogue, HostId, Known, Recovery, TrackKey, VERSION};
use crate::damage::StoreError;
use crate::framing::files::Lock;
use crate::framing::tests::memory_dir;
use crate::framing::{self, Frame};
use crate::layout::{ContentId, Layout, Part};
use crate::types::{Line, TrackId};

pub(super) fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn series(name: &str, own: &[(&str, &str)], form: Form, metric: Metric) -> Series {
    Series {
        labels: Labels::from(labels(own)),
        help: "what it is".into(),
        scale: 1e-9,
        acquisition: Acquisition::default(),
        ..Series::new(name, metric, form)
    }
}

pub(super) fn part(region: &str, series: Vec<Series>) -> Arc<Part> {
    Arc::new(Part::new(region, 0, series))
}

pub(super) fn layout(parts: &[Arc<Part>], is_table: bool) -> Layout {
    Layout::new(parts.iter().map(|part| (part.content().0, part.clone())).collect(), is_table)
}

fn layouts() -> [Layout; 2] {
    let counter = |name: &str, own: &[(&str, &str)]| series(name, own, Form::Unsigned, Metric::Counter);
    let cpu =
        part("cpu", vec![counter("cpu_seconds_total", &[("cpu", "0")]), counter("cpu_seconds_total", &[("cpu", "1")])]);
    let shape = Shape { grouping_power: 2, max_power: 20 };
    let histogram = series("wait_seconds", &[], Form::Histogram(shape), Metric::Histogram);
    let memory = part("memory", vec![series("free_bytes", &[], Form::Unsigned, Metric::Gauge), histogram]);
    let table = part("cgroups", vec![counter("cgroup_cpu_seconds_total", &[])]);
    [layout(&[cpu, memory], false), layout(&[table], true)]
}

fn open(dir: &Path) -> (Catalogue, Recovery) {
    Catalogue::open(&Lock::take(dir).unwrap()).unwrap()
}

/// What is there, to be compared.
fn all(known: &Known) -> Vec<String> {
    let mut all = vec![format!("{:?}", known.next)];
    known.each_item(|item| all.push(format!("{item:?}")));
    all.sort();
    all
}

fn key(host: HostId, source: u64, own: &[(&str, &str)], layout: &Layout) -> TrackKey {
    TrackKey { host, source, labels: labels(own), texts: Vec::new(), layout: layout.id() }
}

/// So many hosts, each with a fixed track and a table of two lines; written, a few at a time.
fn fill(catalogue: &mut Catalogue, hosts: u32) {
    let [fixed, table] = layouts();
    for host in 0..hosts {
        for layout in [&fixed, &table] {
            catalogue.define_layout(layout).unwrap();
        }
        let common = labels(&[("instance", &format!("h{host}")), ("dc", "a"), ("empty", "")]).into_iter().collect();
        let number = catalogue.host(&format!("host {host}"), &common).unwrap();
        catalogue.track(&key(number, 0, &[], &fixed), 5).unwrap();
        let tables = catalogue.track(&key(number, 77, &[("pid", "7")], &table), 6).unwrap();
        for line in ["/a", "/b"] {
            catalogue.line(tables, &labels(&[("path", line)]), 7).unwrap();
        }
        catalogue.write().unwrap();
    }
}

/// The files, the first of a pair first.
fn paths(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir.join("catalogue")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn copy_of(dir: &Path) -> tempfile::TempDir {
    let copy = memory_dir();
    fs::create_dir(copy.path().join("catalogue")).unwrap();
    for path in paths(dir) {
        fs::copy(&path, copy.path().join("catalogue").join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn everything_has_the_same_number_after_a_restart() {
    let dir = memory_dir();
    let (mut catalogue, recovery) = open(dir.path());
    assert_eq!(recovery, Recovery::default());
    fill(&mut catalogue, 20);
    let (before, bytes) = (all(&catalogue.look()), catalogue.bytes());
    fill(&mut catalogue, 20);
    assert_eq!((all(&catalogue.look()), catalogue.bytes()), (before.clone(), bytes), "nothing is said twice");
    drop(catalogue);
    let (mut catalogue, recovery) = open(dir.path());
    assert_eq!(recovery, Recovery::default());
    fill(&mut catalogue, 20);
    assert_eq!((all(&catalogue.look()), catalogue.bytes()), (before, bytes));
    assert_eq!(paths(dir.path()).len(), 2);
    let known = catalogue.look();
    let [fixed, table] = layouts();
    let info = known.track(TrackId(1)).unwrap();
    assert_eq!((info.host, info.source, &*info.layout, info.created_ns), (HostId(1), 0, &fixed, 5));
    assert_eq!(info.labels, []);
    assert_eq!(known.track(TrackId(2)).unwrap().labels, labels(&[("pid", "7")]));
    assert_eq!(known.host(HostId(1)).unwrap().0, "host 0");
    assert_eq!(
        known.host(HostId(1)).unwrap().1.into_iter().collect::<Vec<_>>(),
        labels(&[("dc", "a"), ("instance", "h0")])
    );
    assert_eq!(
        known.line(TrackId(2), Line(2)).unwrap(),
        super::LineInfo { labels: labels(&[("path", "/b")]), texts: Vec::new(), since_ns: 7 }
    );
    assert_eq!((known.tracks().count(), known.hosts().count(), known.next_track()), (40, 20, TrackId(41)));
    // Parts and layouts are there once, and shared.
    let shared = known.layout_of(TrackId(3)).unwrap();
    assert!(Arc::ptr_eq(shared, known.layout_of(TrackId(1)).unwrap()) && Arc::ptr_eq(&info.layout, shared));
    let cpu = &shared.parts()[0];
    assert!(Arc::ptr_eq(known.part(cpu.id).unwrap(), &cpu.part));
    assert_eq!(**known.layout(table.id()).unwrap(), table);
    assert_eq!(known.find_track(&key(HostId(1), 0, &[("a", "b")], &fixed)), None);
}

#[test]
fn what_others_number_is_entered_once() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    let [fixed, table] = layouts();
    let common = BTreeMap::from([("instance".to_owned(), "a".to_owned())]);
    let is_refused = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Damaged { .. }));
    let track = key(HostId(9), 0, &[], &fixed);
    assert!(is_refused(catalogue.enter_track(TrackId(70), &track, 1)), "no layout");
    catalogue.define_layout(&fixed).unwrap();
    catalogue.define_layout(&table).unwrap();
    assert!(is_refused(catalogue.enter_track(TrackId(70), &track, 1)), "no host");
    for _ in 0..2 {
        catalogue.enter_host(HostId(9), "a", &common).unwrap();
        catalogue.enter_track(TrackId(70), &track, 1).unwrap();
        catalogue.enter_track(TrackId(80), &key(HostId(9), 0, &[], &table), 1).unwrap();
        catalogue.enter_line(TrackId(80), Line(3), &labels(&[("path", "/")]), 4).unwrap();
    }
    assert!(is_refused(catalogue.enter_host(HostId(9), "b", &common)));
    assert!(is_refused(catalogue.enter_host(HostId(9), "a", &BTreeMap::new())));
    assert!(is_refused(catalogue.enter_track(TrackId(70), &key(HostId(9), 1, &[], &fixed), 1)));
    assert!(is_refused(catalogue.enter_track(TrackId(u32::MAX), &key(HostId(9), 1, &[], &fixed), 1)));
    assert!(is_refused(catalogue.enter_line(TrackId(70), Line(1), &[], 4)), "it is no table");
    assert!(is_refused(catalogue.enter_line(TrackId(80), Line(3), &labels(&[("path", "/x")]), 4)));
    let wordy = TrackKey { texts: labels(&[("0.0", &"x".repeat(1 << 17))]), ..key(HostId(9), 2, &[], &fixed) };
    assert!(is_refused(catalogue.enter_track(TrackId(71), &wordy, 1)));
    // Its own numbers begin behind them.
    assert_eq!(catalogue.track(&key(HostId(9), 1, &[], &fixed), 1).unwrap(), TrackId(81));
    assert_eq!(catalogue.line(TrackId(80), &labels(&[("path", "/x")]), 4).unwrap(), Line(4));
    let told = TrackKey { texts: labels(&[("0.0", "zen")]), ..key(HostId(9), 1, &[], &fixed) };
    assert_eq!(catalogue.track(&told, 1).unwrap(), TrackId(82), "another text is another track");
    assert_eq!(catalogue.track(&told, 1).unwrap(), TrackId(82));
    assert_eq!(catalogue.host("b", &common).unwrap(), HostId(10));
}

#[test]
fn either_file_is_enough() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    fill(&mut catalogue, 12);
    let expected = all(&catalogue.look());
    drop(catalogue);
    for lost in 0..2 {
        let bytes = fs::read(&paths(dir.path())[lost]).unwrap();
        let mut contents: Vec<Option<Vec<u8>>> = vec![None, Some(Vec::new())];
        contents.extend((0..bytes.len()).step_by(17).map(|cut| Some(bytes[..cut].to_vec())));
        for at in (0..bytes.len()).step_by(17) {
            let mut broken = bytes.clone();
            broken[at] ^= 0x10;
            contents.push(Some(broken.clone()));
            let end = broken.len().min(at + 30);
            broken[at..end].fill(0xaa);
            contents.push(Some(broken));
        }
        for content in contents {
            let copy = copy_of(dir.path());
            let path = &paths(copy.path())[lost];
            match &content {
                Some(content) => fs::write(path, content).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            let (catalogue, recovery) = open(copy.path());
            assert_eq!((all(&catalogue.look()), recovery.unusable_items), (expected.clone(), 0));
            drop(catalogue);
            let (catalogue, recovery) = open(copy.path());
            assert_eq!(
                (all(&catalogue.look()), recovery),
                (expected.clone(), Recovery::default()),
                "both are whole again"
            );
        }
    }
}

/// Both files, at different places.
#[test]
fn what_is_damaged_in_both_files_is_told_and_the_rest_is_there() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    fill(&mut catalogue, 12);
    let expected = all(&catalogue.look());
    drop(catalogue);
    let bytes = fs::read(&paths(dir.path())[0]).unwrap();
    let mut ranges = Vec::new();
    while let Some(header) = bytes[ranges.last().copied().unwrap_or(0)..].first_chunk() {
        ranges.push(ranges.last().copied().unwrap_or(0) + Frame::parse(header).unwrap().record_bytes());
    }
    for (first, second) in [(2, 5), (5, 2), (4, 4), (0, 1), (0, 0)] {
        let copy = copy_of(dir.path());
        for (path, record) in paths(copy.path()).iter().zip([first, second]) {
            let mut broken = bytes.clone();
            let start = if record == 0 { 0 } else { ranges[record - 1] };
            broken[start..ranges[record]].fill(0);
            fs::write(path, broken).unwrap();
        }
        let (catalogue, recovery) = open(copy.path());
        assert_eq!(recovery.damaged.len(), 2);
        let found = all(&catalogue.look());
        if first != second || first == 0 {
            assert_eq!(found.len(), expected.len());
        } else {
            // One host and what it has.
            assert!(found.len() + 8 >= expected.len() && found.len() < expected.len());
        }
    }
}

#[test]
fn what_is_forgotten_goes_and_its_numbers_do_not_come_again() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    fill(&mut catalogue, 2);
    let lasting = all(&catalogue.look()).len();
    let [fixed, table] = layouts();
    let mut most = 0;
    for round in 0..60u32 {
        let host = catalogue.host(&format!("short {round}"), &BTreeMap::new()).unwrap();
        let mut tracks = Vec::new();
        for program in 0..60u64 {
            let own = [("pid", &*format!("{program}{}", "x".repeat(400)))];
            tracks.push(catalogue.track(&key(host, 1 + program, &own, &fixed), 1).unwrap());
        }
        let of_lines = catalogue.track(&key(host, 0, &[], &table), 1).unwrap();
        let line = catalogue.line(of_lines, &labels(&[("path", "/short")]), 1).unwrap();
        let kept = catalogue.line(of_lines, &labels(&[("path", "/long")]), 1).unwrap();
        catalogue.forget_line(of_lines, line);
        catalogue.forget_line(of_lines, line);
        assert_eq!(catalogue.look().lines_of(of_lines).collect::<Vec<_>>(), [kept]);
        catalogue.write().unwrap();
        assert!(catalogue.forget_host(host).is_err(), "it has tracks");
        for track in tracks.into_iter().chain([of_lines]) {
            assert!(catalogue.look().track(track).is_some());
            catalogue.forget_track(track);
            assert_eq!(catalogue.look().track(track), None);
        }
        catalogue.forget_host(host).unwrap();
        catalogue.write().unwrap();
        catalogue.sync().unwrap();
        most = most.max(catalogue.bytes());
    }
    assert_eq!(all(&catalogue.look()).len(), lasting);
    assert!(catalogue.item_bytes < 3 << 20, "{}", catalogue.item_bytes);
    assert!(catalogue.number > 1, "it was written again");
    let (items, live) = (catalogue.item_bytes, catalogue.live_bytes);
    let mut counted = 0;
    catalogue.look().each_item(|item| counted += item.encode(&mut Vec::new()));
    assert_eq!(live, counted);
    let expected = all(&catalogue.look());
    drop(catalogue);
    let (mut catalogue, recovery) = open(dir.path());
    assert_eq!((all(&catalogue.look()), recovery), (expected, Recovery::default()));
    assert!(catalogue.item_bytes == items && catalogue.live_bytes == live || catalogue.item_bytes == live);
    let next = 1 + 2 * 2 + 60 * 61;
    assert_eq!(catalogue.track(&key(HostId(1), 99, &[], &fixed), 1).unwrap(), TrackId(next));
}

#[test]
fn a_failed_sync_writes_all_of_it_again() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    fill(&mut catalogue, 3);
    // As a sync that fails leaves it.
    catalogue.files = None;
    assert!(catalogue.sync().is_err(), "not before it is written again");
    fill(&mut catalogue, 5);
    catalogue.sync().unwrap();
    let expected = all(&catalogue.look());
    assert_eq!(catalogue.number, 2);
    drop(catalogue);
    assert_eq!(all(&open(dir.path()).0.look()), expected);
}

#[test]
fn what_could_not_be_written_is_written_later() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    fill(&mut catalogue, 3);
    let bytes = catalogue.bytes();
    for failing in 0..2 {
        let read_only = File::open(&paths(dir.path())[failing]).unwrap();
        let file = std::mem::replace(&mut catalogue.files.as_mut().unwrap()[failing], read_only);
        catalogue.host(&format!("new {failing}"), &BTreeMap::new()).unwrap();
        assert!(matches!(catalogue.write(), Err(StoreError::Io { operation: "write to", .. })));
        catalogue.files.as_mut().unwrap()[failing] = file;
        let lengths: Vec<u64> = paths(dir.path()).iter().map(|path| fs::metadata(path).unwrap().len()).collect();
        assert_eq!(lengths, [bytes / 2; 2], "nothing of it stays");
    }
    catalogue.write().unwrap();
    assert!(catalogue.bytes() > bytes);
    let expected = all(&catalogue.look());
    drop(catalogue);
    let (catalogue, recovery) = open(dir.path());
    assert_eq!((all(&catalogue.look()), recovery), (expected, Recovery::default()));
}

/// A snapshot that a kill ends: before the second file has its name, and before the old pair is removed.
#[test]
fn a_snapshot_that_is_interrupted_loses_nothing() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    fill(&mut catalogue, 4);
    let old = copy_of(dir.path());
    catalogue.snapshot().unwrap();
    drop(catalogue);
    let new = paths(dir.path());
    let name = |path: &PathBuf| path.file_name().unwrap().to_owned();
    for count in 1..=2 {
        let both = copy_of(old.path());
        for path in &new[..count] {
            fs::copy(path, both.path().join("catalogue").join(name(path))).unwrap();
        }
        // What the old pair got after a snapshot that failed.
        let expected = if count == 1 {
            let (mut catalogue, _) = open(old.path());
            fill(&mut catalogue, 6);
            for path in paths(old.path()) {
                fs::copy(&path, both.path().join("catalogue").join(name(&path))).unwrap();
            }
            all(&catalogue.look())
        } else {
            all(&open(dir.path()).0.look())
        };
        let (catalogue, recovery) = open(both.path());
        assert_eq!((all(&catalogue.look()), recovery), (expected, Recovery::default()), "{count} new files");
        assert_eq!(paths(both.path()).len(), 2);
    }
}

#[test]
fn another_versions_files_are_left_alone() {
    let dir = memory_dir();
    drop(open(dir.path()));
    let mut bytes = Vec::new();
    framing::append(1, &(VERSION + 1).to_le_bytes().repeat(5), &mut bytes);
    paths(dir.path()).iter().for_each(|path| fs::write(path, &bytes).unwrap());
    let opened = Catalogue::open(&Lock::take(dir.path()).unwrap());
    assert!(matches!(opened, Err(StoreError::Version { found, .. }) if found == VERSION + 1));
    assert!(paths(dir.path()).iter().all(|path| fs::read(path).unwrap() == bytes));
}

#[test]
fn parts_that_cannot_be_are_refused() {
    let dir = memory_dir();
    let (mut catalogue, _) = open(dir.path());
    let histogram = |grouping_power, max_power| {
        let form = Form::Histogram(Shape { grouping_power, max_power });
        Part { region: "r".into(), group: 0, series: vec![series("h", &[], form, Metric::Histogram)] }
    };
    assert!(catalogue.define_part(&histogram(2, 20)).is_ok());
    assert!(catalogue.define_part(&histogram(30, 20)).is_err(), "it would have less than no buckets");
    assert!(catalogue.define_part(&histogram(40, 64)).is_err(), "it would have more than fit in memory");
    let mut outside = Part::clone(&part("r", vec![series("x", &[], Form::Unsigned, Metric::Gauge)]));
    outside.series[0].at = usize::MAX;
    assert!(catalogue.define_part(&outside).is_err());
    assert_eq!(catalogue.look().next_track(), TrackId(1));
}

#[test]
fn files_that_lie_are_errors() {
    bolero::check!().with_type::<(Vec<(u8, Vec<u8>)>, Vec<u8>)>().for_each(|(bodies, noise)| {
        let dir = memory_dir();
        drop(open(dir.path()));
        let mut items = Vec::new();
        Item::Host { number: HostId(5), name: "five", labels: super::Pairs::new(&[]) }.encode(&mut items);
        for (kind, body) in bodies {
            items.push(kind % 11);
            crate::framing::bytes::put_unsigned(body.len() as u64, &mut items);
            items.extend_from_slice(body);
        }
        let mut bytes = Vec::new();
        append_header(1, super::known::Known::default().next, &mut bytes);
        pack(&items, &mut bytes);
        for kind in 1..4 {
            framing::append(kind, noise, &mut bytes);
        }
        paths(dir.path()).iter().for_each(|path| fs::write(path, &bytes).unwrap());
        if let Ok((catalogue, _)) = Catalogue::open(&Lock::take(dir.path()).unwrap()) {
            assert!(catalogue.look().host(HostId(5)).is_some());
        }
        let _ = Loading::default().read_pair(dir.path(), 1);
    });
}

/// Bits of numbers come back, or a part would not be what its id says.
#[test]
fn scales_come_back_to_the_bit() {
    bolero::check!().with_type::<u64>().for_each(|bits| {
        let scale = f64::from_bits(*bits);
        if scale.is_finite() {
            let mut one = series("x", &[], Form::Unsigned, Metric::Gauge);
            one.scale = scale;
            let (id, content) = part("r", vec![one]).content();
            let again: Part = serde_json::from_slice(&content).unwrap();
            assert_eq!((again.series[0].scale.to_bits(), again.content().0), (*bits, id));
            assert_eq!(ContentId::of(&content), id);
        }
    });
}
