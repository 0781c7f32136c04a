// SPDX-License-Identifier: Apache-2.0
//! Trees of files as cgroupfs has them, and the machine's own cgroupfs.

use std::collections::{BTreeMap, BTreeSet};

use onlooker_region::Block;
use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;
use onlooker_region::limits::BLOCK_WORDS;

use super::super::sheet::tests::memory;
use super::*;

struct Fixture {
    table: Table,
    ground: Ground,
    region: Region,
    root: tempfile::TempDir,
}

/// A row: labels and generation, with the values and the infos of it.
type Rows = BTreeMap<(String, u64, u32), BTreeMap<String, f64>>;

impl Fixture {
    fn new(rows: u32) -> Self {
        let root = tempfile::tempdir().unwrap();
        Self::at(root.path().to_owned(), root, rows)
    }

    fn at(path: PathBuf, root: tempfile::TempDir, rows: u32) -> Self {
        let options = Options { interval: Span::from_s(5), rows, root: path };
        let region = regions(&options).remove(0);
        region.schema.check().unwrap();
        assert_eq!(region.schema.groups[1].layout(), Some(LAYOUT));
        let ground = Ground { memory: memory(region.schema.blocks().into()), identity: Identity::first(1, 5) };
        let table = Table::new(&options, std::slice::from_ref(&ground), 1);
        Self { table, ground, region, root }
    }

    fn write(&self, group: &str, name: &str, text: &str) {
        let dir = self.root.path().join(group);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(name), text).unwrap();
    }

    fn remove(&self, group: &str) {
        fs::remove_dir_all(self.root.path().join(group)).unwrap();
    }

    fn run(&mut self) -> Rows {
        self.table.run(7).unwrap();
        let blocks: Vec<Block> = self
            .ground
            .memory
            .words()
            .chunks_exact(BLOCK_WORDS)
            .map(|words| {
                let mut block = Block::default();
                block.copy_from(words);
                block
            })
            .collect();
        let mut rows = Rows::new();
        let plan = Plan::new(self.region.schema.clone());
        let refused = plan.decode(self.ground.identity, &blocks, |sample| {
            let labels: BTreeMap<String, String> = sample.labels().into_iter().collect();
            let Some(row) = sample.row else { return };
            let key = (
                format!("{} {}", labels["runtime"], labels["name"]),
                labels["cgroup"].parse().unwrap(),
                row.generation,
            );
            let row = rows.entry(key).or_default();
            let name = match &sample.value {
                onlooker_region::columns::Value::Text(text) => format!("{}={text}", sample.field.name),
                _ => sample.field.name.clone(),
            };
            row.insert(name, sample.scaled());
        });
        assert!(refused.unwrap().is_empty());
        rows
    }

    fn names(rows: &Rows) -> BTreeSet<&str> {
        rows.keys().map(|(name, ..)| name.as_str()).collect()
    }

    fn missing(&self) -> u64 {
        self.table.told.missing
    }
}

fn row<'a>(rows: &'a Rows, name: &str) -> &'a BTreeMap<String, f64> {
    let found: Vec<_> = rows.iter().filter(|((other, ..), _)| other == name).collect();
    assert_eq!(found.len(), 1, "{name}: {rows:?}");
    found[0].1
}

