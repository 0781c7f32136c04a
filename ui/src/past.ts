// SPDX-License-Identifier: Apache-2.0
//! What a fixed view shows: read by `range`, only for charts on the screen, a little beyond the view's edges. What was there before stays until the new has come.
//!
//! Memory: one track a series, of at most `MAX_POINTS`. A view that changes quickly is read once it rests; a request for a view that is gone is aborted.

import { type Range, type Series, getRange } from "./api";
import { now } from "./clock";
import { sentence } from "./format";
import { Gaps } from "./gaps";
import { HistogramTrack, NumberTrack, type Track } from "./series";
import type { Span } from "./view";

const SETTLE_MS = 150;
/** Of the view's width, at each side: so far it can be panned without a request. */
const MARGIN = 0.3;
/** The controller's limit of a request. */
const MAX_POINTS = 5000;
const MIN_WIDTH_PX = 200;
/** A view that is narrower than this share of what was read wants finer points. */
const FINER_SHARE = 0.7;
/** Rows come so long after their time at most, where all is well: later a view's end is complete. */
const TAIL_MS = 3000;
const RETRY_MS = 3000;

/** What is read now. */
interface Target extends Span {
  view: Span;
  points: number;
  askedAt: number;
}

export interface PastEvents {
  /** Something is to be drawn anew. */
  changed: () => void;
  /** Null: all is well again. */
  problem: (message: string | null) => void;
}

export class Past {
  /** By series; of series that are not read yet those of the view before. */
  readonly tracks = new Map<string, Track>();
  gaps = new Gaps();
  private readonly distances = new Map<string, number>();
  private readonly versions = new Map<string, number>();
  private version = 0;
  private target: Target | null = null;
  private wanted: { span: Span; widthPx: number } | null = null;
  /** The coarsest bucket of what came of this target; 0: rows as they are, null: nothing yet. */
  private coarsest: number | null = null;
  private abort = new AbortController();
  private isBusy = false;
  private failed = false;
  private notBefore = 0;
  private settling: number | undefined;
  private tail: number | undefined;

  constructor(
    private readonly host: string,
    private readonly events: PastEvents,
  ) {}

  /** Begins with what a live view has shown. */
  begin(tracks: ReadonlyMap<string, Track>, gaps: Gaps, distanceMs: number): void {
    this.stop();
    this.tracks.clear();
    this.distances.clear();
    for (const [name, track] of tracks) {
      this.tracks.set(name, track);
      this.distances.set(name, distanceMs);
    }
    this.gaps = gaps;
  }

  /** Reads no more; what is there stays. */
  stop(): void {
    clearTimeout(this.settling);
    clearTimeout(this.tail);
    this.settling = undefined;
    this.abort.abort();
    this.target = this.wanted = null;
    this.isBusy = false;
  }

  aim(span: Span, widthPx: number): void {
    const isFirst = this.wanted === null;
    this.wanted = { span, widthPx: Math.max(MIN_WIDTH_PX, widthPx) };
    clearTimeout(this.settling);
    this.settling = undefined;
    if (isFirst) this.retarget();
    else if (!this.suffices(span)) this.settling = setTimeout(() => this.retarget(), SETTLE_MS);
  }

  get isAimed(): boolean {
    return this.wanted !== null;
  }

  /** Whether rows may still come that belong into the view. */
  get isOpenEnded(): boolean {
    return this.target !== null && this.target.askedAt < this.target.view.to + TAIL_MS;
  }

  get isReading(): boolean {
    return this.isBusy || this.settling !== undefined || (this.target !== null && this.coarsest === null);
  }

  /** Between two points of a series; null before it was read. */
  distance(name: string): number | null {
    return this.distances.get(name) ?? null;
  }

