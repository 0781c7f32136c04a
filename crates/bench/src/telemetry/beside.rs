// SPDX-License-Identifier: Apache-2.0
//! `make bench-dta-beside`: a host's metrics, read every 10 ms, while the same core takes a million telemetry reports a second: readings that are missed, and how late they
//! are, beside the same without reports.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use onlooker_responder::{Device, Home};
use onlooker_testbed::{Agent, Namespace, binary, run as run_command};
use onlooker_translator::{Exit, Translator};
use onlooker_wire::dta::{Body, Copies};
use serde_json::Value;

use super::generator::{Generator, frame_between, mac_of, napi_thread, run_ns};
use super::{KEY, PATH};
use crate::machine::{ASKING_CORE, is_quick, pin};
use crate::report::{Results, median};

const PER_S: u32 = 1_000_000;
/// The sender's rate: while the reader has its core nothing is sent.
const SENT_PER_S: u32 = 1_250_000;
/// Looks whether one is due, between two looks whether it is over.
const LOOKS: u32 = 1 << 20;

/// A reading every 10 ms for a while, as `onlooker read` tells of it. It goes before the sender, which is on the same core: what is late then is the watched core's doing.
fn read(address: &str, token: &Path, readings: u32) -> Result<Value> {
    let mut command = Command::new("taskset");
    command.args(["-c", &ASKING_CORE.to_string(), "chrt", "--fifo", "1"]).arg(binary("onlooker", "onlooker"));
    command.args(["read", address, "--via", "kernel", "--interval", "10ms", "--summary", "--count"]);
    let output = command.arg(readings.to_string()).arg("--token-file").arg(token).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "onlooker read: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_str(text.lines().last().context("no summary")?)?)
}

/// Sends until it is over; how many.
fn send(generator: &Generator, frame: &[u8], is_over: &AtomicBool) -> Result<u32> {
    let before = generator.sent()?;
    while !is_over.load(Ordering::Relaxed) {
        generator.send(frame, LOOKS)?;
    }
    Ok(generator.sent()?.wrapping_sub(before))
}

pub(crate) fn run() -> Result<bool> {
    let (rounds, readings) = if is_quick() { (3, 300) } else { (5, 1000) };
    let namespace = Namespace::new();
    let (outside, inside) = (namespace.outside(), namespace.inside());
    let tables = format!(
        "[kernel.telemetry]\nallow = [\"{outside}/32\"]\nsource_reports_per_s = 1000000000\n[[kernel.telemetry.tables]]\n\
         name = \"paths\"\nnumber = 1\nprimitive = \"key-write\"\nmemory = \"32MiB\"\npayload_bytes = 20\naccess_key = \"feedbeef\"\n"
    );
    let agent = Agent::start_kernel(&namespace, &tables);
    // A device without an XDP program has NAPI only so.
    run_command("nsenter", &[&format!("--net=/run/netns/{}", namespace.name()), "ethtool", "-K", "eth0", "gro", "on"]);
    let threaded =
        "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/eth0/threaded && cat /sys/class/net/eth0/address";
    let network = format!("--net=/run/netns/{}", namespace.name());
    let mac = mac_of(&run_command("nsenter", &[&network, "unshare", "--mount", "sh", "-c", threaded]))?;
    let napi = napi_thread("eth0")?;
    let generator = Generator::new()?;
    generator.aim(Device::named(namespace.outside_device())?.index(), Some(SENT_PER_S))?;
    let body = Body::KeyWrite { key: &KEY, payload: &PATH, copies: Copies::All(2) };
    let frame = frame_between((outside, inside), mac, 1, body)?;
    let home = Home::new(namespace.bpffs(), "agent")?;
    let translator = Translator::open(&home)?.context("no translator")?;
    let stored = || -> Result<u64> { Ok(translator.counters()?.get(Exit::Stored)) };
    let (address, token) = (agent.address(), agent.token_file());
    pin(ASKING_CORE)?;
    let mut ratios = [Vec::new(), Vec::new()];
    let (mut gaps, mut rates, mut shares) = (0, Vec::new(), Vec::new());
    let at = |summary: &Value, what: &str, percentile: &str| summary[what][percentile].as_f64().unwrap_or(f64::NAN);
    for _ in 0..rounds {
        let alone = read(&address, &token, readings)?;
        let is_over = AtomicBool::new(false);
        let (before, run_before_ns, begun) = (stored()?, run_ns(napi)?, Instant::now());
        let (beside, sent) = thread::scope(|scope| -> Result<(Value, u32)> {
            let reading = scope.spawn(|| {
                let beside = read(&address, &token, readings);
                is_over.store(true, Ordering::Relaxed);
                beside
            });
            let sent = send(&generator, &frame, &is_over)?;
            let beside = reading.join().map_err(|_| anyhow::anyhow!("the reader has panicked"))??;
            Ok((beside, sent))
        })?;
        let (came, ran_ns, took) = (stored()? - before, run_ns(napi)? - run_before_ns, begun.elapsed());
        #[allow(clippy::cast_precision_loss)]
        {
            rates.push(came as f64 / took.as_secs_f64());
            shares.push(came as f64 / f64::from(sent));
            println!(
                "beside {:.2} million reports/s ({:.4} of those sent): the core has run for {:.0} % of the time; late p99 {:.0} us, alone {:.0}; readings take {:.0} us, alone {:.0} (medians)",
                came as f64 / took.as_secs_f64() / 1e6,
                came as f64 / f64::from(sent),
                ran_ns as f64 / took.as_nanos() as f64 * 100.0,
                at(&beside, "late", "p99_ns") / 1e3,
                at(&alone, "late", "p99_ns") / 1e3,
                at(&beside, "took", "p50_ns") / 1e3,
                at(&alone, "took", "p50_ns") / 1e3,
            );
        }
        for (ratios, percentile) in ratios.iter_mut().zip(["p50_ns", "p99_ns"]) {
            ratios.push(at(&beside, "late", percentile) / at(&alone, "late", percentile));
        }
        if beside["gaps"] != 0 || alone["gaps"] != 0 {
            println!("gaps beside: {}, alone: {}", beside["gaps_by"], alone["gaps_by"]);
        }
        gaps +=
            beside["gaps"].as_u64().unwrap_or(u64::MAX).saturating_add(beside["failed"].as_u64().unwrap_or(u64::MAX));
    }
    let mut results = Results::default();
    results.at_least("dta_beside_reports", median(&mut rates), "reports_per_s", 0.95 * f64::from(PER_S));
    results.line("dta_beside_gaps", &gaps.to_string(), "gaps", "= 0", gaps == 0);
    let [p50, p99] = &mut ratios;
    results.at_most("dta_beside_late_p50", median(p50), "times_alone", 1.2);
    results.at_most("dta_beside_late_p99", median(p99), "times_alone", 1.2);
    Ok(results.passed())
}
