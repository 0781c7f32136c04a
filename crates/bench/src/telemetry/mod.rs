// SPDX-License-Identifier: Apache-2.0
//! `make bench-dta`, its live part: reports that arrive by a device, and what of a core they take, beside collectors that are processes.
//!
//! A core sends frames over a veth pair, by an XDP program on live frames; the other core has the receiving end's NAPI thread, and whatever process gets reports.
//! Counted is what that core's threads have run: reports a second of its time, whatever the sender can do.

pub(crate) mod beside;
mod generator;
mod indexed;
pub(crate) mod query;
mod rig;

use anyhow::{Context as _, Result, ensure};
use onlooker_dta::append::{List, Position};
use onlooker_dta::increment::Counters;
use onlooker_dta::key_write::{CheckBytes, Table as KeyWrite};
use onlooker_dta::translator::Shape;
use onlooker_responder::Hook;
use onlooker_wire::dta::{Body, Copies};

use crate::machine::is_quick;
use crate::report::{figure, spread};
pub(crate) use generator::ACCESS;
pub(crate) use rig::frame_to;
use rig::{Counted, Rig};

/// An IPv4 flow, and the switches on its way.
pub(crate) const KEY: [u8; 13] = [10, 0, 0, 1, 10, 0, 0, 2, 0x9c, 0x40, 1, 0xbb, 6];
pub(crate) const PATH: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5];
const SEED: [u8; 16] = [7; 16];
/// Reports a second of a switch of 6.4 Tbit/s (D, table 1): name, reports.
const SWITCHES: [(&str, f64); 4] = [
    ("int_postcards", 19e6),
    ("marple_tcp_out_of_sequence", 6.72e6),
    ("marple_packet_counters", 4.29e6),
    ("netseer", 0.95e6),
];

/// Tables and a report to each.
fn subjects() -> [(&'static str, Shape, Body<'static>); 4] {
    let paths = KeyWrite { seed: SEED, slots_log2: 20, payload_bytes: 20, check: CheckBytes::Four };
    let write = |copies| Body::KeyWrite { key: &KEY, payload: &PATH, copies: Copies::All(copies) };
    let list = List { entry_bytes: 4, batch: 16, batches_log2: 14 };
    let counters = Counters { seed: SEED, slots_log2: 20 };
    [
        ("key_write_n1", Shape::KeyWrite(paths), write(1)),
        ("key_write_n2", Shape::KeyWrite(paths), write(2)),
        ("append_4_bytes_b16", Shape::Append(list, Position::default()), Body::Append { payload: &[1, 2, 3, 4] }),
        (
            "key_increment_n2",
            Shape::KeyIncrement(counters, 0),
            Body::KeyIncrement { key: &KEY, addend: 1, copies: Copies::All(2) },
        ),
    ]
}

pub(crate) fn run() -> Result<bool> {
    let rounds = if is_quick() { 3 } else { 9 };
    let rig = Rig::new()?;
    let subjects = subjects();
    let report = |number: usize| rig.frame(u16::try_from(number).unwrap_or(0), subjects[number].2);
    let mut samples: Vec<(String, Vec<f64>)> = Vec::new();
    let mut keep = |name: String, counted: Counted| {
        let per_s = counted.per_core_second();
        match samples.iter_mut().find(|(known, _)| *known == name) {
            Some((_, samples)) => samples.push(per_s),
            None => samples.push((name, vec![per_s])),
        }
    };
    for _ in 0..rounds {
        keep("received_and_dropped_xdp".into(), rig.dropped(&report(1)?)?);
        for (hook, name) in [(Hook::Xdp, "xdp"), (Hook::Tc, "tc")] {
            for (number, (subject, shape, _)) in subjects.iter().enumerate() {
                let counted = rig.translated(hook, number, *shape, &report(number)?)?;
                keep(format!("{subject}_{name}"), counted);
            }
        }
        keep("received_by_a_socket".into(), rig.received(&report(1)?, |_| {})?);
        let mut collector = indexed::Collector::new();
        keep("indexed".into(), rig.received(&report(1)?, |datagram| collector.take(datagram))?);
        ensure!(collector.knows(&KEY_OF_0), "the indexed collector has not stored what it was sent");
    }
    let mut of = |name: &str| -> Result<f64> {
        let (_, samples) = samples.iter_mut().find(|(known, _)| known == name).context("not measured")?;
        let rate = spread(samples);
        println!(
            "{name} live: {:.2} million a second and core, quartiles {:.2} to {:.2}: {:.0} ns each",
            rate.median / 1e6,
            rate.low / 1e6,
            rate.high / 1e6,
            1e9 / rate.median
        );
        figure(&format!("dta_live_{name}"), rate.median, "reports_per_s_and_core");
        Ok(rate.median)
    };
    of("received_and_dropped_xdp")?;
    let mut rates = Vec::new();
    for hook in ["xdp", "tc"] {
        for (subject, ..) in &subjects {
            rates.push((format!("{subject}_{hook}"), of(&format!("{subject}_{hook}"))?));
        }
    }
    of("received_by_a_socket")?;
    of("indexed")?;
    let rate = |name: &str| rates.iter().find(|(known, _)| known == name).map_or(0.0, |(_, rate)| *rate);
    for (name, reports) in SWITCHES {
        let switches = rate("append_4_bytes_b16_xdp") / reports;
        println!("a core carries the {name} of {switches:.2} switches of 6.4 Tbit/s, as entries of a list");
    }
    // bench/bench-dta has the bounds, with the databases' figures.
    Ok(true)
}

/// The key with which the sender begins.
const KEY_OF_0: [u8; 13] = [0, 0, 0, 0, 10, 0, 0, 2, 0x9c, 0x40, 1, 0xbb, 6];
