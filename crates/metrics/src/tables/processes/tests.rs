// SPDX-License-Identifier: Apache-2.0
//! Trees of files as procfs has them, and the machine's own procfs.

use onlooker_region::Block;
use onlooker_region::block::Identity;
use onlooker_region::columns::Plan;

use super::super::sheet::tests::memory;
use super::*;

struct Fixture {
    source: Box<dyn Source>,
    ground: Ground,
    region: Region,
    root: tempfile::TempDir,
}

impl Fixture {
    fn new(by: By, rows: u32) -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().to_owned();
        Self::at(&path, root, by, rows)
    }

    fn at(path: &Path, root: tempfile::TempDir, by: By, rows: u32) -> Self {
        let options = Options { interval: Span::from_s(5), rows, by };
        let region = regions(&options).remove(0);
        region.schema.check().unwrap();
        let ground = Ground { memory: memory(region.schema.blocks().into()), identity: Identity::first(1, 5) };
        let source = source(&options, path, &ground, 1);
        Self { source, ground, region, root }
    }

    fn write(&self, pid: u32, name: &str, ticks: u64, start: u64) {
        let dir = self.root.path().join(pid.to_string());
        fs::create_dir_all(&dir).unwrap();
        let stat = format!("{pid} ({name}) R 1 1 1 0 -1 0 5 0 7 0 {ticks} 10 0 0 20 0 3 0 {start} 4096 2 9 9 9");
        fs::write(dir.join("stat"), stat).unwrap();
        fs::write(dir.join("cgroup"), "0::/system.slice/web.service\n").unwrap();
    }

    /// Name, labels and generation of a value of a row, or of the summary, with the value.
    fn run(&mut self) -> BTreeMap<String, f64> {
        self.source.run(7).unwrap();
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
        let mut values = BTreeMap::new();
        let plan = Plan::new(self.region.schema.clone());
        let refused = plan.decode(self.ground.identity, &blocks, |sample| {
            let labels: Vec<String> =
                sample.labels().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
            let generation = sample.row.map_or(0, |row| row.generation);
            values.insert(format!("{} {} {generation}", sample.field.name, labels.join(" ")), sample.scaled());
        });
        assert!(refused.unwrap().is_empty());
        values
    }
}

#[track_caller]
fn expect(values: &BTreeMap<String, f64>, name: &str, value: f64) {
    let found = values.get(name).unwrap_or_else(|| panic!("{name}: {:?}", values.keys()));
    assert!((found - value).abs() < 1e-9, "{name}: {found}");
}

#[test]
fn a_name_sums_its_processes_and_never_falls() {
    let mut fixture = Fixture::new(By::Name, 8);
    fixture.write(10, "web", 100, 1);
    fixture.write(11, "web", 300, 2);
    fixture.write(12, "other (x) y", 1, 3);
    fs::write(fixture.root.path().join("10/io"), "read_bytes: 4096\nwrite_bytes: 8192\n").unwrap();
    fs::write(fixture.root.path().join("uptime"), "1 2\n").unwrap();
    fs::create_dir(fixture.root.path().join("13")).unwrap();
    let values = fixture.run();
    let page = rustix::param::page_size() as f64;
    for (name, value) in [
        ("onlooker_process_cpu_seconds_total name=web mode=user 1", 4.0),
        ("onlooker_process_cpu_seconds_total name=web mode=system 1", 0.2),
        ("onlooker_process_resident_bytes name=web 1", 4.0 * page),
        ("onlooker_process_threads name=web 1", 6.0),
        ("onlooker_process_processes name=web 1", 2.0),
        ("onlooker_process_state name=web state=running 1", 2.0),
        ("onlooker_process_major_faults_total name=web 1", 14.0),
        ("onlooker_process_read_bytes_total name=web 1", 4096.0),
        ("onlooker_process_unreadable name=web 1", 1.0),
        ("onlooker_process_processes name=other (x) y 1", 1.0),
        ("onlooker_table_rows table=processes 0", 2.0),
    ] {
        expect(&values, name, value);
    }
    // One ends, one goes on, and the pid of the first is another's of the same name.
    fixture.write(11, "web", 350, 2);
    fixture.write(10, "web", 20, 50);
    let values = fixture.run();
    expect(&values, "onlooker_process_cpu_seconds_total name=web mode=user 1", 4.0 + 0.5 + 0.2);
    fs::remove_dir_all(fixture.root.path().join("11")).unwrap();
    fs::remove_dir_all(fixture.root.path().join("12")).unwrap();
    let values = fixture.run();
    expect(&values, "onlooker_process_cpu_seconds_total name=web mode=user 1", 4.7);
    expect(&values, "onlooker_process_processes name=web 1", 1.0);
    expect(&values, "onlooker_table_rows table=processes 0", 1.0);
}

#[test]
fn by_process_the_busiest_have_rows_and_a_pid_used_again_is_another_row() {
    let mut fixture = Fixture::new(By::Process, 2);
    for (pid, ticks) in [(10, 100), (11, 300), (12, 200)] {
        fixture.write(pid, "job", ticks, u64::from(pid));
    }
    let values = fixture.run();
    expect(&values, "onlooker_process_cpu_seconds_total name=job pid=11 mode=user 1", 3.0);
    expect(&values, "onlooker_process_cpu_seconds_total name=job pid=12 mode=user 1", 2.0);
    expect(&values, "onlooker_table_rows_missing table=processes 0", 1.0);
    // 10 was busier since; 12 has another process's start now.
    fixture.write(10, "job", 900, 10);
    fixture.write(12, "job", 700, 99);
    let values = fixture.run();
    expect(&values, "onlooker_process_cpu_seconds_total name=job pid=12 mode=user 2", 7.0);
    assert!(values.keys().any(|name| name.contains("pid=10")) && !values.keys().any(|name| name.contains("pid=11")));
}

#[test]
fn by_control_group() {
    let mut fixture = Fixture::new(By::Cgroup, 8);
    fixture.write(10, "a", 100, 1);
    fixture.write(11, "b", 50, 1);
    let values = fixture.run();
    expect(&values, "onlooker_process_cpu_seconds_total name=web.service runtime=none mode=user 1", 1.5);
}

#[test]
fn the_machines_own_processes() {
    let mut fixture = Fixture::at(Path::new("/proc"), tempfile::tempdir().unwrap(), By::Process, 4096);
    let begin = std::time::Instant::now();
    while begin.elapsed().as_millis() < 50 {
        std::hint::spin_loop();
    }
    let values = fixture.run();
    let own = format!("pid={} ", std::process::id());
    let mine: Vec<_> = values.iter().filter(|(name, _)| name.contains(&own)).collect();
    assert_eq!(mine.len(), SLOTS, "all of ours: {mine:?}");
    let value =
        |begin: &str| mine.iter().filter(|(name, _)| name.starts_with(begin)).map(|(_, value)| **value).sum::<f64>();
    assert!(value("onlooker_process_cpu_seconds_total") >= 0.03 && value("onlooker_process_threads") >= 1.0);
    assert!(
        value("onlooker_process_resident_bytes") > 1e6 && (value("onlooker_process_unreadable") - 0.0).abs() < 1e-9
    );
}
