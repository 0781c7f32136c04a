// SPDX-License-Identifier: Apache-2.0
//! What is asked of one host: selectors of its series, and rates over a time in which they have moved. Pure.

import type { Series } from "../api";
import { quote } from "../promql";

/** A time in the past, or now, and the time over which rates are taken before it; null: as short as values allow. */
export interface At {
  timeMs: number;
  windowMs: number | null;
}

/** Values that come every few ms say enough in this time. */
const MIN_WINDOW_MS = 5000;
/** A rate needs two values; a third is for those that come late. */
const VALUES = 3;
/** Rows that a rate reads of each series at most. */
const MAX_ROWS = 30_000;

/** Over which time to take the rate of what is read every `intervalMs` and moves every `resolutionMs`. */
export function rateWindowMs(windowMs: number | null, intervalMs: number, resolutionMs: number): number {
  const distance = Math.max(intervalMs, resolutionMs, 1);
  const least = Math.max(MIN_WINDOW_MS, VALUES * distance);
  return Math.round(Math.min(Math.max(windowMs ?? 0, least), Math.max(least, MAX_ROWS * distance)));
}

/** PromQL's way to write it. */
export const span = (ms: number): string => (ms % 1000 === 0 ? `${ms / 1000}s` : `${ms}ms`);

export class Subject {
  private readonly byName = new Map<string, Series[]>();
  intervalMs = 0;

  constructor(readonly host: string) {}

  /** What the host has been found to have. */
  learn(series: Iterable<Series>): void {
    for (const item of series) {
      const of = this.byName.get(item.name);
      if (of === undefined) this.byName.set(item.name, [item]);
      else if (!of.some((other) => other.series === item.series)) of.push(item);
    }
  }

  has(name: string): boolean {
    return this.byName.has(name);
  }

  of(name: string): readonly Series[] {
    return this.byName.get(name) ?? [];
  }

  get cores(): number {
    return this.values("node_cpu_seconds_total", "cpu").length;
  }

  get memoryBytes(): number | null {
    const value = this.of("node_memory_MemTotal_bytes")[0]?.value;
    return typeof value === "number" ? value : null;
  }

  /** Values of a label of a metric. */
  values(name: string, label: string): string[] {
    return [...new Set(this.of(name).map((item) => item.labels[label] ?? ""))];
  }

  select(name: string, ...matchers: string[]): string {
    return `${name}{${[`instance=${quote(this.host)}`, ...matchers].join(",")}}`;
  }

  windowMs(name: string, at: At): number {
    return rateWindowMs(at.windowMs, this.intervalMs, Math.max(0, ...this.of(name).map((item) => item.resolution_ms)));
  }

  rate(name: string, at: At, ...matchers: string[]): string {
    return `rate(${this.select(name, ...matchers)}[${span(this.windowMs(name, at))}])`;
  }
}
