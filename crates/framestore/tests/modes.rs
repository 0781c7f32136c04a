// SPDX-License-Identifier: Apache-2.0
//! Files of a store are their owner's, whatever the umask: a process of its own, since that is a process's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use onlooker_framestore::client::Description;
use onlooker_framestore::layout::{Layout, Part};
use onlooker_framestore::types::Line;
use onlooker_framestore::{Config, open};
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};
use rustix::fs::Mode;
use rustix::process::umask;

/// All below a directory that others may look into.
fn open_to_others(directory: &Path, found: &mut Vec<String>) -> usize {
    let mut files = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        if mode & 0o077 != 0 {
            found.push(format!("{} {mode:o}", entry.path().display()));
        }
        files += if entry.file_type().unwrap().is_dir() { open_to_others(&entry.path(), found) } else { 1 };
    }
    files
}

#[test]
fn files_are_their_owners_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    umask(Mode::empty());
    let (store, ring) = (dir.path().join("store"), dir.path().join("ring"));
    let config = || {
        let (dir, ring) = (store.clone(), ring.clone());
        Config::keeping_all(dir, ring, 4 << 20, 64 << 20)
    };
    let part = Part::new("cpu", 0, vec![Series::new("ticks_total", Metric::Counter, Form::Unsigned)]);
    let description = Description {
        host: "a".into(),
        common: Vec::new(),
        source: 0,
        region: Vec::new(),
        layout: Arc::new(Layout::new(vec![part.shared()], false)),
        texts: Vec::new(),
    };
    for round in 0..2 {
        let (_store, mut writer, mut appender, _) = open(config()).unwrap();
        let track = appender.track(&description, 1).unwrap();
        // More than a chunk: log, chunks and catalogue are written, and their files ended by the next opening.
        for row in 1..5_000 {
            appender.append(track, Line::ONLY, round * 5_000 + row, &[row]).unwrap();
            if row % 1_000 == 0 {
                writer.turn().unwrap();
            }
        }
        writer.turn().unwrap();
    }
    let mut found = Vec::new();
    let files = open_to_others(dir.path(), &mut found);
    assert!(files >= 5, "{files} files: a lock, a catalogue, a log, chunks and the ring");
    assert_eq!(found, Vec::<String>::new());
}
