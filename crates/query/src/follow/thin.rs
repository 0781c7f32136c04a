// SPDX-License-Identifier: Apache-2.0
//! Of each quantum of time the last sample, and all ends.

use onlooker_promql::source::STALE;

/// Whether a value is the marker of an end.
pub(super) fn is_end(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

/// Keeps of each quantum the last sample; ends stay. `last_ns` is the time of the last one before, 0 if there is none or
/// it was an end, and becomes that of these.
pub(super) fn thin<V: Copy>(
    samples: &mut Vec<(u64, V)>,
    quantum_ns: u64,
    last_ns: &mut u64,
    is_end: impl Fn(V) -> bool,
) {
    let mut kept = 0;
    for at in 0..samples.len() {
        let (time_ns, value) = samples[at];
        if is_end(value) {
            samples[kept] = samples[at];
            kept += 1;
            continue;
        }
        let is_same = |other_ns: u64| other_ns / quantum_ns == time_ns / quantum_ns;
        if kept > 0 && !is_end(samples[kept - 1].1) {
            kept -= usize::from(is_same(samples[kept - 1].0));
        } else if kept == 0 && *last_ns > 0 && is_same(*last_ns) {
            // The slice before has had it.
            continue;
        }
        samples[kept] = samples[at];
        kept += 1;
    }
    samples.truncate(kept);
    if let Some((time_ns, value)) = samples.last() {
        // What comes after an end begins again.
        *last_ns = if is_end(*value) { 0 } else { *time_ns };
    }
}
