// SPDX-License-Identifier: Apache-2.0
//! All that is known of the host: its series, its regions, how reading it goes. The reading thread writes it, the screen reads it; one lock around all.
//!
//! A series is found by its place in memory ([`Key`]), which costs no text; one that turns up at another place under the same name (its program or the
//! agent began anew) goes on as the same row. What is not read any more stays for [`KEPT_NS`] and is dimmed. While the host is down nothing goes.

use super::kind::{Kind, Region};
use super::motion::Taken;
use super::pace::Pace;
use super::reason::reason_of;
use super::series::{Key, Series};
use crate::host::{Connection, Reading};
use crate::read::samples::{of_sample, of_sum};
use onlooker_reader::clock::Relation;
use onlooker_reader::{Frame, Session, Via};
use onlooker_region::columns::Value;
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_series::derive::{Derived, Given};
use onlooker_series::rate::per_second;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

/// How long a series stays that is not there any more.
const KEPT_NS: u64 = 30_000_000_000;
/// Series at most: what a host may make us keep.
const MAX_SERIES: usize = 100_000;
/// Time that the rate of reading covers.
const COST_NS: u64 = 5_000_000_000;
/// Time without a reading after which the screen says so, if the interval is not longer.
const SILENT_NS: u64 = 1_000_000_000;

/// How the host is reached.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) name: String,
    pub(super) agent: String,
    pub(super) via: Via,
    pub(super) address: String,
    pub(super) relation: Relation,
    /// Why it is not the kernel responder that answers, if it was wanted.
    pub(super) instead: Option<String>,
}

/// What a view has cost: bytes that READs have fetched from the host for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cost {
    pub(super) bytes: u64,
    pub(super) readings: u64,
    /// When, and how much until then: of the last seconds.
    marks: VecDeque<(u64, u64)>,
}

impl Cost {
    fn add(&mut self, bytes: u64, now_ns: u64) {
        self.bytes += bytes;
        self.readings += 1;
        self.marks.push_back((now_ns, self.bytes));
        let is_old = |mark: &(u64, u64)| now_ns.saturating_sub(mark.0) > COST_NS;
        while self.marks.front().is_some_and(is_old) {
            self.marks.pop_front();
        }
    }

    /// Bytes a second of late, without the first reading, which has the directory and schemas too.
    #[allow(clippy::cast_precision_loss)] // for people
    pub(super) fn rate(&self) -> Option<f64> {
        let (from, to) = (self.marks.front()?, self.marks.back()?);
        per_second((to.1 - from.1) as f64, from.0, to.0)
    }
}

/// Why there is nothing new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Down {
    pub(super) why: String,
    pub(super) tries: u32,
    /// When it is tried again.
    pub(super) next_ns: u64,
}

/// When a value was acquired and read, the reader's steady clock.
struct Acquired {
    /// `None`: the READ acquired it.
    age_ns: Option<u64>,
    answered_ns: u64,
    now_ns: u64,
    /// It is read every time; what is read now and then is old by design.
    is_followed: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// As the user wrote it.
    pub(super) target: String,
    pub(super) interval: Duration,
    pub(super) told: Option<Told>,
    pub(super) series: Vec<Series>,
    by_key: HashMap<Key, usize>,
    by_text: HashMap<String, usize>,
    next_id: u64,
    /// The host's regions, in the directory's order, and what was wrong with them when they were read last.
    pub(super) regions: Vec<(Region, Option<String>)>,
    troubles: HashMap<u64, String>,
    /// Which of them are read when.
    pub(super) pace: Pace,
    /// What each view has cost, in their order.
    pub(super) costs: [Cost; Kind::ALL.len()],
    /// Blocks that the session had read when it was looked at last.
    blocks: u64,
    pub(super) left_out: u64,
    /// Due readings (of regions too) that gave nothing, by reason.
    pub(super) gaps: BTreeMap<&'static str, u64>,
    pub(super) readings: u64,
    /// When the last reading ended.
    pub(super) read_ns: u64,
    /// The oldest value in it: age, name.
    pub(super) oldest: Option<(u64, String)>,
    pub(super) down: Option<Down>,
    /// Reader's steady and wall clock at one instant.
    pub(super) wall: (u64, u64),
    /// Raised by every change.
    pub(super) version: u64,
}

