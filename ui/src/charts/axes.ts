// SPDX-License-Identifier: Apache-2.0
//! Where the axes of charts have marks, and what stands at those of time.

import type uPlot from "uplot";
import { clockTime, day } from "../format";
import { aheadMs } from "../zone";

const SECOND_MS = 1000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

/** Between two marks of time. */
export const TIME_STEPS: number[] = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((n) => n * SECOND_MS),
  ...[1, 2, 5, 10, 15, 30].map((n) => n * MINUTE_MS),
  ...[1, 2, 3, 6, 12].map((n) => n * HOUR_MS),
  ...[1, 2, 7, 14, 28, 91, 182, 364].map((n) => n * DAY_MS),
];

export const BINARY_STEPS: number[] = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Multiples of the step on the zone's clocks. uPlot's own depend on the fraction of a second at which the axis begins, which moves. */
export function timeMarks(min: number, max: number, step: number): number[] {
  const ahead = aheadMs(min);
  const first = Math.ceil((min + ahead) / step);
  return Array.from({ length: Math.max(0, Math.floor((max + ahead) / step) - first + 1) }, (_, i) => (first + i) * step - ahead);
}

/** The time of day; at midnight the day. */
export function timeLabels(u: uPlot, marks: number[], step: number): string[] {
  return marks.map((ms) => (isCut(u, ms) ? "" : (ms + aheadMs(ms)) % DAY_MS === 0 ? day(ms).slice(5) : clockTime(ms, step)));
}

/** A label so near to the right edge would be cut off. */
function isCut(u: uPlot, ms: number): boolean {
  const { min, max } = u.scales["x"]!;
  return ((max! - ms) / (max! - min!)) * u.bbox.width < 24 * devicePixelRatio;
}

/** The middles of at most nine rows. */
export function rowMarks(rows: number): number[] {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, rows / 8)));
  return Array.from({ length: Math.ceil(rows / step) }, (_, i) => i * step + 0.5);
}

/** Marks at 1, 10, 100, ...; with 2 and 5 between where that leaves room. Values are log2. */
export function decades(u: uPlot): number[] {
  const { min, max } = u.scales["y"]!;
  const low = 2 ** min!;
  const high = 2 ** max!;
  const marks = (factors: number[]): number[] => {
    const out: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) out.push(Math.log2(value));
      }
    }
    return out;
  };
  const fine = marks([1, 2, 5]);
  return fine.length <= 6 ? fine : marks([1]);
}