#[test]
fn version_2_has_rows_with_paths_and_values() {
    let mut fixture = Fixture::new(16);
    let id = "ab".repeat(32);
    let container = format!("system.slice/docker-{id}.scope");
    fixture.write("", "cgroup.controllers", "cpu memory\n");
    fixture.write("", "cpu.stat", "usage_usec 5000000\n");
    fixture.write(&container, "cpu.stat", "usage_usec 1500000\nuser_usec 1000000\n");
    fixture.write(&container, "memory.current", "4096\n");
    fixture.write(&container, "cpu.pressure", "some avg10=0 total=250000\n");
    let rows = fixture.run();
    // A group without a single file that is known is none: system.slice here.
    assert_eq!(Fixture::names(&rows), BTreeSet::from(["docker abababababab", "none /"]));
    let values = row(&rows, "docker abababababab");
    for (name, value) in [
        ("container_cpu_usage_seconds_total", 1.5),
        ("container_memory_usage_bytes", 4096.0),
        ("container_pressure_cpu_waiting_seconds_total", 0.25),
        (&format!("onlooker_cgroup_path_info=/{container}"), 1.0),
        (&format!("onlooker_cgroup_container_info={id}"), 1.0),
    ] {
        assert!((values[name] - value).abs() < 1e-9, "{name}: {values:?}");
    }
    // Through the descriptor that stayed open.
    fixture.write(&container, "memory.current", "8192\n");
    assert!((row(&fixture.run(), "docker abababababab")["container_memory_usage_bytes"] - 8192.0).abs() < 1e-9);
    assert_eq!(fixture.table.open, 4);
    fixture.remove("system.slice");
    assert_eq!(Fixture::names(&fixture.run()), BTreeSet::from(["none /"]));
    assert_eq!(fixture.table.open, 1, "descriptors of what has ended are closed");
}

#[test]
fn version_1_joins_its_hierarchies_by_path() {
    let mut fixture = Fixture::new(16);
    for hierarchy in ["memory", "pids", "cpuacct"] {
        fixture.write(hierarchy, "cgroup.procs", "");
        fixture.write(hierarchy, "tasks", "");
    }
    fixture.write("memory/web", "memory.usage_in_bytes", "100\n");
    fixture.write("pids/web", "pids.current", "3\n");
    fixture.write("pids/only-pids", "pids.current", "4\n");
    fixture.write("cpuacct/web", "cpuacct.usage", "2000000000\n");
    let rows = fixture.run();
    assert_eq!(Fixture::names(&rows), BTreeSet::from(["none web", "none only-pids"]));
    let web = row(&rows, "none web");
    for (name, value) in [
        ("container_memory_usage_bytes", 100.0),
        ("container_threads", 3.0),
        ("container_cpu_usage_seconds_total", 2.0),
    ] {
        assert!((web[name] - value).abs() < 1e-9, "{name}: {web:?}");
    }
}

#[test]
fn a_thousand_groups_come_and_go() {
    let mut fixture = Fixture::new(64);
    fixture.write("", "cgroup.controllers", "pids\n");
    fixture.write("", "pids.current", "1\n");
    let mut owners = BTreeMap::new();
    for round in 0..25 {
        for number in 0..40 {
            fixture.write(&format!("job-{round}-{number}"), "pids.current", &format!("{round}\n"));
        }
        let rows = fixture.run();
        assert_eq!((rows.len(), fixture.missing()), (41, 0), "round {round}");
        for ((name, ..), values) in rows.iter().filter(|((name, ..), _)| name != "none /") {
            assert!(name.starts_with(&format!("none job-{round}-")), "{name}");
            assert!((values["container_threads"] - f64::from(round)).abs() < 1e-9, "{name}: {values:?}");
        }
        // Where a row stands and its generation name it for ever.
        for (row, generation, entity) in fixture.table.sheet.live() {
            let before = owners.insert((row, generation), entity);
            assert!(before.is_none_or(|before| before == entity), "row {row}, generation {generation}: another one's");
        }
        for number in 0..40 {
            fixture.remove(&format!("job-{round}-{number}"));
        }
    }
    assert_eq!(fixture.run().len(), 1);
    assert_eq!((fixture.table.open, fixture.table.groups.len()), (1, 1), "nothing is kept of those that went");
}

