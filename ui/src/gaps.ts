// SPDX-License-Identifier: Apache-2.0
//! The gaps of one host over time. Pure. A day of late readings has thousands, and each line of each chart asks at each point: so a question costs O(log n).

import type { Gap } from "./api";

export type GapKind = "host" | "reader";

/** Reasons that say nothing about the watched host: the controller or this page was late, stood still or did not keep what came (docs/troubleshooting.md#gaps). */
const OF_READER = ["late", "behind", "over_quota", "stopped", "controller_down", "store_behind", "clock_step", "damaged", "device"];
/** This page's own word. */
export const SKIPPED = "rows skipped, this page was too slow; reading them again";

export function kindOf(reason: string): GapKind {
  return OF_READER.includes(reason) || reason === SKIPPED ? "reader" : "host";
}

/** Gaps in the order of their beginning, with the latest end so far: gaps of different reasons may lie in one another. */
class Sorted {
  readonly latest: Float64Array;

  constructor(readonly items: Gap[]) {
    this.latest = new Float64Array(items.length);
    items.forEach((gap, i) => (this.latest[i] = Math.max(gap.to_ms, this.latest[i - 1] ?? -Infinity)));
  }

  /** How many begin before `t`. */
  begunBefore(t: number): number {
    return firstFrom(this.items.length, (i) => this.items[i]!.from_ms >= t);
  }

  /** The first that may go on after `t`. */
  lastsBeyond(t: number): number {
    return firstFrom(this.items.length, (i) => this.latest[i]! > t);
  }
}

/** The first index of which `holds`, which holds of all behind it. */
function firstFrom(length: number, holds: (i: number) => boolean): number {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

export class Gaps {
  private sorted = new Sorted([]);
  /** Those of at least so many ms. */
  private readonly holes = new Map<number, Sorted>();

  get all(): readonly Gap[] {
    return this.sorted.items;
  }

  add(gap: Gap): void {
    this.addAll([gap]);
  }

  /** Those of one reason that overlap or touch are one: a gap that grew is told again. */
  addAll(gaps: readonly Gap[]): void {
    const all = [...this.sorted.items, ...gaps.filter((gap) => gap.to_ms > gap.from_ms)];
    all.sort((a, b) => a.from_ms - b.from_ms);
    const last = new Map<string, Gap>();
    const items: Gap[] = [];
    for (const gap of all) {
      const before = last.get(gap.reason);
      if (before !== undefined && gap.from_ms <= before.to_ms) before.to_ms = Math.max(before.to_ms, gap.to_ms);
      else {
        const own = { ...gap };
        items.push(own);
        last.set(gap.reason, own);
      }
    }
    this.set(items);
  }

  /** Whether a line from `t0` to `t1` would bridge a gap of at least `shortestMs`. */
  between(t0: number, t1: number, shortestMs = 0): boolean {
    let holes = this.holes.get(shortestMs);
    if (holes === undefined) {
      holes = new Sorted(this.all.filter((gap) => gap.to_ms - gap.from_ms >= shortestMs));
      this.holes.set(shortestMs, holes);
    }
    const begun = holes.begunBefore(t1);
    return begun > 0 && holes.latest[begun - 1]! > t0;
  }

  /** Those of which some part lies between the two times. */
  within(from: number, to: number): Gap[] {
    return this.sorted.items.slice(this.sorted.lastsBeyond(from), this.sorted.begunBefore(to)).filter((gap) => gap.to_ms > from);
  }

  /** Forgets what ended before `t`. */
  prune(t: number): void {
    if (this.all.some((gap) => gap.to_ms < t)) this.set(this.all.filter((gap) => gap.to_ms >= t));
  }

  private set(items: Gap[]): void {
    this.sorted = new Sorted(items);
    this.holes.clear();
  }
}
