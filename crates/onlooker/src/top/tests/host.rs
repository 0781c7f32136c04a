// SPDX-License-Identifier: Apache-2.0
//! A host with the agent's regions and tables and a program, all of which go on every second.

use super::super::kind::{Kind, Region};
use super::super::model::Model;
use super::super::screen;
use super::super::theme::Theme;
use super::super::view::{Action, View};
use crate::read::fixture;
use onlooker_region::guard::commit;
use onlooker_region::limits::BLOCK_WORDS;
use onlooker_region::limits::FIRST_PROGRAM_REGION;
use onlooker_region::schema::Schema;
use onlooker_region::sync::AtomicU64;
use onlooker_region::table::{KeyValue, RowValues, Table, pack_key};
use onlooker_series::derive::Derived;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

const S: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

/// Of each slot its first value, and what each second adds.
type Slots = Vec<(u64, u64)>;

/// A region of the machine's, sampled at each reading: its fields and how they go on each second.
struct Sampled {
    region: fixture::Region,
    slots: Slots,
}

/// Rows of a table: key, values and how they go on each second.
pub(super) struct Tabled {
    pub(super) table: Table<Blocks>,
    pub(super) rows: Vec<(Vec<u64>, Slots)>,
}

/// The blocks of a region's table.
pub(super) struct Blocks {
    words: fixture::Shared,
    from: usize,
}

impl AsRef<[AtomicU64]> for Blocks {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.words.as_ref()[self.from..]
    }
}

pub(super) struct Host {
    memory: fixture::Host,
    sampled: Vec<Sampled>,
    pub(super) tabled: Vec<Tabled>,
    pub(super) model: Model,
    derived: Derived,
    session: onlooker_reader::Session,
    pub(super) now_ns: u64,
    /// That were read so far.
    pub(super) blocks: u64,
}

