// SPDX-License-Identifier: Apache-2.0
//! The time windows and the greatest value of a value axis. Pure.

export interface TimeWindow {
  key: string;
  label: string;
  ms: number;
  /** Width of a point: a chart has at most some 700 of them. */
  bucketMs: number;
}

export const WINDOWS: readonly TimeWindow[] = [
  { key: "10s", label: "10 s", ms: 10_000, bucketMs: 100 },
  { key: "1m", label: "1 min", ms: 60_000, bucketMs: 100 },
  { key: "10m", label: "10 min", ms: 600_000, bucketMs: 1000 },
  { key: "1h", label: "1 h", ms: 3_600_000, bucketMs: 5000 },
  { key: "6h", label: "6 h", ms: 21_600_000, bucketMs: 30_000 },
  { key: "24h", label: "24 h", ms: 86_400_000, bucketMs: 120_000 },
];

/** How often the controller sends a row at most. */
export const LIVE_EVERY_MS = 100;

/** The next "round" number: 1, 2, 2.5, 5 times a power of ten, or a power of two for bytes. */
export function roundUp(value: number, binary: boolean): number {
  if (!(value > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 2.5, 5, 10].find((factor) => value <= factor * power * 1.0001) ?? 10;
  return step * power;
}

/** The axis grows at once and shrinks only to less than half, so that it does not jump about. */
export function axisTop(before: number, greatest: number, binary: boolean): number {
  const wanted = roundUp(greatest * 1.05, binary);
  return wanted > before || wanted < before / 2 ? wanted : before;
}
