// SPDX-License-Identifier: Apache-2.0
//! Values over time, in memory: rings of numbers, counters turned into rates. Pure: no DOM, no clock, no network.
//!
//! A track belongs to one series and one time window. `fill` writes what `range` gave, `add` what `live` gives; charts read. Times are ms since 1970 UTC at which
//! values were acquired, and ascend strictly. Cost: one row is O(1); memory is 4 doubles for each point of the window.

import type { HistogramValue, RangeSeries } from "./api";

/** The newest `capacity` points; the oldest goes when a new one comes. Index 0 is the oldest. */
export class Ring {
  private readonly t: Float64Array;
  private readonly v: Float64Array;
  private readonly lo: Float64Array;
  private readonly hi: Float64Array;
  private start = 0;
  length = 0;

  constructor(readonly capacity: number) {
    this.t = new Float64Array(capacity);
    this.v = new Float64Array(capacity);
    this.lo = new Float64Array(capacity);
    this.hi = new Float64Array(capacity);
  }

  push(t: number, value: number, low: number, high: number): void {
    let at = this.start + this.length;
    if (at >= this.capacity) at -= this.capacity;
    if (this.length === this.capacity) this.start = (this.start + 1) % this.capacity;
    else this.length++;
    this.write(at, t, value, low, high);
  }

  /** Replaces the newest point. */
  amend(t: number, value: number, low: number, high: number): void {
    this.write(this.slot(this.length - 1), t, value, low, high);
  }

  clear(): void {
    this.start = 0;
    this.length = 0;
  }

  time(index: number): number {
    return this.t[this.slot(index)]!;
  }
  value(index: number): number {
    return this.v[this.slot(index)]!;
  }
  low(index: number): number {
    return this.lo[this.slot(index)]!;
  }
  high(index: number): number {
    return this.hi[this.slot(index)]!;
  }

  /** Index of the first point at or after `t`; `length` if there is none. */
  lowerBound(t: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time(middle) < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private slot(index: number): number {
    const at = this.start + index;
    return at >= this.capacity ? at - this.capacity : at;
  }

  private write(at: number, t: number, value: number, low: number, high: number): void {
    this.t[at] = t;
    this.v[at] = value;
    this.lo[at] = low;
    this.hi[at] = high;
  }
}

/** How a track divides time: rows closer than `joinMs` to the first of a point go into that point; 0 makes each row a point. */
export interface Division {
  capacity: number;
  joinMs: number;
}

/** Points of `bucketMs` from rows that come every `everyMs`: half a row's distance of slack, so that jitter neither doubles nor loses points. */
export function division(windowMs: number, bucketMs: number, everyMs: number): Division {
  const distance = Math.max(bucketMs, everyMs);
  return { capacity: Math.ceil((windowMs / distance) * 1.5) + 64, joinMs: bucketMs > 1.5 * everyMs ? bucketMs - everyMs / 2 : 0 };
}

/** Of the time between two rows: if more than this was missed, it is the gap's time and not the values' own, and there is no rate over it. As crates/series/src/rate.rs has it; test/rates.test.ts holds the two together. */
const MAX_MISSING = 2 / 3;

/** Gaps of one track that are kept apart until a row comes. */
const MAX_GAPS = 64;

/** What a track has missed since its last row. */
class Missing {
  /** Apart from each other, in the order in which they were told. */
  private gaps: { from: number; to: number }[] = [];
  /** Of those that were too many, ms. */
  private older = 0;

  /** A gap that goes on is told again as it grows. */
  add(from: number, to: number): void {
    const whole = { from, to };
    const apart = this.gaps.filter((gap) => {
      if (gap.to < from || to < gap.from) return true;
      whole.from = Math.min(whole.from, gap.from);
      whole.to = Math.max(whole.to, gap.to);
      return false;
    });
    this.gaps = [...apart, whole];
    if (this.gaps.length > MAX_GAPS) {
      const first = this.gaps.shift()!;
      this.older += first.to - first.from;
    }
  }

