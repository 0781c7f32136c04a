// SPDX-License-Identifier: Apache-2.0
//! Readers of a directory that changes: another thread reads the control region all the time, as a controller does.

use std::sync::atomic::{AtomicBool, Ordering};

use onlooker_local::registration::Labels;
use onlooker_region::Block;
use onlooker_region::control::Directory as ReadDirectory;
use onlooker_wire::tcp_read::Read;

use super::*;
use crate::facts::{Facts, Peer, Process};

const REPLACEMENTS: u32 = 3_000;

fn text(number: u32) -> (Schema, SchemaText) {
    let fields = format!(r#"{{"name":"f{}","metric":"gauge","type":"u64"}}"#, number % 3);
    let schema = format!(r#"{{"name":"c","groups":[{{"kind":"plain","blocks":1,"fields":[{fields}]}}]}}"#);
    let schema = Schema::parse(&schema).unwrap();
    let text = SchemaText::of(&schema);
    (schema, text)
}

fn memory() -> Map {
    Map::of(sealed_memfd("test", 4096).unwrap(), 0, 4096, true).unwrap()
}

fn block(served: &Served, place: Place, index: u32) -> Block {
    let mut block = Block::default();
    let read = Read { va: place.va + u64::from(index) * 1024, rkey: place.rkey, length_bytes: 1024 };
    served.read(&read, block.bytes_mut()).unwrap();
    block
}

/// Reads whole directories until `is_done`: how many, and which of them had not exactly one region of the name.
fn read(served: &Served, place: Place, is_done: &AtomicBool) -> (u32, Vec<Vec<u32>>) {
    let (mut readings, mut strange) = (0, Vec::new());
    let mut reader = ReadDirectory::new(place.incarnation);
    while !is_done.load(Ordering::Acquire) {
        // A block that is being written is read again, as every reader does.
        let Ok(wanted) = reader.header(&block(served, place, 0)) else { continue };
        for index in wanted {
            while reader.entry_block(index, &block(served, place, index)).is_err() {}
        }
        reader.complete();
        let found: Vec<u32> = reader.regions().map(|entry| entry.identity.region).collect();
        if found.len() != 1 {
            strange.push(found);
        }
        readings += 1;
    }
    (readings, strange)
}

#[test]
fn a_replaced_region_is_never_missed_and_never_seen_beside_the_old_one() {
    let host = Host::read("test", std::path::Path::new("/nonexistent")).unwrap();
    let served = Arc::new(Served::default());
    let mut directory = Directory::new(&host, served.clone(), 0, 0).unwrap();
    let owner = Peer { process: Process { pid: 1, start_ticks: 0 }, uid: 0, image: String::new() };
    let region = |id: u32| Facts {
        id,
        generation: 100 + id,
        name: "group".to_owned(),
        instance: String::new(),
        labels: Labels::new(),
        schema: text(id).1.class(),
        owner: owner.clone(),
        created_ns: 0,
    };
    directory.publish(&region(1), &text(1).1, Backing::Tcp(memory()), 0).unwrap();
    let (place, is_done) = (directory.place(), AtomicBool::new(false));
    let (readings, strange) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&served, place, &is_done));
        for id in 1..REPLACEMENTS {
            let old = directory.entry(id).unwrap().0.rkey;
            directory.replace(id, &region(id + 1), &text(id + 1).1, Backing::Tcp(memory()), id.into()).unwrap();
            assert!(directory.entry(id).is_none());
            let read = Read { va: 0, rkey: old, length_bytes: 1024 };
            assert!(served.read(&read, &mut [0; 1024]).is_err(), "the old one is not readable any more");
        }
        is_done.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    assert!(strange.is_empty(), "{} of {readings}: {:?}", strange.len(), strange.first());
    assert!(readings > 100, "{readings}");
    let error = directory.replace(1, &region(1), &text(1).1, Backing::Tcp(memory()), 0).unwrap_err();
    assert!(error.to_string().contains("region 1 is not in the directory"), "{error}");
    directory.remove(REPLACEMENTS, 0);
    assert!(directory.entry(REPLACEMENTS).is_none());
}
