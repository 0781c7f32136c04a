// SPDX-License-Identifier: Apache-2.0
//! Vitals of hosts that publish what the agent's groups do.

use super::super::fixture::{Host as Memory, World};
use super::*;

const S: u64 = 1_000_000_000;

/// A plain region of these fields: name, type, slot, labels.
fn schema(fields: &[(&str, &str, usize, &str)]) -> String {
    let field = |(name, metric, slot, labels): &(&str, &str, usize, &str)| {
        let labels = if labels.is_empty() { String::new() } else { format!(r#","labels":{labels}"#) };
        format!(r#"{{"name":"{name}","metric":"{metric}","type":"f64","slot":{slot}{labels}}}"#)
    };
    let fields: Vec<String> = fields.iter().map(field).collect();
    format!(r#"{{"name":"node","groups":[{{"kind":"plain","blocks":1,"fields":[{}]}}]}}"#, fields.join(","))
}

fn node() -> String {
    schema(&[
        ("node_cpu_seconds_total", "counter", 0, r#"{"cpu":"0","mode":"idle"}"#),
        ("node_cpu_seconds_total", "counter", 1, r#"{"cpu":"0","mode":"user"}"#),
        ("node_cpu_seconds_total", "counter", 2, r#"{"cpu":"1","mode":"idle"}"#),
        ("node_cpu_seconds_total", "counter", 3, r#"{"cpu":"1","mode":"iowait"}"#),
        ("node_load1", "gauge", 4, ""),
        ("node_memory_MemTotal_bytes", "gauge", 5, ""),
        ("node_memory_MemAvailable_bytes", "gauge", 6, ""),
        ("node_memory_SwapTotal_bytes", "gauge", 7, ""),
        ("node_memory_SwapFree_bytes", "gauge", 8, ""),
        ("node_filesystem_size_bytes", "gauge", 9, r#"{"mountpoint":"/"}"#),
        ("node_filesystem_free_bytes", "gauge", 10, r#"{"mountpoint":"/"}"#),
        ("node_filesystem_avail_bytes", "gauge", 17, r#"{"mountpoint":"/"}"#),
        ("node_filesystem_size_bytes", "gauge", 11, r#"{"mountpoint":"/media"}"#),
        ("node_filesystem_free_bytes", "gauge", 12, r#"{"mountpoint":"/media"}"#),
        ("node_filesystem_avail_bytes", "gauge", 18, r#"{"mountpoint":"/media"}"#),
        ("node_filesystem_readonly", "gauge", 13, r#"{"mountpoint":"/media"}"#),
        ("node_network_receive_bytes_total", "counter", 14, r#"{"device":"eth0"}"#),
        ("node_network_receive_bytes_total", "counter", 15, r#"{"device":"lo"}"#),
        ("node_pressure_io_waiting_seconds_total", "counter", 16, ""),
        ("node_netstat_Tcp_OutSegs", "counter", 19, ""),
        ("node_netstat_Tcp_RetransSegs", "counter", 20, ""),
    ])
}

#[test]
fn figures_are_those_of_what_is_published() {
    let (mut world, mut host) = (World::new(), Memory::new(64));
    let node = host.region(300, "node", &[], &node());
    let (mut sampler, shown) = (Sampler::default(), Shown::default());
    let mut look = |world: &mut World, host: &Memory, numbers: [f64; 21]| {
        numbers.iter().enumerate().for_each(|(slot, number)| node.words.set(0, 1 + slot, number.to_bits()));
        world.pass(2 * S);
        world.read("a", host);
        sampler.sample(&world.fleet, &shown);
        shown.get().get("a").cloned().unwrap()
    };
    let first =
        [50.0, 9.0, 60.0, 1.0, 0.5, 8e9, 6e9, 0.0, 0.0, 1e12, 5e11, 7e8, 0.0, 1.0, 1e6, 5e9, 3.0, 3e11, 0.0, 2e6, 1e3];
    let vital = look(&mut world, &host, first);
    assert_eq!((vital.cpu, vital.cores, vital.load1, vital.receive), (None, 2, Some(0.5), None));
    assert_eq!((vital.memory, vital.swap), (Some(0.25), None), "without swap space there is no share of it");
    assert_eq!(vital.filesystem, Some((0.625, "/".into())), "as df has it; what is read-only is always full");
    // Two seconds: one CPU idles for half of them, the other waits and idles for all of them.
    let mut second = first;
    for (slot, up) in [(0, 1.0), (1, 1.0), (2, 0.5), (3, 1.5), (14, 3e6), (15, 9e9), (16, 0.5), (19, 950.0), (20, 50.0)]
    {
        second[slot] += up;
    }
    let near = |value: Option<f64>, wanted: f64| (value.unwrap() - wanted).abs() < 0.01 * wanted;
    let vital = look(&mut world, &host, second);
    assert!(near(vital.cpu, 0.25) && near(vital.receive, 1.5e6) && near(vital.pressure[2], 0.25), "{vital:?}");
    assert_eq!(vital.transmit, None);
    assert!(near(vital.retransmit, 0.05), "{vital:?}");
    // One of two in two seconds says nothing of a link.
    second[19] += 1.0;
    second[20] += 1.0;
    assert_eq!(look(&mut world, &host, second).retransmit, None);
    // A device's counter began again: nobody knows by how much all of them went up.
    second[14] = 0.0;
    assert_eq!(look(&mut world, &host, second).receive, None);
}

#[test]
fn hosts_that_are_not_read_have_none_and_come_back() {
    let (mut world, mut host) = (World::new(), Memory::new(64));
    host.region(300, "node", &[], &node());
    let (mut sampler, shown) = (Sampler::default(), Shown::default());
    world.read("a", &host);
    sampler.sample(&world.fleet, &shown);
    assert!(shown.get().contains_key("a"));
    world.fleet.leave("a");
    sampler.sample(&world.fleet, &shown);
    assert!(shown.get().is_empty() && sampler.known.is_empty());
}
