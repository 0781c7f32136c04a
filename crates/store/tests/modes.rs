// SPDX-License-Identifier: Apache-2.0
//! Files that lock or hold data are their owner's alone, whatever the umask. By itself: a umask is the process's.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use onlooker_store::{Config, Store};
use rustix::fs::Mode;

fn files(dir: &Path) -> Vec<PathBuf> {
    let log = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    log.chain([dir.join("hot")]).collect()
}

#[test]
fn files_are_their_owners_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        dir: dir.path().join("log"),
        hot: dir.path().join("hot"),
        hot_bytes: 1 << 20,
        tile_rows: 64,
        segment_bytes: 1 << 12,
        max_bytes: 1 << 30,
    };
    rustix::process::umask(Mode::from_raw_mode(0o022));
    for _ in 0..2 {
        let (mut store, _) = Store::open(config.clone()).unwrap();
        let track = store.define(&common::of_columns("track", 1), 64).unwrap();
        let mut appender = store.appender(track).unwrap();
        for time_ns in 0..200 {
            appender.append(time_ns, &[time_ns.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).unwrap();
            store.seal(u64::MAX).unwrap();
        }
        drop((appender, store));
        let all = files(dir.path());
        assert!(all.len() > 5, "{all:?}");
        for path in all {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
            // As an earlier version made it.
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        }
        assert_eq!(fs::metadata(&config.dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
