// SPDX-License-Identifier: Apache-2.0
//! `make bench-dta`: what a telemetry report takes in softirq, by primitive, for each of tc and XDP: copies of a key's
//! entry, entries of a batch, bytes of a payload. By bpf_prog_test_run, the same report again and again, with warm caches.

use std::time::Duration;

use anyhow::{Result, ensure};
use onlooker_dta::append::{List, Position};
use onlooker_dta::increment::Counters;
use onlooker_dta::key_write::{CheckBytes, Table as KeyWrite};
use onlooker_dta::translator::Shape;
use onlooker_responder::{Hook, Prefix, Rate};
use onlooker_translator::{Config, Exit, Place, Table, Translator};
use onlooker_wire::Mac;
use onlooker_wire::dta::{Body, Copies, PORT};

use super::load;
use crate::machine::is_quick;
use crate::report::{Results, spread};
use crate::telemetry::{ACCESS, KEY, frame_to};

const REPEAT: u32 = 20_000;
const MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
/// Reports a second and core: Key-Write with one copy, Append in batches of 16.
const KEY_WRITE_PER_S: f64 = 3e6;
const APPEND_PER_S: f64 = 10e6;
/// Blocks of a slab; each table has one.
const BLOCKS: u32 = 1 << 15;

struct Subject {
    name: String,
    frame: Vec<u8>,
    least_per_s: Option<f64>,
    samples: [Vec<f64>; 2],
}

/// Tables, a report to each, and how many there must be of it in a second.
fn subjects(translator: &Translator) -> Result<Vec<Subject>> {
    let (mut subjects, seed) = (Vec::new(), [7; 16]);
    let mut subject = |name: String, shape, body, least_per_s| -> Result<()> {
        let number = u16::try_from(subjects.len())?;
        let place = Place { slab: u32::from(number), first_block: 0 };
        translator.put_table(number, &Table { access: ACCESS, shape, place })?;
        subjects.push(Subject { name, frame: frame_to(MAC, number, body)?, least_per_s, samples: Default::default() });
        Ok(())
    };
    let payload = [0x5a; 64];
    for copies in 1..=4 {
        let shape = Shape::KeyWrite(KeyWrite { seed, slots_log2: 20, payload_bytes: 20, check: CheckBytes::Four });
        let body = Body::KeyWrite { key: &KEY, payload: &payload[..20], copies: Copies::All(copies) };
        subject(format!("key_write_n{copies}"), shape, body, (copies == 1).then_some(KEY_WRITE_PER_S))?;
    }
    for payload_bytes in [4, 64] {
        let shape = Shape::KeyWrite(KeyWrite { seed, slots_log2: 18, payload_bytes, check: CheckBytes::Eight });
        let body = Body::KeyWrite { key: &KEY, payload: &payload[..payload_bytes.into()], copies: Copies::All(1) };
        subject(format!("key_write_{payload_bytes}_bytes_n1"), shape, body, None)?;
    }
    for (entry_bytes, batch) in [(4, 1), (4, 4), (4, 16), (18, 16), (64, 16)] {
        let shape = Shape::Append(List { entry_bytes, batch, batches_log2: 10 }, Position::default());
        let body = Body::Append { payload: &payload[..entry_bytes.into()] };
        let least = (entry_bytes == 4 && batch == 16).then_some(APPEND_PER_S);
        subject(format!("append_{entry_bytes}_bytes_b{batch}"), shape, body, least)?;
    }
    for copies in [1, 2, 4] {
        let shape = Shape::KeyIncrement(Counters { seed, slots_log2: 20 }, 0);
        let body = Body::KeyIncrement { key: &KEY, addend: 1, copies: Copies::All(copies) };
        subject(format!("key_increment_n{copies}"), shape, body, None)?;
    }
    Ok(subjects)
}

pub(crate) fn run() -> Result<bool> {
    let rounds = if is_quick() { 9 } else { 45 };
    let (responder, _) = load()?;
    // A budget that is looked at and never spent.
    let most = Some(Rate { per_second: 1_000_000_000, burst: 1_000_000_000 });
    let config = Config { port: PORT, source_rate: most, wait: Duration::from_millis(10) };
    let translator = Translator::load(&config, &responder)?;
    translator.set_sources(&[Prefix::host("10.1.2.3".parse()?)])?;
    let mut subjects = subjects(&translator)?;
    for slab in (0u32..).take(subjects.len()) {
        responder.create_slab(slab, BLOCKS)?;
    }
    let hooks = [(Hook::Tc, "tc"), (Hook::Xdp, "xdp")];
    for _ in 0..rounds {
        for Subject { name, frame, samples, .. } in &mut subjects {
            for ((hook, _), samples) in hooks.iter().zip(samples) {
                let before = translator.counters()?.get(Exit::Stored);
                let run = translator.run(*hook, frame, REPEAT)?;
                let stored = translator.counters()?.get(Exit::Stored) - before;
                ensure!(stored == u64::from(REPEAT), "{name}: {stored} of {REPEAT} reports were stored");
                samples.push(f64::from(run.duration_ns));
            }
        }
    }
    let mut results = Results::default();
    for Subject { name, least_per_s, samples, .. } in &mut subjects {
        for ((_, hook), samples) in hooks.iter().zip(samples) {
            let cost = spread(samples);
            let per_s = 1e9 / cost.median;
            println!(
                "{name} {hook}: {:.0} ns, quartiles {:.0} to {:.0}: {:.1} million a second and core",
                cost.median,
                cost.low,
                cost.high,
                per_s / 1e6
            );
            if let Some(least) = least_per_s {
                results.at_least(&format!("dta_{name}_{hook}"), per_s, "reports_per_s_and_core", *least);
            }
        }
    }
    Ok(results.passed())
}
