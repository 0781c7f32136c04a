// SPDX-License-Identifier: Apache-2.0
//! BPF objects: those that do one thing that they must not are refused with the reason (`bpf/user/refused.bpf.c`).

use std::time::Duration;

use onlooker_responder::Exit;

use crate::reading::{BUDGET, Files, SLOT, Served, check_one};
use crate::support::{SIDES, exits};

macro_rules! object {
    ($name:literal) => {
        ($name, &include_bytes!(concat!(env!("OUT_DIR"), "/refused_", $name, ".bpf.o"))[..])
    };
}

const TEXT: &str = "name = \"test\"\nobject = \"test.bpf.o\"\n[[value]]\nmetric = \"runs_total\"\nkind = \"counter\"\nslot = 0\ntype = \"u64\"\n";

fn check(files: &Files, bytes: &[u8], budget: Duration) -> Result<onlooker_metrics::user::Checked, String> {
    files.put("test.bpf.o", bytes);
    check_one(files.put("test.toml", TEXT), budget)
}

#[test]
fn a_good_object_answers() {
    let files = Files::new();
    let (_, good) = object!("good");
    let served = Served::new(check(&files, good, BUDGET).unwrap());
    let first = served.read(SIDES[0])["runs_total{}"];
    assert!((first - 1.0).abs() < 0.5, "it was measured elsewhere: {first}");
    assert!((served.read(SIDES[1])["runs_total{}"] - 2.0).abs() < 0.5, "both programs have one memory");
}

#[test]
fn one_that_faults_later_costs_its_own_block_only() {
    let files = Files::new();
    let served = Served::new(check(&files, object!("flaky").1, BUDGET).unwrap());
    served.install(&check(&files, object!("good").1, BUDGET).unwrap(), SLOT + 1);
    for _ in 0..3 {
        assert!(served.block(SLOT, 0, SIDES[0]).is_ok());
    }
    for side in SIDES {
        assert!(served.is_dropped_uncounted(SLOT, 0, side));
        assert!(served.block(SLOT + 1, 0, side).is_ok());
    }
}

#[test]
fn counters_that_an_object_writes_are_its_own() {
    let files = Files::new();
    // It writes all of them, those of the first CPU from any.
    let served = Served::new(check(&files, object!("good").1, BUDGET).unwrap());
    let before = served.rig.responder.counters().unwrap();
    for side in SIDES {
        assert!(served.block(SLOT, 0, side).is_ok());
    }
    assert_eq!(exits(&served.rig.responder.counters().unwrap().since(&before)), [(Exit::Answered, 2)]);
}

#[test]
fn what_is_not_on_the_list_is_refused_before_it_is_loaded() {
    let files = Files::new();
    for ((name, bytes), part) in [
        (object!("helper"), "calls helper 23 (bpf_redirect), which is not on the list"),
        (object!("loop"), "calls helper 181 (bpf_loop)"),
        (object!("backward"), "jumps back to "),
        (object!("function"), "calls a function of its own"),
        (object!("kfunc"), "kfunc"),
        (object!("packet"), "reads its context"),
        (object!("mark"), "writes through its context"),
        (object!("verdict"), "ends the program with something else than 2"),
        (object!("hash"), "map own is of type Hash: only arrays"),
        (object!("large"), "its maps take 2048 KiB: at most 1024 KiB"),
        (object!("section"), "exactly one SEC(\"xdp\") program"),
        (object!("headers"), "map scratch is not the responder's"),
        (object!("extra"), "program elsewhere is in section \"cgroup/skb\""),
    ] {
        let error = check(&files, bytes, BUDGET).map(drop).expect_err(name);
        assert!(error.starts_with("object: ") && error.contains(part), "{name}: {error}, not {part}");
    }
}

#[test]
fn what_only_shows_when_it_is_loaded_is_refused_before_it_runs() {
    let files = Files::new();
    for ((name, bytes), part) in [
        (object!("scratch"), "outside of the block's time and payload"),
        (object!("wandering"), "at a place that is no constant"),
        (object!("greedy"), "bytes that are read: at most 65536 together"),
        (object!("tail"), "makes a tail call to something else"),
        (object!("regions"), "is not loaded"),
        (object!("verifier"), "is not loaded"),
        (object!("pinned"), "is not loaded"),
        (object!("never"), "refuses block 0 now"),
        (object!("filled"), "fills collectors_tc: that is the loader's"),
    ] {
        let error = check(&files, bytes, BUDGET).map(drop).expect_err(name);
        assert!(error.starts_with("object: ") && error.contains(part), "{name}: {error}, not {part}");
    }
}

#[test]
fn one_that_takes_too_long_is_refused_with_the_figure() {
    let files = Files::new();
    let slow = object!("slow").1;
    let patient = check(&files, slow, Duration::from_millis(10)).unwrap();
    // How fast the machine is does not matter.
    let budget_ns = patient.cost_ns[0] / 3;
    let error = check(&files, slow, Duration::from_nanos(budget_ns)).unwrap_err();
    assert!(
        error.contains("block 0 takes ") && error.contains(&format!("and the budget is {budget_ns} ns")),
        "{error}"
    );
}

#[test]
fn objects_that_are_not_there_or_none_are_told() {
    let files = Files::new();
    let error = check_one(files.put("test.toml", TEXT), BUDGET).unwrap_err();
    assert!(error.starts_with("object: test.bpf.o cannot be read"), "{error}");
    let error = check(&files, b"no object", BUDGET).unwrap_err();
    assert!(error.starts_with("object: is no BPF object"), "{error}");
    let with_addresses = TEXT.replacen("[[value]]", "addresses = [\"init_net\"]\n[[value]]", 1);
    files.put("test.bpf.o", object!("good").1);
    let error = check_one(files.put("test.toml", with_addresses), BUDGET).unwrap_err();
    assert!(error.contains("the object has no map `addresses`"), "{error}");
}

#[test]
fn no_map_hides_behind_another_of_its_name() {
    let (_, good) = object!("good");
    let (from, to) = (b"\0cpu_rate\0", b"\0counters\0");
    let mut copy = good.to_vec();
    for at in 0..copy.len() - from.len() {
        if copy[at..].starts_with(from) {
            copy[at..at + to.len()].copy_from_slice(to);
        }
    }
    let error = check(&Files::new(), &copy, BUDGET).map(drop).expect_err("two maps");
    assert!(error.contains("has two maps counters"), "{error}");
}

/// Where a bit is flipped in a copy: all through the header, the section headers at the end, and the rest.
fn places(object: &[u8]) -> impl Iterator<Item = usize> {
    let length = object.len();
    let headers = usize::try_from(u64::from_le_bytes(object[40..48].try_into().unwrap())).unwrap();
    let mut state = 1u64;
    // Knuth's generator (MMIX): the same copies in each run.
    let rest = std::iter::repeat_with(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % length
    });
    (0..64).step_by(2).chain((headers..length).step_by(17)).chain(rest.take(64))
}

#[test]
fn damaged_copies_are_refused_or_loaded() {
    let files = Files::new();
    let (_, good) = object!("good");
    for sixteenths in 0..16 {
        let error = check(&files, &good[..good.len() * sixteenths / 16], BUDGET).map(drop).expect_err("cut short");
        assert!(error.starts_with("object: is no BPF object"), "{sixteenths} of 16: {error}");
    }
    let (mut loaded, mut refused) = (0, 0);
    for place in places(good) {
        let mut copy = good.to_vec();
        copy[place] ^= 1 << (place % 8);
        // A crash would end this process, and leave the copy in its directory.
        match check(&files, &copy, BUDGET) {
            Ok(_) => loaded += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
}
