// SPDX-License-Identifier: Apache-2.0
//! The data plane without a process, and its end.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlooker_responder::{Exit, Home, Hook, Pinned};

use crate::requester::UdpRequester;
use crate::support::{exits, unlimited};
use crate::world::{PORT, SLAB, SLAB_BLOCKS, World, device, programs_shown, responder};

/// Names the BPF file system to a process that is to load, attach and leave.
const LOADER: &str = "ONLOOKER_TEST_LOADER_BPFFS";

fn load_and_leave(bpffs: &Path, hook: Hook) {
    let responder = responder(&Home::new(bpffs, "test").unwrap(), &unlimited(PORT));
    responder.attach(&device(), hook).unwrap();
    responder.slab(SLAB).unwrap().map(0, SLAB_BLOCKS, true).unwrap().words()[0].store(4711, Ordering::Relaxed);
}

/// Both a test and the process that other tests start.
#[test]
fn what_a_loader_leaves_behind_is_complete() {
    if let Some(bpffs) = std::env::var_os(LOADER) {
        load_and_leave(Path::new(&bpffs), Hook::Tc);
        return;
    }
    let world = World::new();
    load_and_leave(world.bpffs(), Hook::Tc);
    let again = Pinned::open(&world.home("test")).unwrap();
    assert_eq!(*again.config(), unlimited(PORT));
    assert_eq!((again.slabs().unwrap(), again.regions().unwrap().len()), (vec![SLAB], 1));
    assert_eq!((again.allowed().len(), again.attachments().len()), (2, 1));
    assert!(again.programs().all(|(_, program)| program.info().is_ok()));
}

fn run_loader(world: &World) {
    let loader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "life::what_a_loader_leaves_behind_is_complete", "--test-threads=1"])
        .env(LOADER, world.bpffs())
        .output()
        .unwrap();
    assert!(loader.status.success(), "{}", String::from_utf8_lossy(&loader.stdout));
}

#[test]
fn reads_go_on_when_the_loader_has_exited() {
    let world = World::new();
    run_loader(&world);
    let mut requester = UdpRequester::new(&world, true);
    let first_word = |answer: Option<Vec<u8>>| u64::from_le_bytes(answer.unwrap()[..8].try_into().unwrap());
    for _ in 0..100 {
        assert_eq!(first_word(requester.read_at(0, 1024)), 4711);
    }
    // A new process takes over, and its writes are what is read.
    let responder = Pinned::open(&world.home("test")).unwrap();
    let memory = responder.slab(SLAB).unwrap().map(0, 4, true).unwrap();
    memory.words()[0].store(4712, Ordering::Relaxed);
    drop(memory);
    assert_eq!(first_word(requester.read_at(0, 1024)), 4712);
    let attachments = responder.attachments();
    assert_eq!(attachments.len(), 1);
    responder.detach(&attachments[0]).unwrap();
    assert_eq!(requester.read_at(0, 1024), None);
    assert_eq!(exits(&responder.counters().unwrap()), [(Exit::Answered, 101)]);
    responder.attach(&device(), Hook::Tc).unwrap();
    assert_eq!(first_word(requester.read_at(0, 8)), 4712);
}

#[test]
fn past_the_lease_there_is_silence_until_it_is_renewed() {
    let world = World::new();
    run_loader(&world);
    let responder = Pinned::open(&world.home("test")).unwrap();
    let mut requester = UdpRequester::new(&world, false);
    assert!(requester.read_at(0, 1024).is_some());
    responder.set_lease(Duration::ZERO).unwrap();
    assert_eq!(requester.read_at(0, 1024), None);
    assert_eq!(responder.counters().unwrap().get(Exit::Lease), 1);
    responder.set_lease(Duration::from_secs(60)).unwrap();
    assert!(requester.read_at(0, 1024).is_some());
}

#[test]
fn a_purge_leaves_nothing() {
    for hook in [Hook::Tc, Hook::Xdp] {
        let world = World::new();
        let before = programs_shown();
        load_and_leave(world.bpffs(), hook);
        let home = world.home("test");
        let responder = Pinned::open(&home).unwrap();
        let ids: Vec<u32> = responder.programs().map(|(_, program)| program.info().unwrap().id).collect();
        drop(responder);
        let shown = programs_shown();
        assert!(hook == Hook::Tc || shown.contains("prog/xdp id"), "{shown}");
        let done = home.purge().unwrap();
        assert!(done.iter().any(|line| line.contains("detached")), "{done:?}");
        assert!(!home.exists() && !world.bpffs().join("onlooker").exists());
        assert_eq!(programs_shown(), before);
        // Unloaded too, once the kernel has got round to it.
        let alive = || ids.iter().filter(|&&id| libbpf_rs::ProgramHandle::from_prog_id(id).is_ok()).count();
        for _ in 0..100 {
            if alive() == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(alive(), 0, "programs are still loaded");
        // With nothing left to do it says so, and a new responder finds the place free.
        assert_eq!(home.purge().unwrap(), Vec::<String>::new());
        load_and_leave(world.bpffs(), hook);
    }
}

#[test]
fn a_purge_copes_with_a_device_that_is_gone() {
    let world = World::new();
    load_and_leave(world.bpffs(), Hook::Tc);
    onlooker_testbed::run("ip", &["link", "delete", crate::world::RESPONDER_DEVICE]);
    let responder = Pinned::open(&world.home("test")).unwrap();
    assert_eq!(responder.attachments().len(), 1);
    responder.refresh_own_addresses().unwrap();
    drop(responder);
    world.home("test").purge().unwrap();
    assert!(!world.home("test").exists());
}
