// SPDX-License-Identifier: Apache-2.0
//! What the log costs beside the rows in it.

use super::{SEGMENT_BYTES, read};
use crate::framing::tests::memory_dir;
use crate::types::TrackId;

/// Rows of hosts at 1 s: a bitmap of which most bits are the same in all of them, and some small differences.
fn encoded(host: u64, step: u64) -> Vec<u8> {
    let mix = |a: u64| {
        let a = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (a ^ a >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    };
    let bitmap = (0..86u64).map(|byte| {
        let common = mix(byte) & mix(byte + 1_000);
        (common ^ if mix(byte ^ host << 20 ^ step << 40) % 16 == 0 { 1 } else { 0 }).to_le_bytes()[0]
    });
    let values =
        (0..130u64).map(|value| (mix(value ^ host << 20 ^ step << 40) % (2 << (mix(value) % 6))).to_le_bytes()[0]);
    bitmap.chain(values).collect()
}

#[test]
fn the_log_is_little_more_than_its_rows() {
    const HOSTS: u64 = 200;
    const SYNCS: u64 = 64;
    let dir = memory_dir();
    let (mut wal, ..) = read(dir.path());
    let (before, mut alone) = (wal.bytes(), 0);
    for step in 0..SYNCS {
        let mut bodies = Vec::new();
        for host in 0..HOSTS {
            let bytes = encoded(host, step);
            // Hosts that came one after the other, and are not as far as each other with their heads.
            let track = TrackId(u32::try_from(host * 3).unwrap());
            if (step + host).is_multiple_of(50) {
                wal.cut(track).unwrap();
            }
            wal.rows(track, 1, &bytes).unwrap();
            bodies.extend(bytes);
        }
        wal.finish(0, step);
        wal.write().unwrap();
        alone += zstd::bulk::compress(&bodies, 1).unwrap().len() as u64;
    }
    let bytes = wal.bytes() - before;
    assert!(bytes * 100 <= alone * 110, "{bytes} bytes of log, {alone} of rows packed alone");
    assert!(bytes < SEGMENT_BYTES * 4);
}
