// SPDX-License-Identifier: Apache-2.0
//! Judges the rows of an entity.

use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::Arc;

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use crate::Reason;
use crate::config::Rule;
use crate::state::State;

/// A series that is judged: where its word is, and by what.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    /// Number of the series in the entity.
    series: u32,
    at: u32,
    form: Form,
    scale: f64,
    is_counter: bool,
    /// How finely it moves; 0: no coarser than it is read.
    resolution_ns: u64,
    rule: Arc<Rule>,
}

impl Judged {
    /// `None`: its samples are no numbers.
    pub(crate) fn new(series: u32, of: &Series, rule: &Arc<Rule>) -> Option<Self> {
        let at = u32::try_from(of.at).ok()?;
        let (is_counter, resolution_ns) = (of.metric == Metric::Counter, of.resolution_ns);
        Some(Self { series, at, form: of.form, scale: of.scale, is_counter, resolution_ns, rule: rule.clone() })
    }

    fn key(&self) -> (u32, u32, u64, u64, bool, *const Rule) {
        let rule = ptr::from_ref(&*self.rule);
        (self.series, self.at, self.scale.to_bits(), self.resolution_ns, self.is_counter, rule)
    }

    /// The exported number.
    #[allow(clippy::cast_precision_loss)] // as everywhere that numbers are exported
    fn number(&self, word: u64) -> f64 {
        let stored = match self.form {
            Form::Signed => word.cast_signed() as f64,
            Form::Float => f64::from_bits(word),
            _ => word as f64,
        };
        stored * self.scale
    }

    /// The word whose number is the nearest.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates
    fn word(&self, number: f64) -> u64 {
        let stored = number / self.scale;
        match self.form {
            Form::Signed => (stored as i64).cast_unsigned(),
            Form::Float => stored.to_bits(),
            _ => stored as u64,
        }
    }
}

impl PartialEq for Judged {
    fn eq(&self, other: &Self) -> bool {
        self.form == other.form && self.key() == other.key()
    }
}

impl Eq for Judged {}

impl Hash for Judged {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A sample that is not valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Failure {
    /// Number of its series in the entity.
    pub series: usize,
    /// Why.
    pub reason: Reason,
    /// What it was; of one that has not come the one before.
    pub value: f64,
    /// When it was acquired, or missed, UTC ns.
    pub time_ns: u64,
}

/// A reading's time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// UTC ns.
    pub utc_ns: u64,
    /// Between two readings of the host.
    pub interval_ns: u64,
}

/// What judges the rows of an entity.
#[derive(Clone, Debug)]
pub struct Checked {
    list: Arc<[Judged]>,
    /// Of each of them, whether its last sample was found to be less than before.
    has_fallen: Box<[bool]>,
    /// Of those that look back, with their places in the list.
    states: Box<[(u32, State)]>,
    /// Whether any is to come in so many intervals, and for how long none came when that was looked at last.
    is_awaited: bool,
    missed_ns: u64,
}

impl Checked {
    pub(crate) fn new(list: Arc<[Judged]>) -> Self {
        let state = |(at, judged): (u32, &Judged)| State::new(&judged.rule).map(|state| (at, state));
        let states = (0..).zip(list.iter()).filter_map(state).collect();
        let is_awaited = list.iter().any(|judged| judged.rule.absent_intervals.is_some());
        Self { has_fallen: vec![false; list.len()].into(), states, is_awaited, missed_ns: 0, list }
    }

    /// Judges a new row: `row` is the one before, where there was one, and `words` what has come. Where a sample fails
    /// what is to stand in its place is given back: the place in the row, and the word.
    pub fn judge(
        &mut self,
        row: Option<&[u64]>,
        words: &[u64],
        time_ns: u64,
        mut fail: impl FnMut(Failure, (usize, u64)),
    ) {
        self.missed_ns = 0;
        let mut states = self.states.iter_mut().peekable();
        for ((number, judged), has_fallen) in (0..).zip(self.list.iter()).zip(&mut self.has_fallen) {
            let mut state = states.next_if(|(of, _)| *of == number).map(|(_, state)| state);
            let at = judged.at as usize;
            let Some(word) = words.get(at).copied() else { continue };
            let (value, before) = (judged.number(word), row.and_then(|row| row.get(at)).copied());
            let Judged { rule, is_counter, .. } = judged;
            let out = rule.range.filter(|[least, greatest]| !(*least..=*greatest).contains(&value));
            let falls = rule.monotone && before.is_some_and(|before| value < judged.number(before));
            // The one behind it is where a counter begins again.
            *has_fallen = falls && !*has_fallen;
            state.iter_mut().filter(|_| *has_fallen).for_each(|state| state.begin_again());
            let reason = match state {
                _ if out.is_some() => Reason::Range,
                _ if *has_fallen => Reason::Monotone,
                Some(state) => match state.judge(rule, *is_counter, time_ns, value) {
                    Ok(()) => continue,
                    Err(reason) => reason,
                },
                None => continue,
            };
            // Of one that never was valid the nearest that would be.
            let nearest = || out.map_or(word, |[least, greatest]| judged.word(value.max(least).min(greatest)));
            let failure = Failure { series: judged.series as usize, reason, value, time_ns };
            fail(failure, (at, before.unwrap_or_else(nearest)));
        }
    }

    /// No new row in a reading, or the entity has gone (`is_gone`): what is missing by now, told once. The last row is of
    /// `time_ns`; the reading is of `now_ns` and one of each `interval_ns`.
    pub fn miss(&mut self, row: &[u64], time_ns: u64, now: Now, is_gone: bool, mut fail: impl FnMut(Failure)) {
        if !self.is_awaited {
            return;
        }
        let before_ns = std::mem::replace(&mut self.missed_ns, now.utc_ns.saturating_sub(time_ns));
        for judged in self.list.iter() {
            let Some(intervals) = judged.rule.absent_intervals else { continue };
            // A program that samples once a second is read more often.
            let most_ns = judged.resolution_ns.max(now.interval_ns).saturating_mul(intervals.into());
            if before_ns <= most_ns && (is_gone || self.missed_ns > most_ns) {
                let value = row.get(judged.at as usize).map_or(f64::NAN, |word| judged.number(*word));
                let series = judged.series as usize;
                fail(Failure { series, reason: Reason::Absent, value, time_ns: now.utc_ns });
            }
        }
    }

    /// Series that have moving averages and quantiles: their numbers in the entity, the quantiles behind the average, if there is one.
    pub fn moving(&self) -> impl Iterator<Item = (usize, bool, &[f64])> {
        self.with_outputs()
            .map(|(judged, _)| (judged.series as usize, judged.rule.ema.is_some(), judged.rule.quantiles.as_slice()))
    }

    /// Their values, in the same order.
    pub fn outputs(&self) -> impl Iterator<Item = impl Iterator<Item = f64>> {
        self.with_outputs().map(|(judged, state)| state.outputs(&judged.rule))
    }

    fn with_outputs(&self) -> impl Iterator<Item = (&Judged, &State)> {
        let all = self.states.iter().map(|(at, state)| (&self.list[*at as usize], state));
        all.filter(|(judged, _)| judged.rule.ema.is_some() || !judged.rule.quantiles.is_empty())
    }
}
