// SPDX-License-Identifier: Apache-2.0
//! Whether more bytes under way bring more bytes.
//!
//! While hosts wait for credit the bytes that come in a time are measured. Then the total is made a quarter larger, and
//! they are measured again. If they have grown by half of that share or more, it was the total that had bounded them, and
//! it stays. Else it is taken back, and for a while nothing is tried. How long an answer takes does not matter, nor how much that varies.

/// Answers that a rate is measured by, at least; and round trips, at least.
const ENOUGH: (u64, u32) = (128, 4);
/// Tried is that part more.
const PART: u32 = 4;
/// After a try in vain so many rates are measured before the next.
const PAUSE: u32 = 16;

/// What has come in a round trip, or several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// In that time.
    pub(crate) elapsed_ns: u64,
    pub(crate) answered: u64,
    pub(crate) bytes: u64,
    /// Somebody waited for credit meanwhile.
    pub(crate) was_refused: bool,
}

/// What is measured now.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    elapsed_ns: u64,
    answered: u64,
    bytes: u64,
    rounds: u32,
}

/// What was before the try.
#[derive(Clone, Copy, Debug)]
struct Before {
    total_bytes: u32,
    bytes_per_ns: f64,
}

/// Tries more, and takes it back where that brings nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Growth {
    rate: Rate,
    before: Option<Before>,
    pause: u32,
    /// What comes now was asked for with the total before.
    is_settling: bool,
}

impl Growth {
    /// The total after this.
    pub(crate) fn next(&mut self, total_bytes: u32, measured: Measured) -> u32 {
        let Measured { elapsed_ns, answered, bytes, was_refused } = measured;
        if !was_refused {
            // It says nothing of the total: something else bounded what came.
            return total_bytes;
        }
        if std::mem::take(&mut self.is_settling) {
            return total_bytes;
        }
        let rate = &mut self.rate;
        rate.elapsed_ns += elapsed_ns;
        rate.answered += answered;
        rate.bytes += bytes;
        rate.rounds += 1;
        if rate.answered < ENOUGH.0 || rate.rounds < ENOUGH.1 || rate.elapsed_ns == 0 {
            return total_bytes;
        }
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let bytes_per_ns = rate.bytes as f64 / rate.elapsed_ns as f64;
        self.rate = Rate::default();
        if let Some(before) = self.before.take() {
            let tried = f64::from(total_bytes) / f64::from(before.total_bytes) - 1.0;
            if bytes_per_ns < before.bytes_per_ns * (1.0 + tried / 2.0) {
                (self.pause, self.is_settling) = (PAUSE, true);
                return before.total_bytes;
            }
        } else if self.pause > 0 {
            self.pause -= 1;
            return total_bytes;
        }
        (self.before, self.is_settling) = (Some(Before { total_bytes, bytes_per_ns }), true);
        total_bytes.saturating_add(total_bytes / PART)
    }
}