#[test]
fn what_has_no_row_is_counted_and_upper_levels_come_first() {
    let mut fixture = Fixture::new(4);
    fixture.write("", "cgroup.controllers", "pids\n");
    for name in ["", "a", "b", "a/1", "a/2", "a/1/x", "b/1"] {
        fixture.write(name, "pids.current", "1\n");
    }
    let rows = fixture.run();
    assert_eq!((rows.len(), fixture.missing()), (4, 3));
    let names = Fixture::names(&rows);
    assert!(["none /", "none a", "none b"].iter().all(|name| names.contains(name)), "{names:?}");
    for number in 0..100 {
        fixture.write(&format!("many-{number}"), "pids.current", "1\n");
    }
    let rows = fixture.run();
    assert_eq!(rows.len(), 4, "those that have rows keep them");
    assert!(fixture.missing() >= 100, "{}", fixture.missing());
}

#[test]
fn hostile_names_are_only_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let mut fixture = Fixture::new(32);
    fixture.write("", "cgroup.controllers", "pids\n");
    let long = "x".repeat(250);
    let long_path = [long.as_str(); 3].join("/");
    for name in [
        "a\nb",
        "\"quoted\\\"",
        "{}=,",
        "docker-.scope",
        "ü".repeat(100).as_str(),
        long_path.as_str(),
        "machine-\\x.scope",
    ] {
        fixture.write(name, "pids.current", "1\n");
    }
    let broken = fixture.root.path().join(OsStr::from_bytes(b"\xff\xfe"));
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("pids.current"), "5\n").unwrap();
    // Neither a link out of the tree nor a file where a directory is expected is followed.
    std::os::unix::fs::symlink("/", fixture.root.path().join("link")).unwrap();
    let rows = fixture.run();
    assert_eq!(rows.len(), 8, "{:?}", Fixture::names(&rows));
    assert!((row(&rows, "none \u{fffd}\u{fffd}")["container_threads"] - 5.0).abs() < 1e-9);
    assert!(Fixture::names(&rows).contains(format!("none {}", "ü".repeat(20)).as_str()), "cut at a character's end");
    let deepest = row(&rows, &format!("none {}", "x".repeat(40)));
    let path = deepest.keys().find_map(|name| name.strip_prefix("onlooker_cgroup_path_info=")).unwrap();
    assert_eq!(path, &format!("/{long_path}")[long_path.len() + 1 - 256..], "the end of a long path");
}

/// As version 1 lets it be done: in each hierarchy for itself, with all that is in it.
#[test]
fn a_renamed_group_has_its_new_name_and_its_own_files() {
    let mut fixture = Fixture::new(3);
    for hierarchy in ["memory", "pids"] {
        fixture.write(hierarchy, "cgroup.procs", "");
    }
    fixture.write("memory/old", "memory.usage_in_bytes", "150\n");
    fixture.write("memory/old/part", "memory.usage_in_bytes", "100\n");
    fixture.write("pids/old/part", "pids.current", "3\n");
    assert_eq!(Fixture::names(&fixture.run()), BTreeSet::from(["none old", "none part"]));
    let rename = |hierarchy: &str, from: &str, to: &str| {
        fs::rename(fixture.root.path().join(hierarchy).join(from), fixture.root.path().join(hierarchy).join(to))
            .unwrap();
    };
    for hierarchy in ["memory", "pids"] {
        rename(hierarchy, "old", "new");
    }
    // Somebody else's, under the name that is free now.
    fixture.write("pids/old/other", "pids.current", "9\n");
    let rows = fixture.run();
    assert_eq!(Fixture::names(&rows), BTreeSet::from(["none new", "none part", "none other"]));
    let part = row(&rows, "none part");
    for (name, value) in [
        ("container_memory_usage_bytes", 100.0),
        ("container_threads", 3.0),
        ("onlooker_cgroup_path_info=/new/part", 1.0),
    ] {
        assert!((part.get(name).unwrap_or(&-1.0) - value).abs() < 1e-9, "{name}: {part:?}");
    }
    assert_eq!((fixture.table.open, fixture.missing()), (4, 0), "files of the old names are closed");
}

const MEMORY: &str = "container_memory_usage_bytes";
const CPU: &str = "container_cpu_usage_seconds_total";

