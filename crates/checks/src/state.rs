// SPDX-License-Identifier: Apache-2.0
//! What is known of a series whose rule looks back.

use crate::Reason;
use crate::config::Rule;
use crate::window::Window;

/// Standard deviations in a median absolute deviation of normally distributed values.
const DEVIATION: f64 = 1.4826;
const SECOND_NS: f64 = 1e9;

/// Of a series.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// The last valid sample, once there is one.
    good: Option<(u64, f64)>,
    /// The last one, and since when it is that.
    last: Option<f64>,
    since_ns: u64,
    /// What `outlier` compares with.
    usual: Option<Box<Window>>,
    /// Valid samples, where quantiles are wanted.
    valid: Option<Box<Window>>,
    average: Option<f64>,
}

impl State {
    /// None where the rule does not look back.
    pub(crate) fn new(rule: &Rule) -> Option<Self> {
        let window = |is_wanted: bool| is_wanted.then(|| Box::new(Window::new(rule.window)));
        let state = Self {
            usual: window(rule.outlier.is_some()),
            valid: window(!rule.quantiles.is_empty()),
            ..Self::default()
        };
        let looks_back = rule.max_change_per_s.is_some() || rule.still.is_some() || rule.ema.is_some();
        (looks_back || state.usual.is_some() || state.valid.is_some()).then_some(state)
    }

    /// Takes a sample that is in its range; of a counter that is in order, too.
    pub(crate) fn judge(&mut self, rule: &Rule, is_counter: bool, time_ns: u64, value: f64) -> Result<(), Reason> {
        let before = self.last.replace(value);
        if before.is_none_or(|before| before.to_bits() != value.to_bits()) {
            self.since_ns = time_ns;
        }
        let seconds = |since_ns: u64| seconds(time_ns.saturating_sub(since_ns));
        if let (Some(most), Some((good_ns, good))) = (rule.max_change_per_s, self.good)
            && (value - good).abs() > most * seconds(good_ns) + rule.slack
        {
            return Err(Reason::Rate);
        }
        if rule.still.is_some_and(|still| time_ns.saturating_sub(self.since_ns) >= still.as_ns()) {
            return Err(Reason::Still);
        }
        if let (Some(most), Some(usual)) = (rule.outlier, &mut self.usual) {
            let compared = match (is_counter, self.good) {
                (false, _) => Some(value),
                (true, Some((good_ns, good))) if good_ns < time_ns => Some((value - good) / seconds(good_ns)),
                (true, _) => None,
            };
            if let Some(compared) = compared.filter(|compared| compared.is_finite()) {
                let verdict = is_usual(usual, most, rule.outlier_slack, compared);
                // Also what is none: where the level has changed, that is soon what is usual.
                usual.push(compared);
                verdict?;
            }
        }
        self.take_valid(rule, time_ns, value);
        Ok(())
    }

    /// The counter has fallen: what it was says nothing of what comes.
    pub(crate) fn begin_again(&mut self) {
        self.good = None;
    }

    fn take_valid(&mut self, rule: &Rule, time_ns: u64, value: f64) {
        if value.is_finite() {
            if let Some(valid) = &mut self.valid {
                valid.push(value);
            }
            if let Some(constant) = rule.ema {
                let average = self.average.zip(self.good).map(|(average, (good_ns, _))| {
                    let old = (-seconds(time_ns.saturating_sub(good_ns)) / seconds(constant.as_ns())).exp();
                    value + (average - value) * old
                });
                self.average = Some(average.unwrap_or(value));
            }
        }
        self.good = Some((time_ns, value));
    }

    /// The moving average, then the quantiles, as the rule has them.
    pub(crate) fn outputs(&self, rule: &Rule) -> impl Iterator<Item = f64> {
        let quantile = |quantile: &f64| self.valid.as_ref()?.quantile(*quantile);
        rule.ema
            .iter()
            .map(|_| self.average)
            .chain(rule.quantiles.iter().map(quantile))
            .map(|value| value.unwrap_or(f64::NAN))
    }
}

fn is_usual(usual: &Window, most: f64, slack: f64, value: f64) -> Result<(), Reason> {
    let Some((median, deviation)) = usual.median_and_deviation().filter(|_| usual.is_half_full()) else {
        return Ok(());
    };
    // Where most values are one and the same nothing says how far is far, unless the rule does.
    let band = (most * DEVIATION * deviation).max(slack);
    if band > 0.0 && (value - median).abs() > band { Err(Reason::Outlier) } else { Ok(()) }
}

#[allow(clippy::cast_precision_loss)] // times between samples
fn seconds(ns: u64) -> f64 {
    ns as f64 / SECOND_NS
}