impl Model {
    pub(super) fn new(target: String, interval: Duration, wall: (u64, u64)) -> Self {
        Self {
            target,
            interval,
            told: None,
            series: Vec::new(),
            by_key: HashMap::new(),
            by_text: HashMap::new(),
            next_id: 0,
            regions: Vec::new(),
            troubles: HashMap::new(),
            pace: Pace::default(),
            costs: Default::default(),
            blocks: 0,
            left_out: 0,
            gaps: BTreeMap::new(),
            readings: 0,
            read_ns: 0,
            oldest: None,
            down: None,
            wall,
            version: 0,
        }
    }

    /// A reading that ended well, for the view `kind`.
    pub(super) fn read(
        &mut self,
        kind: Kind,
        connection: &Connection,
        reading: &Reading,
        derived: &mut Derived,
        now_ns: u64,
    ) {
        let told = connection.told();
        if self.readings == 0 || *reading != Reading::Straight {
            self.told = Some(Told {
                name: crate::output::shown(&told.answer.host),
                agent: crate::output::shown(&told.answer.agent),
                via: connection.way.pair.via,
                address: connection.way.address.to_string(),
                relation: told.relation,
                instead: Some(connection.way.notes().join("; ")).filter(|notes| !notes.is_empty()),
            });
        }
        if let Reading::Anew(why) = reading {
            self.gap(reason_of(why), 1);
            self.blocks = 0;
        }
        self.spend(kind, &connection.session, now_ns);
        self.take(&connection.session, &told.relation, derived, now_ns);
    }

    /// What it has cost, beside what the session had read before.
    pub(super) fn spend(&mut self, kind: Kind, session: &Session, now_ns: u64) {
        let blocks = session.counters().blocks;
        // A session that was made anew counts from 0.
        let more = blocks.checked_sub(self.blocks).unwrap_or(blocks);
        self.blocks = blocks;
        self.costs[kind as usize].add(more * BLOCK_BYTES as u64, now_ns);
    }

    /// What a reading found. `derived` has the sums over CPUs from reading to reading.
    pub(super) fn take(&mut self, session: &Session, relation: &Relation, derived: &mut Derived, now_ns: u64) {
        derived.begin(session.directory().last_header().map(|header| header.boot_id));
        (self.read_ns, self.left_out, self.oldest) = (now_ns, 0, None);
        let mut oldest: Option<(u64, usize)> = None;
        // What rests was not read: what an earlier reading found still stands.
        for frame in session.frames().filter(|frame| !frame.is_resting()) {
            let region = frame.entry().identity.word();
            self.troubles.remove(&region);
            if let Some((why, text)) = trouble(&frame) {
                self.gap(why, 1);
                self.troubles.insert(region, text);
            }
            self.pace.was_read(region, now_ns);
            self.frame(&frame, relation, derived, now_ns, &mut oldest);
        }
        let resting = session.frames().filter(Frame::is_resting).map(|frame| frame.entry().identity.word());
        self.stand(&resting.collect(), now_ns);
        self.list(session);
        self.oldest = oldest.map(|(age_ns, index)| (age_ns, self.series[index].name.clone()));
        for (block, reject) in session.control_refused() {
            let _ = block;
            self.gap(reject.name(), 1);
        }
        self.readings += 1;
        self.down = None;
        self.version += 1;
        self.forget(now_ns);
    }

    /// Series of these regions are as they were read last: their past has no holes.
    fn stand(&mut self, regions: &HashSet<u64>, now_ns: u64) {
        if regions.is_empty() {
            return;
        }
        let step = self.step(now_ns);
        let pace = &self.pace;
        let is_there = |series: &&mut Series| {
            regions.contains(&series.key.region) && pace.read_ns(series.key.region) == Some(series.read_ns)
        };
        self.series.iter_mut().filter(is_there).for_each(|series| series.motion.stand(step));
    }