/// Runs until a value is not 0, at most as many as it may take until files are looked for again.
fn value_in_time(fixture: &mut Fixture, name: &str, metric: &str) -> f64 {
    let mut now = 0.0;
    for _ in 0..ABSENT_RUNS {
        now = row(&fixture.run(), name)[metric];
        if now > 0.0 {
            break;
        }
    }
    now
}

#[test]
fn a_file_that_comes_later_is_found() {
    let mut fixture = Fixture::new(16);
    for hierarchy in ["memory", "cpuacct"] {
        fixture.write(hierarchy, "cgroup.procs", "");
    }
    for name in ["a", "b", "c"] {
        fixture.write(&format!("memory/{name}"), "memory.usage_in_bytes", "100\n");
    }
    let rows = fixture.run();
    assert!(row(&rows, "none a")[CPU].abs() < 1e-9);
    for name in ["a", "b", "c"] {
        fixture.write(&format!("cpuacct/{name}"), "cpuacct.usage", "2000000000\n");
        let label = format!("none {name}");
        assert!((value_in_time(&mut fixture, &label, CPU) - 2.0).abs() < 1e-9, "{name}");
    }
    assert_eq!(fixture.table.open, 6);
}

#[test]
fn a_file_that_cannot_be_read_any_more_leaves_0_until_it_is_back() {
    let mut fixture = Fixture::new(4);
    fixture.write("", "cgroup.controllers", "memory pids\n");
    fixture.write("", "memory.current", "4096\n");
    fixture.write("", "pids.current", "3\n");
    fixture.run();
    assert_eq!(fixture.table.open, 2);
    // A directory opens and cannot be read, as a descriptor of cgroupfs whose file was taken away.
    let at = files::V2.iter().position(|file| file.name == "memory.current").unwrap();
    let group = fixture.table.groups.values_mut().next().unwrap();
    group.handles[at] = Handle::Open(File::open("/").unwrap());
    fs::remove_file(fixture.root.path().join("memory.current")).unwrap();
    for _ in 0..2 * ABSENT_RUNS {
        let rows = fixture.run();
        let values = row(&rows, "none /");
        assert!(values[MEMORY].abs() < 1e-9 && values["container_memory_working_set_bytes"].abs() < 1e-9);
        assert!((values["container_threads"] - 3.0).abs() < 1e-9, "other files are read all the same");
        assert_eq!(fixture.table.open, 1);
    }
    fixture.write("", "memory.current", "8192\n");
    assert!((value_in_time(&mut fixture, "none /", MEMORY) - 8192.0).abs() < 1e-9);
    assert_eq!(fixture.table.open, 2);
    // Gone while its descriptor is not kept: opened in each run.
    fixture.table.most_open = 0;
    let group = fixture.table.groups.values_mut().next().unwrap();
    group.handles[at] = Handle::Closed;
    fs::remove_file(fixture.root.path().join("memory.current")).unwrap();
    assert!(row(&fixture.run(), "none /")[MEMORY].abs() < 1e-9);
}

