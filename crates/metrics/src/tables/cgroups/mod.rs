// SPDX-License-Identifier: Apache-2.0
//! Control groups: a row each in region `cgroups`, from cgroupfs, version 2 or version 1.
//!
//! Each run walks the tree from the root on, upper levels first, and reads each group's files, whose descriptors stay open as far as the limit of open files allows. A row's
//! entity is the inode of its directory, which cgroupfs gives out once. The path does not fit a key (64 bytes): it is an info beside the values, joined by the label
//! `cgroup`. Memory: a block a row (1 KiB), as much again in the agent.

pub mod files;
pub mod name;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirEntryExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use onlooker_region::Schema;
use onlooker_region::schema::{Field, Metric, Type};
use onlooker_region::table::{Layout, put_text};
use onlooker_settings::units::Span;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::schema::{fields, number, summary, table, text};
use super::sheet::Sheet;
use super::{Ground, Region, Source, Told};
use files::{COLUMNS, NUMBERS};

/// Name of the region.
pub const TABLE: &str = "cgroups";

/// Words of the key: name, runtime, inode.
const NAME_WORDS: usize = 5;
const RUNTIME_WORDS: usize = 2;
const KEY_WORDS: usize = NAME_WORDS + RUNTIME_WORDS + 1;
/// Words of the infos.
const PATH_WORDS: usize = 32;
const ID_WORDS: usize = 8;
const LAYOUT: Layout = Layout { key_words: KEY_WORDS, value_words: COLUMNS.len() + PATH_WORDS + ID_WORDS };
/// Deepest level that is looked at; systemd and runtimes need ten at most.
const MOST_LEVELS: usize = 24;
/// Groups that a run looks at, in rows of the table: the others are counted, not walked.
const MOST_LOOKED_AT: usize = 4;
/// Descriptors that stay open, of all groups together, at most.
const MOST_OPEN: u64 = 2048;
/// A group's files that are not there are looked for again in each run of so many: a controller may be turned on, a runtime makes version 1's directories one by one.
const ABSENT_RUNS: u64 = 16;
/// Longest file: memory.stat has 2 KiB, io.stat 100 B a device.
const FILE_BYTES: usize = 16 << 10;

/// Descriptors that stay open: an eighth of those that there can be, so that programs have the rest.
#[must_use]
pub fn most_open() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (limit / 8).min(MOST_OPEN)
}

/// What an operator decides of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Time between two runs.
    pub interval: Span,
    /// Rows.
    pub rows: u32,
    /// Where cgroupfs is mounted.
    pub root: PathBuf,
}

/// The class.
#[must_use]
pub fn regions(options: &Options) -> Vec<Region> {
    let interval_ns = options.interval.as_ns();
    let key = vec![text("name", 40), text("runtime", 16), number("cgroup")];
    let mut all = fields(0, &COLUMNS);
    let mut info = |name: &str, help: &str, slot: usize, words: usize| {
        let mut field = Field::new(name, Metric::Info, Type::Text, u32::try_from(slot).unwrap_or(u32::MAX));
        (field.bytes, field.help) = (u32::try_from(words * 8).unwrap_or(u32::MAX), help.into());
        all.push(field);
    };
    info(
        "onlooker_cgroup_path_info",
        "Path of the control group; the last 256 bytes of it.",
        COLUMNS.len(),
        PATH_WORDS,
    );
    info("onlooker_cgroup_container_info", "Id of the container.", COLUMNS.len() + PATH_WORDS, ID_WORDS);
    let groups = vec![summary(TABLE, Vec::new(), interval_ns), table(key, all, options.rows as usize, interval_ns)];
    vec![Region { name: TABLE, schema: Schema { name: TABLE.into(), groups } }]
}

/// Where groups are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tree {
    /// One hierarchy with everything.
    V2,
    /// Those of the hierarchies that have values and are there.
    V1(Vec<&'static str>),
}

impl Tree {
    fn at(root: &Path) -> Result<Self, String> {
        if root.join("cgroup.controllers").is_file() {
            return Ok(Self::V2);
        }
        let hierarchies: Vec<&str> = ["memory", "cpuacct", "pids", "cpu", "blkio"]
            .into_iter()
            .filter(|name| root.join(name).join("cgroup.procs").is_file())
            .collect();
        if hierarchies.is_empty() {
            return Err(format!("{}: no cgroups are mounted there: set [cgroups] root", root.display()));
        }
        Ok(Self::V1(hierarchies))
    }

    const fn files(&self) -> &'static [files::File] {
        match self {
            Self::V2 => files::V2,
            Self::V1(_) => files::V1,
        }
    }

    /// Where groups of any kind are: in a hierarchy each.
    fn roots(&self) -> &[&'static str] {
        match self {
            Self::V2 => &[""],
            Self::V1(hierarchies) => hierarchies,
        }
    }
}