    fn list(&mut self, session: &Session) {
        let entries = session.directory().regions().filter(|entry| session.serves(entry));
        let mut words = HashSet::new();
        self.regions.clear();
        for entry in entries {
            let region = Region::of(entry);
            words.insert(region.word);
            let trouble = self.troubles.get(&region.word).cloned();
            self.regions.push((region, trouble));
        }
        self.troubles.retain(|word, _| words.contains(word));
        self.pace.keep(&words);
    }

    /// What is looked at, what of it is in view, and the only region that is to be shown: from now on these are read.
    pub(super) fn follow(&mut self, kind: Kind, in_view: &HashSet<u64>, region: Option<&str>) {
        self.pace.follow(kind, in_view, region);
    }

    /// Whether the host has this region of the agent's own.
    pub(super) fn has(&self, region: &str) -> bool {
        self.regions.iter().any(|(of, _)| of.is_agents && of.name == region)
    }

    fn frame(
        &mut self,
        frame: &Frame,
        relation: &Relation,
        derived: &mut Derived,
        now_ns: u64,
        oldest: &mut Option<(u64, usize)>,
    ) {
        let (Some(plan), answered_ns) = (frame.plan(), frame.times_ns().1) else { return };
        let entry = frame.entry();
        let mut samples = Vec::new();
        frame.decode(|sample| match samples.len() < MAX_SERIES {
            true => samples.push(sample),
            false => self.left_out += 1,
        });
        let is_followed = self.pace.follows(&Region::of(entry));
        let mut take = |key, time_ns: Option<u64>, value, new: &dyn Fn(u64) -> Series| {
            let age_ns = time_ns.map(|time_ns| relation.age_ns(time_ns, answered_ns));
            let age_ns = age_ns.map(|age_ns| u64::try_from(age_ns.max(0)).unwrap_or(u64::MAX).min(answered_ns));
            self.value(key, value, Acquired { age_ns, answered_ns, now_ns, is_followed }, oldest, new);
        };
        derived.read(entry, plan, &samples, |given| match given {
            Given::Values { group, samples, .. } => {
                for sample in samples {
                    let key = Key::of(entry, group, sample);
                    let new = |id| Series::new(id, key, entry, &of_sample(entry, sample, answered_ns));
                    take(key, sample.time_ns, sample.value.clone(), &new);
                }
            }
            Given::Sum(sum) => {
                for (number, (metric, word)) in sum.metrics.iter().zip(sum.words).enumerate() {
                    let key = Key::of_sum(entry, &sum, number);
                    let new = |id| Series::new(id, key, entry, &of_sum(entry, &sum, metric, *word, answered_ns));
                    take(key, sum.time_ns, metric.value(*word), &new);
                }
            }
        });
    }

    fn value(
        &mut self,
        key: Key,
        value: Value,
        acquired: Acquired,
        oldest: &mut Option<(u64, usize)>,
        new: impl FnOnce(u64) -> Series,
    ) {
        let Acquired { age_ns, answered_ns, now_ns, is_followed } = acquired;
        let step = self.step(now_ns);
        let Some(index) = self.find(key, now_ns, new) else {
            self.left_out += 1;
            return;
        };
        let series = &mut self.series[index];
        let acquired_ns = answered_ns - age_ns.unwrap_or(0);
        let told = age_ns.filter(|_| is_followed);
        if let Some(age_ns) = told.filter(|age_ns| oldest.is_none_or(|(oldest, _)| *age_ns > oldest)) {
            *oldest = Some((age_ns, index));
        }
        (series.value, series.read_ns, series.acquired_ns) = (value, now_ns, age_ns.map(|_| acquired_ns));
        let taken = Taken {
            value: &series.value,
            metric: series.metric,
            scale: series.scale,
            acquired_ns,
            read_ns: now_ns,
            step,
        };
        series.motion.take(taken);
    }