/// What a descriptor is worth whose file was taken away only the kernel says. Version 1: the group is removed from one of its hierarchies.
#[test]
fn a_controller_that_the_kernel_turns_off_and_on() {
    let root = PathBuf::from("/sys/fs/cgroup");
    let Ok(tree) = Tree::at(&root) else { return };
    let (is_v2, name) = (tree == Tree::V2, format!("onlk-controller-{}", std::process::id()));
    if !is_v2 && !["memory", "pids"].iter().all(|hierarchy| tree.roots().contains(hierarchy)) {
        return;
    }
    let part = format!("{name}-part");
    let upper = root.join(&name);
    let (group, limited) = if is_v2 {
        (upper.join(&part), upper.join(&part))
    } else {
        (root.join("memory").join(&part), root.join("pids").join(&part))
    };
    let turn = |is_on: bool| -> io::Result<()> {
        match (is_v2, is_on) {
            (true, true) => fs::write(upper.join("cgroup.subtree_control"), "+pids")?,
            (true, false) => fs::write(upper.join("cgroup.subtree_control"), "-pids")?,
            (false, true) => fs::create_dir(&limited)?,
            (false, false) => fs::remove_dir(&limited)?,
        }
        if is_on { fs::write(limited.join("pids.max"), "7") } else { Ok(()) }
    };
    let remove = || {
        for dir in [&limited, &group, &upper] {
            drop(fs::remove_dir(dir));
        }
    };
    // Not root, or no such controller.
    if fs::create_dir_all(&group).and_then(|()| turn(true)).is_err() {
        remove();
        return;
    }
    let mut fixture = Fixture::at(root, tempfile::tempdir().unwrap(), 2048);
    let (label, limit) = (format!("none {part}"), "container_threads_max");
    let first = row(&fixture.run(), &label)[limit];
    let turned_off = turn(false);
    let off = row(&fixture.run(), &label)[limit];
    let turned_on = turn(true);
    let on = value_in_time(&mut fixture, &label, limit);
    remove();
    assert!(turned_off.is_ok() && turned_on.is_ok(), "{turned_off:?} {turned_on:?}");
    let expected = [7.0, 0.0, 7.0];
    assert!(std::iter::zip([first, off, on], expected).all(|(a, b)| (a - b).abs() < 1e-9), "{first} {off} {on}");
}

#[test]
fn without_cgroups_the_run_says_so() {
    let mut fixture = Fixture::new(4);
    assert!(fixture.table.run(7).unwrap_err().contains("[cgroups] root"));
}

/// Whatever this machine has, and a group of ours in it.
#[test]
fn the_machines_own_cgroups() {
    let root = PathBuf::from("/sys/fs/cgroup");
    let Ok(tree) = Tree::at(&root) else { return };
    let mut fixture = Fixture::at(root.clone(), tempfile::tempdir().unwrap(), 2048);
    let rows = fixture.run();
    let usage: f64 = rows.values().map(|values| values["container_cpu_usage_seconds_total"]).sum();
    assert!(usage > 0.0, "somebody has used a CPU");
    let name = format!("onlk-tables-{}", std::process::id());
    let dirs: Vec<PathBuf> = tree.roots().iter().map(|hierarchy| root.join(hierarchy).join(&name)).collect();
    // Not root, or not ours to change.
    if dirs.iter().any(|dir| fs::create_dir(dir).is_err()) {
        dirs.iter().for_each(|dir| drop(fs::remove_dir(dir)));
        return;
    }
    let own = |rows: &Rows| {
        let found = rows.iter().find(|((other, ..), _)| *other == format!("none {name}"));
        found.map(|((_, inode, generation), values)| ((*inode, *generation), values["container_threads"]))
    };
    let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    dirs.iter().for_each(|dir| fs::write(dir.join("cgroup.procs"), sleeper.id().to_string()).unwrap());
    let with_process = own(&fixture.run());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let without = own(&fixture.run());
    let remove = || {
        for dir in &dirs {
            // Busy until the kernel has put the process away.
            for _ in 0..100 {
                if fs::remove_dir(dir).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    };
    remove();
    let gone = own(&fixture.run());
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let again = own(&fixture.run());
    remove();
    let has_pids = root.join("pids").is_dir()
        || fs::read_to_string(root.join("cgroup.subtree_control")).is_ok_and(|text| text.contains("pids"));
    let threads = if has_pids { 1.0 } else { 0.0 };
    assert!(with_process.is_some_and(|(_, now)| (now - threads).abs() < 1e-9), "{with_process:?}");
    assert!(without.is_some_and(|(_, now)| now.abs() < 1e-9) && gone.is_none(), "{without:?} {gone:?}");
    assert!(again.is_some_and(|(entity, _)| Some(entity) != without.map(|(entity, _)| entity)), "{again:?}");
}