/// A group that a walk has found; its path begins with `/`.
struct Found {
    path: PathBuf,
    inode: u64,
}

/// A file of a group.
enum Handle {
    Open(File),
    /// Opened when it is read.
    Closed,
    /// Not there, or not readable, when it was looked at last.
    Absent,
}

/// What is known of a group while it lives and has its name.
struct Group {
    path: PathBuf,
    key: [u64; KEY_WORDS],
    handles: Vec<Handle>,
    values: [u64; NUMBERS],
    run: u64,
}

impl Group {
    fn new(found: &Found, files: usize) -> Self {
        let handles = (0..files).map(|_| Handle::Closed).collect();
        Self { path: found.path.clone(), key: key(found), handles, values: [0; NUMBERS], run: 0 }
    }

    fn open(&self) -> usize {
        self.handles.iter().filter(|handle| matches!(handle, Handle::Open(_))).count()
    }
}

/// The region.
pub struct Table {
    root: PathBuf,
    sheet: Sheet<KEY_WORDS>,
    summary: Ground,
    groups: HashMap<u64, Group>,
    open: usize,
    most_open: usize,
    rows: usize,
    run: u64,
    told: Told,
    buffer: Box<[u8]>,
}

impl Table {
    /// In the memory of [`regions`].
    #[must_use]
    pub fn new(options: &Options, grounds: &[Ground], now_ns: u64) -> Self {
        let blocks = grounds[0].memory.words().len() / onlooker_region::limits::BLOCK_WORDS - 1;
        let rows = options.rows as usize;
        let of_rows = grounds[0].group(1, blocks);
        let summary = grounds[0].group(0, 1);
        summary.put(&[], now_ns);
        Self {
            root: options.root.clone(),
            sheet: Sheet::new(LAYOUT, rows, of_rows.memory, of_rows.identity, now_ns),
            summary,
            groups: HashMap::new(),
            open: 0,
            most_open: usize::try_from(most_open()).unwrap_or(0),
            rows,
            run: 0,
            told: Told::default(),
            buffer: vec![0; FILE_BYTES].into(),
        }
    }

    /// All groups, upper levels first, and how many more there are at least.
    fn walk(&self, tree: &Tree) -> Result<(Vec<Found>, u64), String> {
        let most = self.rows * MOST_LOOKED_AT;
        let (mut found, mut beyond): (Vec<Found>, u64) = (Vec::new(), 0);
        let mut known: HashMap<PathBuf, ()> = HashMap::new();
        for (number, hierarchy) in tree.roots().iter().enumerate() {
            let base = self.root.join(hierarchy);
            let stat = fs::metadata(&base).map_err(|error| format!("{}: {error}", base.display()))?;
            let mut level = vec![Found { path: "/".into(), inode: stat.ino() }];
            for _ in 0..MOST_LEVELS {
                let mut next = Vec::new();
                for group in &level {
                    beyond += children(&base, group, most.saturating_sub(next.len()), &mut next);
                }
                for group in &mut level {
                    // Each hierarchy numbers its groups from 1.
                    group.inode |= (number as u64) << 56;
                }
                for group in level {
                    // The same path in another hierarchy is the same group.
                    if number > 0 && known.contains_key(&group.path) {
                        continue;
                    }
                    if found.len() >= most {
                        beyond += 1;
                        continue;
                    }
                    if tree.roots().len() > 1 {
                        known.insert(group.path.clone(), ());
                    }
                    found.push(group);
                }
                level = next;
                if level.is_empty() {
                    break;
                }
            }
        }
        Ok((found, beyond))
    }

    /// Reads a group's files; false where none of them can be: it has gone.
    fn read(&mut self, tree: &Tree, found: &Found) -> bool {
        let Self { groups, root, buffer, open, most_open, run, .. } = self;
        let files = tree.files();
        let group = groups.entry(found.inode).or_insert_with(|| Group::new(found, files.len()));
        if group.path != found.path {
            // Version 1 lets groups be renamed (cgroup1_rename in kernel/cgroup/cgroup-v1.c), in each hierarchy for itself: files of the others may be another group's now.
            *open -= group.open();
            *group = Group::new(found, files.len());
        }
        // Groups do so in different runs.
        let looks_again = run.wrapping_add(found.inode).is_multiple_of(ABSENT_RUNS);
        let mut any = false;
        for (file, handle) in files.iter().zip(&mut group.handles) {
            if matches!(handle, Handle::Absent) && !looks_again {
                continue;
            }
            let mut read = |file: &File| read_whole(file, buffer);
            let mut got = match &*handle {
                Handle::Open(file) => read(file).map_err(Some),
                _ => Err(None),
            };
            if got.is_err() {
                // A descriptor whose file was taken away with its controller reads ENODEV for ever, also when there is another file of that name.
                *open -= usize::from(matches!(handle, Handle::Open(_)));
                *handle = Handle::Closed;
                let relative = found.path.strip_prefix("/").unwrap_or(&found.path);
                let path = root.join(file.hierarchy).join(relative).join(file.name);
                got = File::open(&path)
                    .and_then(|opened| {
                        let bytes = read(&opened)?;
                        if *open < *most_open {
                            *open += 1;
                            *handle = Handle::Open(opened);
                        }
                        Ok(bytes)
                    })
                    .map_err(Some);
            }
            match got {
                Ok(bytes) => {
                    any = true;
                    files::take(file.format, &buffer[..bytes], &mut group.values);
                }
                Err(Some(error)) if is_gone(&error) => {
                    *handle = Handle::Absent;
                    files::clear(file.format, &mut group.values);
                }
                // The agent's own want, of descriptors or memory: the file may well be there, with what it had.
                Err(_) => any |= group.run != 0,
            }
        }
        files::finish(&mut group.values);
        if any {
            group.run = *run;
        }
        any
    }

