// SPDX-License-Identifier: Apache-2.0
//! Sums over CPUs: whole or not at all, and counters that fall only where the thing itself has begun anew.

mod machine;
mod named;
mod parts;
mod words;

use machine::{Counting, Machine, allocations, feed, samples};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SWITCHES: &str = "node_context_switches_total";
const RUNNING: &str = "node_procs_running";

fn received(device: &str) -> String {
    format!("node_network_receive_bytes_total{{{device}}}")
}

/// A machine whose CPU n has n + 1 switches, and whose devices have received 100 (n + 1) bytes on it.
fn machine(cpus: usize) -> Machine {
    let mut machine = Machine::new(cpus, &["lo", "eth0"]);
    for (number, cpu) in (1..).zip(&mut machine.cpus) {
        *cpu = [number, 1];
    }
    for device in &mut machine.devices {
        (1..).zip(&mut device.counts).for_each(|(number, counts)| *counts = [100 * number; 4]);
    }
    machine
}

#[test]
fn all_cpus_are_in_the_sums() {
    for cpus in [1, 2, 8, 9, 128] {
        let sums = machine(cpus).read();
        let all = (cpus * (cpus + 1) / 2) as u64;
        assert_eq!((sums[SWITCHES], sums[RUNNING]), (all, cpus as u64), "{cpus} CPUs");
        for device in ["lo", "eth0"] {
            for metric in ["receive_bytes", "receive_packets", "transmit_bytes", "transmit_packets"] {
                assert_eq!(sums[&format!("node_network_{metric}_total{{{device}}}")], 100 * all, "{cpus} CPUs");
            }
        }
        assert_eq!(sums.len(), 2 + 8);
    }
}

#[test]
fn a_reading_that_lacks_a_block_has_no_sum() {
    let mut machine = machine(20);
    let whole = machine.read();
    machine.missing = [vec![1], vec![16]]; // CPUs 8 to 15 of the first rows
    assert!(machine.read().is_empty(), "a part of the CPUs is no sum");
    machine.missing = [vec![1], vec![]];
    let sums = machine.read();
    assert!(
        !sums.contains_key(SWITCHES) && !sums.contains_key(RUNNING) && sums[&received("lo")] == whole[&received("lo")]
    );
    machine.missing = [vec![], vec![]];
    assert_eq!(machine.read(), whole);
    // Nor has the first reading of all.
    let mut machine = self::machine(20);
    machine.missing = [vec![0], vec![]];
    assert!(!machine.read().contains_key(SWITCHES));
}

#[test]
fn a_cpu_that_went_and_began_anew_keeps_what_it_had_counted() {
    let mut machine = machine(2);
    machine.cpus = vec![[1_000, 3], [500, 0]];
    assert_eq!(machine.read()[SWITCHES], 1_500);
    // CPU 1 goes offline: its counters read 0. Nobody may see a fall, nor what it had twice.
    machine.cpus = vec![[1_010, 3], [0, 0]];
    let sums = machine.read();
    assert_eq!((sums[SWITCHES], sums[RUNNING]), (1_510, 3), "a gauge is what it is");
    machine.cpus[1][0] = 7;
    assert_eq!(machine.read()[SWITCHES], 1_517);
    machine.cpus[1][0] = 3;
    assert_eq!(machine.read()[SWITCHES], 1_520, "twice");
    // Both: the host has begun anew, and everybody shall see it.
    machine.cpus = vec![[10, 1], [2, 0]];
    assert_eq!(machine.read()[SWITCHES], 12);
}

#[test]
fn an_older_copy_is_no_fall() {
    let mut machine = machine(9);
    machine.read();
    machine.now_ns -= 1_500_000;
    machine.cpus[3][0] = 0;
    assert!(machine.read().is_empty(), "blocks from before the last ones");
    machine.now_ns += 5_000_000;
    machine.cpus[3][0] = 5;
    assert_eq!(machine.read()[SWITCHES], 46);
}

#[test]
fn a_row_that_is_made_anew() {
    let mut machine = machine(9);
    let before = machine.read();
    // Between the READs of the two groups: the second one does not know yet.
    machine.devices[1].generations = vec![8, 7];
    let sums = machine.read();
    assert!(!sums.contains_key(&received("eth0")) && sums[&received("lo")] == before[&received("lo")]);
    // New collectors, the same device: it goes on.
    machine.devices[1].generations = vec![8, 8];
    assert_eq!(machine.read(), before);
    // Another device of that name, in another row: it begins anew as one.
    machine.devices[1].row = 5;
    machine.devices[1].generations = vec![3, 3];
    machine.devices[1].counts.fill([1; 4]);
    assert_eq!(machine.read()[&received("eth0")], 9);
    // Another device in the row of the old one is not mistaken for it.
    let mut other = machine.devices[1].clone();
    (other.row, other.name, other.generations) = (1, "eth1", vec![9, 9]);
    other.counts.fill([2; 4]);
    machine.devices.push(other);
    let sums = machine.read();
    assert_eq!((sums[&received("eth0")], sums[&received("eth1")]), (9, 18));
    // Gone is gone.
    machine.devices.truncate(1);
    assert!(!machine.read().contains_key(&received("eth0")));
}

#[test]
fn new_collectors_on_other_cpus_go_on() {
    let mut machine = machine(9);
    let before = machine.read();
    machine.generation += 1;
    machine.cpus.truncate(8);
    for device in &mut machine.devices {
        device.counts.truncate(8);
        device.generations = vec![20];
    }
    let sums = machine.read();
    assert_eq!(sums[SWITCHES], before[SWITCHES], "what the CPU that is gone had counted stays");
    assert_eq!(sums[&received("lo")], before[&received("lo")]);
    assert_eq!(sums[RUNNING], before[RUNNING] - 1);
    // After a boot nothing of before counts.
    machine.boot = 2;
    machine.generation += 1;
    machine.cpus.fill([1, 1]);
    assert_eq!(machine.read()[SWITCHES], 8);
}

#[test]
fn a_reading_allocates_nothing() {
    let mut machine = machine(24);
    machine.read();
    let regions = machine.regions();
    for _ in 0..3 {
        let read = regions.iter().map(|(entry, plan, blocks)| (entry, plan, samples(entry, plan, blocks)));
        let read: Vec<_> = read.collect();
        let (mut given, before) = (0, allocations());
        machine.derived.begin(Some([1; 16]));
        for (entry, plan, samples) in &read {
            feed(&mut machine.derived, entry, plan, samples, |_, _, _| given += 1);
        }
        assert_eq!((given, allocations() - before), (10, 0));
    }
}

/// A program's region of the kernel's name, with what the kernel's blocks would have: nothing is summed up of it, and nothing of the kernel's sums goes to it.
#[test]
fn a_programs_region_takes_no_sums_over() {
    let mut machine = machine(2);
    machine.cpus = vec![[1_000, 3], [500, 0]];
    machine.read();
    machine.cpus = vec![[1_010, 3], [0, 0]];
    assert_eq!(machine.read()[SWITCHES], 1_510);
    // In a reading that does not have the kernel's region, or has it later.
    let (entry, plan, blocks) = machine.regions().remove(0);
    let identity = onlooker_region::Identity::first(300, 9);
    let programs = onlooker_region::control::RegionEntry { identity, ..entry.clone() };
    machine.derived.begin(Some([1; 16]));
    let taken = samples(&entry, &plan, &blocks);
    let shown = feed(&mut machine.derived, &programs, &plan, &taken, |name, _, _| panic!("{name}"));
    assert_eq!(shown, taken.len());
    assert_eq!(machine.read()[SWITCHES], 1_510, "goes on");
}