  /** Whether the time between two rows is a gap's. What lies behind the later row counts to the next one. */
  take(from: number, to: number): boolean {
    const within = (gap: { from: number; to: number }): number => Math.max(0, Math.min(gap.to, to) - Math.max(gap.from, from));
    const missed = this.gaps.reduce((sum, gap) => sum + within(gap), this.older);
    this.gaps = this.gaps.filter((gap) => gap.to > to);
    this.older = 0;
    return missed > MAX_MISSING * (to - from);
  }
}

/** A gauge (values as they are, with least and greatest of each point) or a counter (rate per second). */
export class NumberTrack {
  readonly ring: Ring;
  private lastT = -Infinity;
  private lastV = NaN;
  /** Gauge: when the newest point was opened. */
  private openedT = -Infinity;
  /** Counter: whether the newest point still takes rows. */
  private isOpen = false;
  /** Whether any point has a least or greatest value of its own. */
  hasBand = false;
  /** Counter: growth since the track began, resets taken into account; at the last row, and at the end of the point before (the base of the rate). */
  private grown = 0;
  private baseGrown = 0;
  private baseT = NaN;
  /** Counter: the newest row that a rate of its own ends with, for least and greatest; rows nearer than the resolution have none. */
  private rowT = NaN;
  private rowGrown = 0;
  private readonly missing = new Missing();

  constructor(
    readonly type: "counter" | "gauge",
    private readonly division: Division,
    /** A counter that moves only so often has no rate over less than that. */
    private readonly resolutionMs: number,
  ) {
    this.ring = new Ring(division.capacity);
  }

  get newest(): number {
    return this.lastT;
  }

  /** Takes one row. Rows that are not newer than what is there are dropped: streams may overlap. */
  add(t: number, value: number): void {
    if (!(t > this.lastT) || Number.isNaN(value)) return;
    if (this.missing.take(this.lastT, t)) this.cut();
    if (this.type === "counter") this.addCounter(t, value);
    else this.addGauge(t, value);
    this.lastT = t;
    this.lastV = value;
  }

  /** Nothing is known of this time. */
  miss(from: number, to: number): void {
    this.missing.add(from, to);
  }

  /** Takes what `range` gave; begins again. Where the controller gives no rate, there is none. */
  fill(from: RangeSeries, bucketMs: number): void {
    this.ring.clear();
    this.hasBand = false;
    this.lastT = -Infinity;
    this.missing.take(-Infinity, Infinity);
    this.cut();
    const count = from.t_ms.length;
    const distance = bucketMs > 0 || count < 2 ? bucketMs : (from.t_ms[count - 1]! - from.t_ms[0]!) / (count - 1);
    const ratesMeanSomething = from.rate.length > 0 && this.resolutionMs <= distance;
    for (let i = 0; i < count; i++) {
      const t = from.t_ms[i]!;
      const last = from.last[i] ?? NaN;
      if (!(t > this.lastT) || Number.isNaN(last)) continue;
      if (this.type === "gauge") {
        this.push(t, last, from.min[i] ?? last, from.max[i] ?? last);
      } else if (ratesMeanSomething) {
        const rate = from.rate[i] ?? NaN;
        if (!Number.isNaN(rate)) this.push(t, rate, from.rate_min[i] ?? rate, from.rate_max[i] ?? rate);
        this.setBase(t);
      } else {
        if (from.rate[i] === null) this.cut();
        this.addCounter(t, last);
      }
      this.lastT = t;
      this.lastV = last;
    }
  }

  /** A gap: no rate may span it. */
  cut(): void {
    this.lastV = NaN;
    this.openedT = -Infinity;
    this.isOpen = false;
  }

  private push(t: number, value: number, low: number, high: number): void {
    this.ring.push(t, value, low, high);
    if (low < high) this.hasBand = true;
  }