/// A field: name, metric, labels as JSON, first value, what each second adds.
type Field = (&'static str, &'static str, &'static str, u64, u64);

const CPU: &[Field] = &[
    ("node_cpu_seconds_total", "counter", r#"{"cpu":"0","mode":"user"}"#, 0, 600),
    ("node_cpu_seconds_total", "counter", r#"{"cpu":"0","mode":"idle"}"#, 0, 400),
    ("node_cpu_seconds_total", "counter", r#"{"cpu":"1","mode":"system"}"#, 0, 200),
    ("node_cpu_seconds_total", "counter", r#"{"cpu":"1","mode":"iowait"}"#, 0, 300),
    ("node_cpu_seconds_total", "counter", r#"{"cpu":"1","mode":"idle"}"#, 0, 500),
];
const LOAD: &[Field] = &[("node_load1", "gauge", "{}", 1_520, 0), ("node_load5", "gauge", "{}", 2_000, 0)];
const MEMORY: &[Field] = &[
    ("node_memory_MemTotal_bytes", "gauge", "{}", 8_000_000, 0),
    ("node_memory_MemAvailable_bytes", "gauge", "{}", 6_000_000, 0),
    ("node_memory_SwapTotal_bytes", "gauge", "{}", 4_000_000, 0),
    ("node_memory_SwapFree_bytes", "gauge", "{}", 3_000_000, 0),
];
const PRESSURE: &[Field] = &[
    ("node_pressure_io_waiting_seconds_total", "counter", "{}", 0, 330),
    ("node_pressure_io_stalled_seconds_total", "counter", "{}", 0, 110),
    ("node_pressure_cpu_waiting_seconds_total", "counter", "{}", 0, 50),
];
const FILESYSTEM: &[Field] = &[
    ("node_filesystem_size_bytes", "gauge", r#"{"device":"/dev/sda1","mountpoint":"/","fstype":"ext4"}"#, 100_000, 0),
    ("node_filesystem_free_bytes", "gauge", r#"{"device":"/dev/sda1","mountpoint":"/","fstype":"ext4"}"#, 60_000, 0),
    ("node_filesystem_avail_bytes", "gauge", r#"{"device":"/dev/sda1","mountpoint":"/","fstype":"ext4"}"#, 55_000, 0),
    ("node_filesystem_size_bytes", "gauge", r#"{"device":"/dev/sdb","mountpoint":"/srv","fstype":"xfs"}"#, 100_000, 0),
    ("node_filesystem_free_bytes", "gauge", r#"{"device":"/dev/sdb","mountpoint":"/srv","fstype":"xfs"}"#, 4_000, 0),
    ("node_filesystem_avail_bytes", "gauge", r#"{"device":"/dev/sdb","mountpoint":"/srv","fstype":"xfs"}"#, 4_000, 0),
    (
        "node_filesystem_size_bytes",
        "gauge",
        r#"{"device":"/dev/sdb","mountpoint":"/srv/again","fstype":"xfs"}"#,
        100_000,
        0,
    ),
    (
        "node_filesystem_free_bytes",
        "gauge",
        r#"{"device":"/dev/sdb","mountpoint":"/srv/again","fstype":"xfs"}"#,
        4_000,
        0,
    ),
    (
        "node_filesystem_avail_bytes",
        "gauge",
        r#"{"device":"/dev/sdb","mountpoint":"/srv/again","fstype":"xfs"}"#,
        4_000,
        0,
    ),
    (
        "node_filesystem_size_bytes",
        "gauge",
        r#"{"device":"/dev/loop0","mountpoint":"/snap/x","fstype":"squashfs"}"#,
        9_000,
        0,
    ),
    (
        "node_filesystem_free_bytes",
        "gauge",
        r#"{"device":"/dev/loop0","mountpoint":"/snap/x","fstype":"squashfs"}"#,
        0,
        0,
    ),
    (
        "node_filesystem_avail_bytes",
        "gauge",
        r#"{"device":"/dev/loop0","mountpoint":"/snap/x","fstype":"squashfs"}"#,
        0,
        0,
    ),
];
const DISK: &[Field] = &[
    ("node_disk_io_time_seconds_total", "counter", r#"{"device":"sda"}"#, 0, 950),
    ("node_disk_read_bytes_total", "counter", r#"{"device":"sda"}"#, 0, 2_048_000),
    ("node_disk_written_bytes_total", "counter", r#"{"device":"sda"}"#, 0, 1_024_000),
    ("node_disk_reads_completed_total", "counter", r#"{"device":"sda"}"#, 0, 100_000),
    ("node_disk_writes_completed_total", "counter", r#"{"device":"sda"}"#, 0, 100_000),
    ("node_disk_read_time_seconds_total", "counter", r#"{"device":"sda"}"#, 0, 400),
    ("node_disk_write_time_seconds_total", "counter", r#"{"device":"sda"}"#, 0, 0),
];
const NETWORK: &[Field] = &[
    ("node_network_receive_bytes_total", "counter", r#"{"device":"eth0"}"#, 0, 3_072_000),
    ("node_network_transmit_bytes_total", "counter", r#"{"device":"eth0"}"#, 0, 1_024_000),
    ("node_network_receive_drop_total", "counter", r#"{"device":"eth0"}"#, 0, 5_000),
    ("node_network_receive_bytes_total", "counter", r#"{"device":"docker0"}"#, 0, 9_072_000),
    ("node_network_transmit_bytes_total", "counter", r#"{"device":"docker0"}"#, 0, 9_024_000),
];
const NETSTAT: &[Field] = &[
    ("node_netstat_Tcp_OutSegs", "counter", "{}", 0, 1_000_000),
    ("node_netstat_Tcp_RetransSegs", "counter", "{}", 0, 25_000),
    ("node_netstat_Tcp_CurrEstab", "gauge", "{}", 12_000, 0),
];
const INTERRUPTS: &[Field] = &[("node_interrupts_total", "counter", r#"{"type":"timer"}"#, 0, 9_000)];

const PROCESS: &str = r#"{"name":"processes","groups":[
    {"kind":"guarded","blocks":1,"fields":[{"name":"onlooker_table_rows_missing","metric":"gauge","type":"u64","labels":{"table":"processes"}}]},
    {"kind":"table","blocks":8,"key":[{"name":"name","type":"text","bytes":16},{"name":"pid","type":"u64"}],"fields":[
        {"name":"onlooker_process_cpu_seconds_total","metric":"counter","type":"u64","scale":0.001,"array":{"label":"mode","count":2,"stride":1,"values":["user","system"]}},
        {"name":"onlooker_process_resident_bytes","metric":"gauge","type":"u64","slot":2},
        {"name":"onlooker_process_read_bytes_total","metric":"counter","type":"u64","slot":3},
        {"name":"onlooker_process_written_bytes_total","metric":"counter","type":"u64","slot":4},
        {"name":"onlooker_process_unreadable","metric":"gauge","type":"u64","slot":5},
        {"name":"onlooker_process_threads","metric":"gauge","type":"u64","slot":6},
        {"name":"onlooker_process_processes","metric":"gauge","type":"u64","slot":7},
        {"name":"onlooker_process_state","metric":"gauge","type":"u64","slot":8,"array":{"label":"state","count":2,"stride":1,"values":["sleeping","disk"]}}]}]}"#;
const CGROUP: &str = r#"{"name":"cgroups","groups":[
    {"kind":"table","blocks":8,"key":[{"name":"name","type":"text","bytes":40},{"name":"runtime","type":"text","bytes":16},{"name":"cgroup","type":"u64"}],"fields":[
        {"name":"container_cpu_usage_seconds_total","metric":"counter","type":"u64","scale":0.001},
        {"name":"container_cpu_cfs_throttled_seconds_total","metric":"counter","type":"u64","scale":0.001,"slot":1},
        {"name":"container_memory_working_set_bytes","metric":"gauge","type":"u64","slot":2},
        {"name":"container_spec_memory_limit_bytes","metric":"gauge","type":"u64","slot":3},
        {"name":"container_fs_reads_bytes_total","metric":"counter","type":"u64","slot":4},
        {"name":"container_fs_writes_bytes_total","metric":"counter","type":"u64","slot":5},
        {"name":"container_oom_events_total","metric":"counter","type":"u64","slot":6}]}]}"#;
const PROGRAM: &str = r#"{"name":"till","groups":[{"kind":"plain","blocks":1,"fields":[
    {"name":"till_sales_total","metric":"counter","type":"u64","array":{"label":"desk","count":2,"stride":1}}]}]}"#;
/// A name that a terminal would obey, that is wide and that is read from right to left.
const HOSTILE: &str = "\u{1b}[2J\u{202e}\u{4e2d}\u{6587}";

impl Host {
    pub(super) fn new(tables: bool) -> Self {
        let memory = fixture::host_of(512);
        let session = fixture::session_of(&memory);
        let model = Model::new("web-3:7177".into(), Duration::from_millis(100), (0, 50_000 * S));
        let (sampled, tabled) = (Vec::new(), Vec::new());
        let mut host =
            Self { memory, sampled, tabled, model, derived: Derived::default(), session, now_ns: 10 * S, blocks: 0 };
        for (id, (name, fields)) in (20..).zip([
            ("node_cpu", CPU),
            ("node_load", LOAD),
            ("node_memory_sampled", MEMORY),
            ("node_pressure", PRESSURE),
            ("node_filesystem", FILESYSTEM),
            ("node_disk", DISK),
            ("node_network", NETWORK),
            ("node_netstat", NETSTAT),
            ("node_interrupts", INTERRUPTS),
        ]) {
            host.sample(id, name, fields);
        }
        let labels = [("pid", "815"), ("program", "till")];
        host.memory.region(FIRST_PROGRAM_REGION, "till", &labels, PROGRAM);
        if tables {
            use KeyValue::{Text, U64 as Number};
            host.table(
                40,
                "processes",
                PROCESS,
                44,
                vec![
                    (
                        vec![Text("postgres"), Number(812)],
                        row_of(&[
                            (0, 700),
                            (0, 550),
                            (900 * MIB, 0),
                            (0, 3 * MIB),
                            (0, 0),
                            (0, 0),
                            (9, 0),
                            (1, 0),
                            (1, 0),
                            (0, 0),
                        ]),
                    ),
                    (
                        vec![Text("leaky"), Number(4711)],
                        row_of(&[
                            (0, 20),
                            (0, 0),
                            (100 * MIB, 3 * MIB),
                            (0, 0),
                            (0, 0),
                            (1, 0),
                            (1, 0),
                            (1, 0),
                            (0, 0),
                            (1, 0),
                        ]),
                    ),
                    (
                        vec![Text(HOSTILE), Number(5)],
                        row_of(&[(0, 1), (0, 0), (MIB, 0), (0, 0), (0, 0), (0, 0), (1, 0), (1, 0), (1, 0), (0, 0)]),
                    ),
                ],
            );
            host.table(
                41,
                "cgroups",
                CGROUP,
                0,
                vec![
                    (
                        vec![Text("0123456789ab"), Text("docker"), Number(77)],
                        row_of(&[(0, 1_500), (0, 250), (950 * MIB, 0), (1000 * MIB, 0), (0, 0), (0, 2 * MIB), (3, 0)]),
                    ),
                    (
                        vec![Text("sshd.service"), Text("none"), Number(78)],
                        row_of(&[(0, 0), (0, 0), (MIB, 0), (0, 0), (0, 0), (0, 0), (0, 0)]),
                    ),
                ],
            );
        }
        host
    }

    fn sample(&mut self, id: u32, name: &'static str, fields: &[Field]) {
        let mut text = String::new();
        for (slot, (name, metric, labels, ..)) in fields.iter().enumerate() {
            let comma = if slot > 0 { "," } else { "" };
            let _ = write!(
                text,
                r#"{comma}{{"name":"{name}","metric":"{metric}","type":"u64","scale":0.001,"slot":{slot},"labels":{labels}}}"#
            );
        }
        let schema = format!(r#"{{"name":"{name}","groups":[{{"kind":"guarded","blocks":1,"fields":[{text}]}}]}}"#);
        let region = self.memory.region(id, name, &[], &schema);
        let slots = fields.iter().map(|(_, _, _, first, step)| (*first, *step)).collect();
        self.sampled.push(Sampled { region, slots });
    }

    fn table(&mut self, id: u32, name: &str, schema: &str, missing: u64, rows: Vec<(Vec<KeyValue>, Slots)>) {
        let region = self.memory.region(id, name, &[], schema);
        let identity = region.entry.identity;
        if missing > 0 {
            commit(region.words.block(0), identity, 1, |payload| payload.set_all(0, &[missing]));
        }
        let schema = Schema::parse(schema).unwrap();
        let group = schema.groups.last().unwrap();
        let first = schema.blocks() - group.blocks;
        let blocks = Blocks { words: region.words, from: first as usize * BLOCK_WORDS };
        let table = Table::new(group.layout().unwrap(), blocks, identity.at(u16::try_from(first).unwrap()), 1);
        let rows = rows.into_iter().map(|(key, values)| (pack_key(&group.key, &key).unwrap(), values)).collect();
        self.tabled.push(Tabled { table, rows });
    }

    /// Another second, read for the view.
    pub(super) fn second(&mut self, kind: Kind) {
        self.now_ns += S;
        let seconds = self.now_ns / S - 10;
        // The host's clock, as the fixture has it.
        let host_ns = self.now_ns + 999 * S;
        for Sampled { region, slots } in &self.sampled {
            let values: Vec<u64> = slots.iter().map(|(first, step)| first + step * seconds).collect();
            commit(region.words.block(0), region.entry.identity, host_ns, |payload| payload.set_all(0, &values));
        }
        for Tabled { table, rows } in &mut self.tabled {
            for (key, values) in rows {
                let fill = |row: &mut RowValues| {
                    values.iter().enumerate().for_each(|(slot, (first, step))| row.set(slot, first + step * seconds));
                };
                table.upsert(key, host_ns, fill).unwrap();
            }
        }
        self.read(kind);
    }

    pub(super) fn read(&mut self, kind: Kind) {
        self.model.follow(kind, &HashSet::new(), None);
        let (pace, now_ns) = (self.model.pace.clone(), self.now_ns);
        self.session.select(move |entry, _| pace.wants(&Region::of(entry), now_ns));
        fixture::read_into(&self.memory, &mut self.session, now_ns);
        self.model.spend(kind, &self.session, now_ns);
        self.model.take(&self.session, &fixture::relation(), &mut self.derived, now_ns);
        self.blocks = self.session.counters().blocks;
    }

    pub(super) fn buffer(&self, view: &mut View, (width, height): (u16, u16), theme: Theme) -> ratatui::buffer::Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let drawn = terminal.draw(|frame| {
            let area = frame.area();
            screen::draw(view, &self.model, self.now_ns, theme, area, frame.buffer_mut());
        });
        drawn.unwrap().buffer.clone()
    }

    pub(super) fn lines(&self, view: &mut View, size: (u16, u16)) -> Vec<String> {
        let buffer = self.buffer(view, size, Theme::plain());
        let line = |y| (0..size.0).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..size.1).map(line).collect()
    }

    pub(super) fn press(&self, view: &mut View, code: KeyCode) -> Action {
        view.key(KeyEvent::new(code, KeyModifiers::NONE), &self.model, self.now_ns)
    }
}

fn row_of(values: &[(u64, u64)]) -> Slots {
    values.to_vec()
}
