// SPDX-License-Identifier: Apache-2.0
//! How dense a histogram is where its colour is strongest.

/** Share of the columns whose densest bucket has a colour of its own. What came late comes at once: a few such columns must not make all others pale. */
const FULL_SHARE = 0.95;

/** The density that has the strongest colour, of each column's densest. */
export function fullDensity(peaks: Float64Array): number {
  const seen = peaks.filter((peak) => peak > 0).sort();
  return seen[Math.min(seen.length - 1, Math.floor(seen.length * FULL_SHARE))] ?? 1;
}