    /// Puts a group into its row; false where there is none.
    fn place(&mut self, found: &Found) -> bool {
        let Some(group) = self.groups.get(&found.inode) else { return false };
        let Ok(placed) = self.sheet.put(&group.key, found.inode) else { return false };
        placed.values[..COLUMNS.len()].copy_from_slice(&group.values[..COLUMNS.len()]);
        if placed.is_new {
            let (path, id) = placed.values[COLUMNS.len()..].split_at_mut(PATH_WORDS);
            let whole = found.path.to_string_lossy();
            put_text(path, end_of(&whole, PATH_WORDS * 8));
            put_text(id, &name::of(&whole).id);
        }
        true
    }
}

/// Whether there is no such file, or it cannot be read at all: pressure without PSI.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP))
}

/// The end of a text, of whole characters.
fn end_of(text: &str, most_bytes: usize) -> &str {
    let from = (text.len().saturating_sub(most_bytes)..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[from.unwrap_or(text.len())..]
}

fn key(found: &Found) -> [u64; KEY_WORDS] {
    let name = name::of(&found.path.to_string_lossy());
    let mut words = [0; KEY_WORDS];
    put_text(&mut words[..NAME_WORDS], &name.name);
    put_text(&mut words[NAME_WORDS..NAME_WORDS + RUNTIME_WORDS], name.runtime);
    words[KEY_WORDS - 1] = found.inode;
    words
}

/// Appends a group's children, at most so many; returns how many more there are. A directory that has gone has none.
fn children(base: &Path, group: &Found, most: usize, to: &mut Vec<Found>) -> u64 {
    let relative = group.path.strip_prefix("/").unwrap_or(&group.path);
    let directory = base.join(relative);
    // kernfs counts a directory's directories among its links (kernfs_refresh_inode): most groups have none, and some thirty files.
    if fs::metadata(&directory).is_ok_and(|stat| stat.nlink() == 2) {
        return 0;
    }
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let (mut taken, mut beyond) = (0, 0);
    for entry in entries.flatten() {
        // cgroupfs tells kinds with names (d_type), so that this asks nothing more.
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if taken < most {
            to.push(Found { path: group.path.join(entry.file_name()), inode: entry.ino() });
            taken += 1;
        } else {
            beyond += 1;
        }
    }
    beyond
}

fn read_whole(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

impl Source for Table {
    fn run(&mut self, now_ns: u64) -> Result<(), String> {
        let tree = Tree::at(&self.root)?;
        let (found, beyond) = self.walk(&tree)?;
        self.run += 1;
        self.sheet.begin();
        let mut missing = beyond;
        // First those that have rows: what has ended, or has another name, then makes room for others.
        let has_row = |group: &Group, found: &Found| group.path == found.path && self.sheet.contains(&group.key);
        let (known, new): (Vec<Found>, Vec<Found>) = found
            .into_iter()
            .partition(|found| self.groups.get(&found.inode).is_some_and(|group| has_row(group, found)));
        for found in &known {
            if self.read(&tree, found) {
                self.place(found);
            }
        }
        self.sheet.sweep(|_, _| ());
        for found in &new {
            let is_full = self.sheet.len() >= self.rows;
            missing += u64::from(is_full || (self.read(&tree, found) && !self.place(found)));
        }
        let (run, open) = (self.run, &mut self.open);
        self.groups.retain(|_, group| {
            let lives = group.run == run;
            if !lives {
                *open -= group.open();
            }
            lives
        });
        self.sheet.commit(now_ns);
        (self.told.rows, self.told.missing) = (self.sheet.len() as u64, missing);
        self.summary.put(&self.told.slots(), now_ns);
        Ok(())
    }

    fn told(&mut self) -> &mut Told {
        &mut self.told
    }
}

#[cfg(test)]
mod tests;