  /** Called with the series of the charts on the screen, as often as there are frames. */
  need(series: Series[]): void {
    if (this.isBusy || this.target === null || performance.now() < this.notBefore) return;
    // Several charts may show one series.
    const missing = new Map(series.filter((item) => this.versions.get(item.series) !== this.version).map((item) => [item.series, item]));
    if (missing.size > 0) void this.load([...missing.values()], this.target);
  }

  keep(names: ReadonlySet<string>): void {
    for (const name of [...this.tracks.keys()].filter((name) => !names.has(name))) {
      this.tracks.delete(name);
      this.distances.delete(name);
      this.versions.delete(name);
    }
  }

  private suffices(span: Span): boolean {
    const { target } = this;
    if (target === null) return false;
    const completeTo = Math.max(target.view.to, Math.min(target.to, target.askedAt - TAIL_MS));
    const isFine = this.coarsest === 0 || span.to - span.from >= FINER_SHARE * (target.view.to - target.view.from);
    return isFine && span.from >= target.from && span.to <= completeTo;
  }

  private retarget(): void {
    this.settling = undefined;
    if (this.wanted === null) return;
    const { span, widthPx } = this.wanted;
    const askedAt = now();
    const margin = MARGIN * (span.to - span.from);
    this.abort.abort();
    this.abort = new AbortController();
    this.isBusy = false;
    this.version++;
    this.coarsest = null;
    this.target = { from: span.from - margin, to: Math.min(span.to + margin, Math.max(askedAt, span.to)), view: span, points: Math.min(MAX_POINTS, Math.ceil(widthPx * (1 + 2 * MARGIN))), askedAt };
    clearTimeout(this.tail);
    if (this.isOpenEnded) this.tail = setTimeout(() => this.retarget(), span.to + TAIL_MS - askedAt);
    this.events.changed();
  }

  private async load(series: Series[], target: Target): Promise<void> {
    const { signal } = this.abort;
    this.isBusy = true;
    try {
      const range = await getRange(this.host, series.map((item) => item.series), { from_ms: target.from, to_ms: target.to, points: target.points }, signal);
      signal.throwIfAborted();
      this.take(range, series);
      if (this.failed) this.events.problem(null);
      this.failed = false;
    } catch (error) {
      if (signal.aborted) return;
      this.failed = true;
      this.notBefore = performance.now() + RETRY_MS;
      this.events.problem(`This time cannot be read. ${sentence(error instanceof Error ? error.message : String(error))} Trying again.`);
    }
    this.isBusy = false;
    this.events.changed();
  }

  private take(range: Range, series: Series[]): void {
    this.coarsest = Math.max(this.coarsest ?? 0, range.bucket_ms);
    this.gaps = new Gaps();
    this.gaps.addAll(range.gaps);
    const asked = new Map(series.map((item) => [item.series, item]));
    for (const item of range.series) {
      const distance = Math.max(range.bucket_ms, middleDistance(item.t_ms));
      this.distances.set(item.series, distance);
      const division = { capacity: Math.max(1, item.t_ms.length), joinMs: 0 };
      if (item.type === "histogram") {
        const track = new HistogramTrack(division);
        track.fill(item, (t0, t1) => this.gaps.between(t0, t1, distance));
        this.tracks.set(item.series, track);
      } else {
        const track = new NumberTrack(item.type === "counter" ? "counter" : "gauge", division, asked.get(item.series)?.resolution_ms ?? 0);
        track.fill(item, range.bucket_ms);
        this.tracks.set(item.series, track);
      }
    }
    // A series without an answer has nothing there.
    for (const name of asked.keys()) this.versions.set(name, this.version);
  }
}

const SAMPLES = 65;

/** Between points, of a sample of them: where rows are gone there are points of rollups, whatever the bucket. */
function middleDistance(times: number[]): number {
  const step = Math.max(1, Math.floor(times.length / SAMPLES));
  const distances: number[] = [];
  for (let i = 1; i < times.length; i += step) distances.push(times[i]! - times[i - 1]!);
  distances.sort((a, b) => a - b);
  return distances[distances.length >> 1] ?? 0;
}
