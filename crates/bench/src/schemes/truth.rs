// SPDX-License-Identifier: Apache-2.0
//! What really happened on the watched core: `bpf/truth.bpf.c` on sched_switch and sched_wakeup. Attached as long as this lives.

use anyhow::{Context, Result, ensure};
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder};

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/truth.bpf.o"));
const CHUNK_EVENTS: usize = 4096;
const CHUNKS: usize = 128;
const EVENT_BYTES: usize = 16;
/// `struct state`: where the pids of tasks of our own, and the CPU, stand.
const OWN_PIDS_AT: usize = 32;
const CPU_AT: usize = 40;
const STATE_BYTES: usize = 48;

/// From here on the core was so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) time_ns: u64,
    /// Tasks that run or wait to run, without our own.
    pub(super) running: u32,
    pub(super) is_idle: bool,
}

pub(super) struct Truth {
    state: MapHandle,
    events: MapHandle,
    _links: Vec<Link>,
    _object: Object,
}

impl Truth {
    /// Begins to write down what happens on `core`; tasks `own` do not count.
    pub(super) fn of(core: usize, own: [u32; 2]) -> Result<Self> {
        let object = ObjectBuilder::default().open_memory(OBJECT)?.load().context("loading the tracepoints")?;
        let map = |name: &str| -> Result<MapHandle> {
            let map = object.maps().find(|map| map.name() == name).with_context(|| format!("no map {name}"))?;
            Ok(MapHandle::try_from(&map)?)
        };
        let (state, events) = (map("state")?, map("events")?);
        let mut value = vec![0; STATE_BYTES];
        for (index, pid) in own.into_iter().enumerate() {
            value[OWN_PIDS_AT + 4 * index..][..4].copy_from_slice(&pid.to_le_bytes());
        }
        value[CPU_AT..][..4].copy_from_slice(&u32::try_from(core)?.to_le_bytes());
        state.update(&[0; 4], &value, MapFlags::ANY)?;
        let links = object.progs_mut().map(|program| program.attach()).collect::<Result<Vec<_>, _>>();
        let links = links.context("attaching to sched_switch and sched_wakeup")?;
        Ok(Self { state, events, _links: links, _object: object })
    }

    /// Events up to now.
    pub(super) fn count(&self) -> Result<u64> {
        let value = self.state.lookup(&[0; 4], MapFlags::ANY)?.context("no state")?;
        Ok(u64::from_le_bytes(value[..8].try_into()?))
    }

    /// All events from number `first` on, by time.
    pub(super) fn since(&self, first: u64) -> Result<Vec<Event>> {
        let end = self.count()?;
        let (first, end) = (usize::try_from(first)?, usize::try_from(end)?);
        ensure!(end - first <= (CHUNKS - 1) * CHUNK_EVENTS, "more events than there is room for: measure shorter");
        let mut found = Vec::with_capacity(end - first);
        for chunk in first / CHUNK_EVENTS..=end / CHUNK_EVENTS {
            let key = u32::try_from(chunk % CHUNKS)?.to_le_bytes();
            let bytes = self.events.lookup(&key, MapFlags::ANY)?.context("no events")?;
            for (number, event) in (chunk * CHUNK_EVENTS..).zip(bytes.chunks_exact(EVENT_BYTES)) {
                if (first..end).contains(&number) {
                    let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| event[at + index]));
                    let time_ns = u64::from_le_bytes(std::array::from_fn(|index| event[index]));
                    found.push(Event { time_ns, running: half(8), is_idle: half(12) != 0 });
                }
            }
        }
        found.sort_by_key(|event| event.time_ns);
        Ok(found)
    }
}

/// How the core was at that time; `None` before the first event.
pub(super) fn at(events: &[Event], time_ns: u64) -> Option<Event> {
    let after = events.partition_point(|event| event.time_ns <= time_ns);
    after.checked_sub(1).map(|index| events[index])
}

/// Percent of the time between that the core did not idle.
pub(super) fn busy_pct(events: &[Event], begin_ns: u64, end_ns: u64) -> Option<f64> {
    let mut is_idle = at(events, begin_ns)?.is_idle;
    let (mut last_ns, mut idle_ns) = (begin_ns, 0);
    let first = events.partition_point(|event| event.time_ns <= begin_ns);
    for event in events[first..].iter().take_while(|event| event.time_ns < end_ns) {
        idle_ns += if is_idle { event.time_ns - last_ns } else { 0 };
        (last_ns, is_idle) = (event.time_ns, event.is_idle);
    }
    idle_ns += if is_idle { end_ns.saturating_sub(last_ns) } else { 0 };
    (end_ns > begin_ns).then(|| 100.0 * (1.0 - idle_ns as f64 / (end_ns - begin_ns) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_as_its_last_event_says() {
        let event = |time_ns, running, is_idle| Event { time_ns, running, is_idle };
        let events = [event(100, 0, true), event(200, 1, false), event(300, 3, false), event(400, 0, true)];
        assert_eq!(at(&events, 99), None);
        assert_eq!(at(&events, 100), Some(events[0]));
        assert_eq!(at(&events, 399), Some(events[2]));
        assert_eq!(busy_pct(&events, 50, 150), None);
        assert_eq!(busy_pct(&events, 200, 400), Some(100.0));
        assert_eq!(busy_pct(&events, 150, 250), Some(50.0));
        assert_eq!(busy_pct(&events, 100, 500), Some(50.0));
        assert_eq!(busy_pct(&events, 450, 460), Some(0.0));
    }
}