  /** The newest point goes on to `t`, and has seen `own`; NaN: nothing of its own. */
  private widen(t: number, value: number, own: number): void {
    const newest = this.ring.length - 1;
    let [low, high] = [this.ring.low(newest), this.ring.high(newest)];
    if (own < low) low = own;
    if (own > high) high = own;
    this.ring.amend(t, value, low, high);
    if (low < high) this.hasBand = true;
  }

  private setBase(t: number): void {
    this.baseT = this.rowT = t;
    this.baseGrown = this.rowGrown = this.grown;
    this.isOpen = false;
  }

  private addGauge(t: number, value: number): void {
    if (t - this.openedT < this.division.joinMs && this.ring.length > 0) {
      this.widen(t, value, value);
    } else {
      this.push(t, value, value, value);
      this.openedT = t;
    }
  }

  private addCounter(t: number, value: number): void {
    if (Number.isNaN(this.lastV)) {
      this.setBase(t);
      return;
    }
    const shortest = 0.99 * this.resolutionMs;
    if (this.isOpen && this.lastT - this.baseT >= Math.max(this.division.joinMs, shortest)) this.setBase(this.lastT);
    // A counter that went down was set to zero, and has grown since to what it shows.
    this.grown += value >= this.lastV ? value - this.lastV : value;
    const rate = ((this.grown - this.baseGrown) / (t - this.baseT)) * 1000;
    let own = NaN;
    if (t - this.rowT >= shortest) {
      own = ((this.grown - this.rowGrown) / (t - this.rowT)) * 1000;
      this.rowT = t;
      this.rowGrown = this.grown;
    } else if (!this.isOpen) return;
    if (this.isOpen) this.widen(t, rate, own);
    else this.push(t, rate, own, own);
    this.isOpen = true;
  }
}

/** New observations of one point in time, by bucket. `lows[i] < x <= highs[i]`; the last `highs` may be Infinity. */
export interface Column {
  t: number;
  lows: Float64Array;
  highs: Float64Array;
  counts: Float64Array;
}

/** A histogram: what came new with each point. */
export class HistogramTrack {
  readonly type = "histogram";
  /** Ascending in time, at most `capacity`. */
  readonly columns: Column[] = [];
  private lastT = -Infinity;
  private before: Map<number, number> | null = null;
  private openedT = -Infinity;
  private readonly missing = new Missing();

  constructor(private readonly division: Division) {}

  get newest(): number {
    return this.lastT;
  }

  /** Nothing is known of this time. */
  miss(from: number, to: number): void {
    this.missing.add(from, to);
  }

  add(t: number, value: HistogramValue): void {
    if (!(t > this.lastT)) return;
    if (this.missing.take(this.lastT, t)) this.cut();
    const now = new Map<number, number>();
    value.bounds.forEach((bound, i) => now.set(bound ?? Infinity, value.counts[i] ?? 0));
    const before = this.before;
    this.before = now;
    this.lastT = t;
    if (before === null) return;
    const wasReset = [...before].some(([bound, count]) => (now.get(bound) ?? 0) < count);
    const fresh = new Map<number, number>();
    for (const [bound, count] of now) fresh.set(bound, wasReset ? count : count - (before.get(bound) ?? 0));
    const newest = this.columns.at(-1);
    if (newest !== undefined && t - this.openedT < this.division.joinMs) {
      newest.highs.forEach((bound, i) => fresh.set(bound, (fresh.get(bound) ?? 0) + newest.counts[i]!));
      this.columns[this.columns.length - 1] = column(t, fresh);
    } else {
      this.push(column(t, fresh));
      this.openedT = t;
    }
  }

  /** What was counted during a gap came at nobody knows which time of it: the point after it is left out. */
  fill(from: RangeSeries, breaks: (t0: number, t1: number) => boolean = () => false): void {
    this.columns.length = 0;
    this.cut();
    this.lastT = -Infinity;
    from.t_ms.forEach((t, i) => {
      const counts = from.counts[i];
      if (counts == null || !(t > this.lastT)) return;
      if (!breaks(this.lastT, t)) this.push(column(t, new Map(from.bounds.map((bound, k) => [bound ?? Infinity, counts[k] ?? 0]))));
      this.lastT = t;
    });
  }