    fn find(&mut self, key: Key, now_ns: u64, new: impl FnOnce(u64) -> Series) -> Option<usize> {
        if let Some(index) = self.by_key.get(&key) {
            return Some(*index);
        }
        let new = new(self.next_id);
        let text = new.text();
        // The same name at another place: it goes on, unless both are there (then they are two).
        let before = self.by_text.get(&text).copied();
        let before =
            before.filter(|index| self.series[*index].read_ns < now_ns && self.series[*index].metric == new.metric);
        if let Some(index) = before {
            let series = &mut self.series[index];
            self.by_key.remove(&series.key);
            series.key = key;
            series.motion.anew();
            self.by_key.insert(key, index);
            return Some(index);
        }
        if self.series.len() >= MAX_SERIES {
            return None;
        }
        self.next_id += 1;
        let index = self.series.len();
        self.series.push(new);
        self.by_key.insert(key, index);
        self.by_text.insert(text, index);
        Some(index)
    }

    /// Drops what has been gone for long.
    fn forget(&mut self, now_ns: u64) {
        let kept_ns = KEPT_NS.max(self.interval_ns().saturating_mul(3));
        let is_gone = |series: &Series| now_ns.saturating_sub(series.read_ns) > kept_ns;
        if !self.series.iter().any(is_gone) {
            return;
        }
        let keep: Vec<Series> =
            std::mem::take(&mut self.series).into_iter().filter(|series| !is_gone(series)).collect();
        self.series = keep;
        self.by_key = self.series.iter().enumerate().map(|(index, series)| (series.key, index)).collect();
        self.by_text = self.series.iter().enumerate().map(|(index, series)| (series.text(), index)).collect();
    }

    /// A due reading that gave nothing, and those that passed meanwhile.
    pub(super) fn gap(&mut self, reason: &'static str, count: u64) {
        *self.gaps.entry(reason).or_default() += count;
        self.version += 1;
    }

    /// Reading has failed; it is tried again at `next_ns`.
    pub(super) fn failed(&mut self, why: String, next_ns: u64) {
        let tries = self.down.as_ref().map_or(0, |down| down.tries) + 1;
        self.down = Some(Down { why, tries, next_ns });
        self.version += 1;
    }

    fn interval_ns(&self) -> u64 {
        u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Number of the sparkline's step at a time.
    pub(super) fn step(&self, now_ns: u64) -> u64 {
        now_ns / self.step_ns()
    }

    /// Length of a step: a second, or the interval in whole seconds.
    pub(super) fn step_ns(&self) -> u64 {
        self.interval_ns().div_ceil(1_000_000_000).max(1) * 1_000_000_000
    }

    /// Whether nothing has come for too long, and for how long (ns).
    pub(super) fn silent_ns(&self, now_ns: u64) -> Option<u64> {
        let silent_ns = now_ns.saturating_sub(self.read_ns);
        let is_down = self.down.is_some() || silent_ns > SILENT_NS.max(self.interval_ns().saturating_mul(3));
        is_down.then_some(silent_ns)
    }

    /// Whether a series was there when its region was read last.
    pub(super) fn is_fresh(&self, series: &Series) -> bool {
        self.pace.read_ns(series.key.region).is_some_and(|read_ns| series.read_ns >= read_ns)
    }

    /// Wall clock of an instant of the steady clock, ns since 1970.
    pub(super) fn utc_ns(&self, steady_ns: u64) -> u64 {
        self.wall.1.saturating_add(steady_ns).saturating_sub(self.wall.0)
    }
}

/// Why a region gave less than it has: a word for counting, and a sentence.
fn trouble(frame: &Frame) -> Option<(&'static str, String)> {
    if let Some(problem) = frame.problem() {
        return Some((problem.word(), crate::output::shown(&problem.to_string())));
    }
    let first = frame.refused().first()?;
    let why = first.reject.name();
    Some((why, format!("{} of its blocks were not accepted ({why})", frame.refused().len())))
}
