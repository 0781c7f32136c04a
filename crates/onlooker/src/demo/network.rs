// SPDX-License-Identifier: Apache-2.0
//! A made-up network that reports telemetry to the demo's host: four leaf switches, four spines, flows between them. A spine loses packets of some flows now and then, and
//! after a few seconds two switches send a flow in circles.
//!
//! Switches are numbers of reporters, all in one thread: what they send is what switches would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use onlooker_reporter::{Report, Reporter};
use onlooker_wire::dta::{Body, Copies, Importance};

/// Of all tables.
pub(super) const ACCESS_KEY: &str = "00c0ffee";
const ACCESS: u32 = 0x00c0_ffee;
/// Tables by number, as `settings` has them.
pub(super) const PATHS: u16 = 1;
pub(super) const DROPS: u16 = 2;
pub(super) const LOOPS: u16 = 3;
pub(super) const BYTES: u16 = 4;
const SWITCHES: u32 = 8;
const LEAVES: u32 = 4;
const FLOWS: u32 = 400;
/// The switch that loses packets, and why: a full queue.
const LOSSY: u32 = 6;
const QUEUE: u8 = 3;
/// Between two rounds, in each of which a tenth of the flows is reported.
const ROUND: Duration = Duration::from_millis(100);
/// When the loop begins, and which flow is in it.
const LOOP_AFTER: Duration = Duration::from_secs(3);
const LOOPED: u32 = 42;

/// A flow between two leaves.
struct Flow {
    key: [u8; 13],
    path: [u32; 5],
}

impl Flow {
    fn new(number: u32) -> Self {
        let (from, to, spine) =
            (number % LEAVES, (number / 4 + 1 + number % LEAVES) % LEAVES, LEAVES + number / 16 % LEAVES);
        let address =
            |leaf: u32| [10, 0, u8::try_from(leaf + 1).unwrap_or(0), u8::try_from(1 + number % 200).unwrap_or(0)];
        let mut key = [0; 13];
        key[..4].copy_from_slice(&address(from));
        key[4..8].copy_from_slice(&address(to));
        key[8..10].copy_from_slice(&u16::try_from(40_000 + number).unwrap_or(0).to_be_bytes());
        key[10..12].copy_from_slice(&443u16.to_be_bytes());
        key[12] = 6;
        let path = if from == to { [from + 1, 0, 0, 0, 0] } else { [from + 1, spine + 1, to + 1, 0, 0] };
        Self { key, path }
    }

    /// Where the packets of a loop have been.
    fn looped(&self) -> [u32; 5] {
        [self.path[0], 7, 8, 7, 8]
    }

    fn event(&self, switch: u32, reason: u8) -> Vec<u8> {
        [&self.key[..], &switch.to_be_bytes(), &[reason]].concat()
    }
}

/// The network; it ends with this value.
#[derive(Debug)]
pub(super) struct Network {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// An example for whoever wants to ask.
pub(super) fn example() -> String {
    onlooker_telemetry::text::Format::flow().show(&Flow::new(LOOPED).key)
}

impl Network {
    /// Begins to report to a host's port of reports.
    ///
    /// # Errors
    /// No socket, or no thread.
    pub(super) fn start(collector: SocketAddr) -> std::io::Result<Self> {
        let reporters =
            (1..=SWITCHES).map(|switch| Reporter::new(switch, &[collector], 0)).collect::<Result<Vec<_>, _>>()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = thread::Builder::new().name("network".into()).spawn(move || run(reporters, &over))?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn run(mut reporters: Vec<Reporter>, is_over: &AtomicBool) {
    let flows: Vec<Flow> = (0..FLOWS).map(Flow::new).collect();
    let begun = Instant::now();
    for round in 0u32.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        for (number, flow) in (0u32..).zip(&flows).filter(|(number, _)| number % 10 == round % 10) {
            let is_looped = number == LOOPED && begun.elapsed() > LOOP_AFTER;
            report(&mut reporters, number, flow, is_looped, round);
        }
        thread::sleep(ROUND);
    }
}

/// What the switches of a flow's way say of it.
fn report(reporters: &mut [Reporter], number: u32, flow: &Flow, is_looped: bool, round: u32) {
    let (looped, dropped) = (flow.event(7, 1), flow.event(LOSSY, QUEUE));
    let mut say = |switch: u32, importance, table, body| {
        if let Some(reporter) = reporters.get_mut(switch as usize - 1) {
            // The collector may be gone for a moment: what is lost then is lost.
            let _ = reporter.report(&Report { importance, ..Report::new(table, ACCESS, body) });
        }
    };
    let path = if is_looped { flow.looped() } else { flow.path };
    let hops = path.map(u32::to_be_bytes).concat();
    let last = path.iter().rev().find(|hop| **hop > 0).copied().unwrap_or(1);
    let copies = Copies::All(2);
    say(last, Importance::Low, PATHS, Body::KeyWrite { key: &flow.key, payload: &hops, copies });
    let bytes = u64::from(1500 * (1 + number % 7));
    say(path[0], Importance::Medium, BYTES, Body::KeyIncrement { key: &flow.key, addend: bytes, copies });
    if is_looped {
        say(7, Importance::High, LOOPS, Body::Append { payload: &looped });
    }
    if path.contains(&LOSSY) && (number + round).is_multiple_of(23) {
        say(LOSSY, Importance::High, DROPS, Body::Append { payload: &dropped });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_have_ways_through_the_network() {
        let flows: Vec<Flow> = (0..FLOWS).map(Flow::new).collect();
        let keys: std::collections::BTreeSet<_> = flows.iter().map(|flow| flow.key).collect();
        assert_eq!(keys.len(), flows.len());
        assert!(flows.iter().any(|flow| flow.path.contains(&LOSSY)), "somebody loses packets");
        for flow in &flows {
            let hops: Vec<u32> = flow.path.iter().copied().filter(|hop| *hop > 0).collect();
            assert!(hops.len() == 1 || (hops.len() == 3 && hops[1] > LEAVES && hops[0] <= LEAVES && hops[2] <= LEAVES));
            assert!(hops.iter().all(|hop| (1..=SWITCHES).contains(hop)));
        }
        assert_eq!(flows[LOOPED as usize].looped()[1..], [7, 8, 7, 8]);
        assert!(example().contains("/tcp"));
    }
}