  cut(): void {
    this.before = null;
    this.openedT = -Infinity;
  }

  private push(item: Column): void {
    this.columns.push(item);
    if (this.columns.length > this.division.capacity) this.columns.shift();
  }
}

/** Only upper bounds are told, of buckets that are not empty; so a bucket is drawn down to the bound before, but over no more than one octave. */
function column(t: number, counts: Map<number, number>): Column {
  const highs = Float64Array.from(counts.keys()).sort();
  const lows = highs.map((high, i) => {
    const before = i === 0 ? 0 : highs[i - 1]!;
    return high === Infinity ? before : Math.max(before, high / 2);
  });
  return { t, lows, highs, counts: highs.map((high) => counts.get(high) ?? 0) };
}

/** The bucket's upper bound below which the share `q` of a column's observations lies; NaN of an empty column. */
export function quantile(item: Column, q: number): number {
  const total = item.counts.reduce((sum, count) => sum + count, 0);
  let seen = 0;
  for (let i = 0; i < item.counts.length; i++) {
    seen += item.counts[i]!;
    if (total > 0 && seen >= q * total) return item.highs[i]!;
  }
  return NaN;
}

export type Track = NumberTrack | HistogramTrack;

/** Tracks on a common time axis. NaN: this track has no point at this time. */
export interface Aligned {
  t: Float64Array;
  values: Float64Array[];
  lows: Float64Array[];
  highs: Float64Array[];
}

/** The points of `tracks` between `from` and `to`, and one before, so that lines reach the edge; least and greatest values only with `bounds`. */
export function align(tracks: NumberTrack[], from: number, to: number, bounds: boolean): Aligned {
  const starts = tracks.map(({ ring }) => Math.max(0, ring.lowerBound(from) - 1));
  const ends = tracks.map(({ ring }) => Math.min(ring.length, ring.lowerBound(to) + 1));
  const t = commonTimes(tracks, starts, ends);
  const blank = (): Float64Array => new Float64Array(t.length).fill(NaN);
  const out: Aligned = { t, values: tracks.map(blank), lows: bounds ? tracks.map(blank) : [], highs: bounds ? tracks.map(blank) : [] };
  tracks.forEach(({ ring }, k) => {
    let at = 0;
    for (let i = starts[k]!; i < ends[k]!; i++) {
      const time = ring.time(i);
      while (t[at]! < time) at++;
      out.values[k]![at] = ring.value(i);
      if (!bounds) continue;
      out.lows[k]![at] = ring.low(i);
      out.highs[k]![at] = ring.high(i);
    }
  });
  return out;
}

/** All times at which any track has a point, ascending, once each. Mostly all tracks agree, which costs one comparison a point. */
function commonTimes(tracks: NumberTrack[], starts: number[], ends: number[]): Float64Array {
  const longest = ends.reduce((best, end, k) => (end - starts[k]! > ends[best]! - starts[best]! ? k : best), 0);
  const first = tracks[longest];
  if (first === undefined) return new Float64Array(0);
  const times = Float64Array.from({ length: ends[longest]! - starts[longest]! }, (_, i) => first.ring.time(starts[longest]! + i));
  const extra: number[] = [];
  tracks.forEach(({ ring }, k) => {
    let at = 0;
    for (let i = starts[k]!; i < ends[k]!; i++) {
      const time = ring.time(i);
      while (at < times.length && times[at]! < time) at++;
      if (times[at] !== time) extra.push(time);
    }
  });
  if (extra.length === 0) return times;
  const all = new Float64Array(times.length + extra.length);
  all.set(times);
  all.set(extra, times.length);
  all.sort();
  return all.filter((time, i) => i === 0 || time !== all[i - 1]);
}
