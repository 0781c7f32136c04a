// SPDX-License-Identifier: Apache-2.0
//! The charts of one host on one time axis: owns tracks and gaps, fills them from `range`, keeps them going by `live`, and decides which chart is drawn when.
//!
//! Drawing: each chart is due once a step (a pixel's worth of time, at least 100 ms); in each animation frame the charts that waited longest are drawn until the
//! frame's budget is used up. So a frame stays short however many charts there are, and all show the same window.

import { type Gap, type HostState, type LiveOpen, type Range, type Series, getRange, liveEvents } from "./api";
import { Chart } from "./charts/chart";
import { type ChartSpec, type Scene, fineness } from "./charts/frame";
import { now } from "./clock";
import { Live, type LiveState, affordable } from "./live";
import { LIVE_EVERY_MS, type TimeWindow } from "./ranges";
import { Gaps, HistogramTrack, NumberTrack, type Track, division } from "./series";
import { reducedMotion } from "./theme";

const FRAME_BUDGET_MS = 6;
/** What the browser does with what was drawn comes after; a frame that came late shows that it was too much, and then one chart a frame has to do. */
const MAX_PER_FRAME = 2;
const LATE_FRAME_MS = 25;
const MIN_STEP_MS = 100;
const MAX_STEP_MS = 1000;
const REDUCED_STEP_MS = 1000;
const RELOAD_AFTER_MS = 1000;
const RELOAD_EVERY_MS = 10_000;
const OPEN_PATIENCE_MS = 3000;
const SCROLL_PATIENCE_MS = 200;
/** Rows that arrive while `range` is being read. */
const MAX_PENDING = 1000;

export interface BoardEvents {
  live: (state: LiveState) => void;
  /** Null: all is well again. */
  problem: (message: string | null) => void;
  /** The host's state or interval changed. */
  host: () => void;
}

interface Entry {
  series: Series;
  track: Track;
  /** Rows that wait for `range`; null once that has been read. */
  pending: [number, unknown][] | null;
}

export class Board {
  readonly charts: Chart[] = [];
  paused = false;
  state: HostState = "connecting";
  intervalMs = LIVE_EVERY_MS;
  /** Time of the newest value seen, by stream or by the list of hosts. */
  newestMs = NaN;
  private readonly entries = new Map<string, Entry>();
  private readonly tracks = new Map<string, Track>();
  private readonly gaps = new Gaps();
  private live: Live | null = null;
  private followed: string[] = [];
  private wasLost = false;
  private readonly unread = new Set<string>();
  private unreadTimer: number | undefined;
  private lastRowT = NaN;
  private skippedFrom = NaN;
  private reconcileQueued = false;
  private reloadTimer: number | undefined;
  private reloadedAt = -Infinity;
  private abort = new AbortController();
  private frameRequest = 0;
  private frozenAt = 0;
  private lastFrame = 0;
  /** Requests for the past under way. */
  private loads = 0;
  private readonly cursorKey = `board-${Math.random().toString(36).slice(2)}`;

  constructor(
    private readonly host: string,
    public window: TimeWindow,
    private readonly element: HTMLElement,
    private readonly events: BoardEvents,
  ) {
    this.frameRequest = requestAnimationFrame(this.onFrame);
  }

  /** Its values are read once it is on the screen. */
  add(spec: ChartSpec, onRemove: (() => void) | null, element = this.element): Chart {
    const chart = new Chart(spec, this.cursorKey, onRemove);
    chart.onSight = () => this.queueReconcile();
    this.charts.push(chart);
    element.append(chart.element);
    return chart;
  }

  /** The time that is shown, where that is not now. */
  get frozenMs(): number | null {
    return this.paused ? this.frozenAt : null;
  }

  remove(chart: Chart): void {
    this.charts.splice(this.charts.indexOf(chart), 1);
    chart.destroy();
    this.queueReconcile();
  }

  setWindow(window: TimeWindow): void {
    this.window = window;
    this.paused = false;
    this.reload();
  }

  setPaused(paused: boolean): void {
    this.paused = paused;
    this.frozenAt = this.edge();
    if (!paused) for (const chart of this.charts) chart.drawnAt = -Infinity;
  }

  /** Nothing comes any more: streams are closed, what is shown stays as it is. */
  end(): void {
    this.abort.abort();
    clearTimeout(this.reloadTimer);
    clearTimeout(this.unreadTimer);
    this.live?.close();
    this.setPaused(true);
  }

  /** Since when the host gives nothing; null while it does. */
  silentSince(): number | null {
    if (Number.isNaN(this.newestMs)) return null;
    const age = now() - this.newestMs;
    const patience = this.state === "reading" ? Math.max(3000, 10 * this.intervalMs) : 1000;
    return age > patience ? this.newestMs : null;
  }

  /** What the list of hosts says. */
  setHost(state: HostState, intervalMs: number, ageMs: number | null): void {
    this.state = state;
    this.intervalMs = intervalMs;
    if (ageMs !== null) this.sawValue(now() - ageMs);
  }

  /** Reads the whole window anew; what is shown stays until that has come. */
  reload(): void {
    this.abort.abort();
    this.abort = new AbortController();
    for (const [name, entry] of this.entries) this.put(name, entry.series);
    for (const chart of this.charts) chart.drawnAt = -Infinity;
    this.unread.clear();
    void this.load([...this.entries.keys()], true);
  }

  destroy(): void {
    cancelAnimationFrame(this.frameRequest);
    clearTimeout(this.reloadTimer);
    clearTimeout(this.unreadTimer);
    this.abort.abort();
    this.live?.close();
    for (const chart of this.charts) chart.destroy();
  }

  // --- which series -----------------------------------------------------------------------------------------------------------------------

  /** Several charts come onto the screen in one go, more so while somebody scrolls: follow their series once. */
  private queueReconcile(): void {
    if (this.reconcileQueued) return;
    this.reconcileQueued = true;
    setTimeout(() => {
      this.reconcileQueued = false;
      this.reconcile();
    }, this.followed.length === 0 ? 0 : SCROLL_PATIENCE_MS);
  }

  private reconcile(): void {
    if (this.abort.signal.aborted) return;
    const seriesOf = (charts: Chart[]): Map<string, Series> => new Map(charts.flatMap((chart) => chart.spec.series.map((item) => [item.series, item])));
    const seen = this.charts.filter((chart) => chart.seen);
    // Where not all can be followed, those on the screen are.
    const wanted = seriesOf([...seen.filter((chart) => chart.visible), ...seen.filter((chart) => !chart.visible)]);
    const names = affordable([...wanted.keys()]);
    const left = seriesOf(seen.filter((chart) => chart.visible)).size - names.length;
    this.events.problem(left > 0 ? `${left} series are not shown: more than one page can follow. Remove a chart.` : null);
    for (const name of [...this.entries.keys()].filter((name) => !names.includes(name))) {
      this.entries.delete(name);
      this.tracks.delete(name);
    }
    const fresh = names.filter((name) => !this.entries.has(name));
    for (const name of fresh) this.put(name, wanted.get(name)!);
    for (const name of fresh) this.unread.add(name);
    if (names.length !== this.followed.length || names.some((name) => !this.followed.includes(name))) this.follow(names);
    clearTimeout(this.unreadTimer);
    this.unreadTimer = setTimeout(() => this.loadUnread(), OPEN_PATIENCE_MS);
  }

  private put(name: string, series: Series): void {
    const resolved = division(this.window.ms, Math.max(this.window.bucketMs, this.intervalMs), LIVE_EVERY_MS);
    const track = series.type === "histogram" ? new HistogramTrack(resolved) : new NumberTrack(series.type === "counter" ? "counter" : "gauge", resolved, series.resolution_ms);
    this.entries.set(name, { series, track, pending: [] });
    if (!this.tracks.has(name)) this.tracks.set(name, track);
  }

  /** The past is read once the stream stands, so that no hole is left between the two; or without it, if it does not come to stand. */
  private loadUnread(): void {
    clearTimeout(this.unreadTimer);
    const names = [...this.unread].filter((name) => this.entries.has(name));
    this.unread.clear();
    if (names.length > 0) void this.load(names);
  }

  private async load(names: string[], anew = false): Promise<void> {
    const { signal } = this.abort;
    const asked = now();
    const to = asked + 1000;
    this.loads++;
    try {
      const range = await getRange(this.host, names, { from_ms: to - this.window.ms * 1.05 - 1000, to_ms: to, points: Math.ceil((this.window.ms / this.window.bucketMs) * 1.1) }, signal);
      signal.throwIfAborted();
      // The store's word on gaps replaces what this page thought, except on what happened meanwhile.
      if (anew) this.gaps.prune(asked);
      this.take(range);
    } catch (error) {
      if (!signal.aborted) this.events.problem(`The past is missing: ${error instanceof Error ? error.message : String(error)}`);
    }
    this.loads--;
    if (!signal.aborted) for (const name of names) this.release(name);
  }

  private take(range: Range): void {
    for (const gap of range.gaps) this.gaps.add(gap);
    for (const item of range.series) {
      const track = this.entries.get(item.series)?.track;
      if (track instanceof HistogramTrack) track.fill(item, this.isBroken);
      else track?.fill(item, range.bucket_ms);
      if (track !== undefined) this.sawValue(track.newest);
    }
  }

  /** Rows that waited go in after the past. */
  private release(name: string): void {
    const entry = this.entries.get(name);
    if (entry?.pending == null) return;
    const rows = entry.pending;
    entry.pending = null;
    this.tracks.set(name, entry.track);
    for (const [t, value] of rows) put(entry.track, t, value);
  }

  // --- values as they come ----------------------------------------------------------------------------------------------------------------

  private follow(names: string[]): void {
    this.followed = names;
    const before = this.live;
    this.live = names.length === 0 ? null : new Live(this.host, names, LIVE_EVERY_MS, {
      opened: (info) => {
        before?.close();
        this.opened(info);
      },
      row: (t, series, values) => this.row(t, series, values),
      gap: (gap) => this.gap(gap),
      host: (state) => {
        this.state = state;
        this.events.host();
      },
      skipped: () => this.skipped(),
      state: (state) => {
        if (state === "lost") this.wasLost = true;
        // While a stream is only exchanged for another, the old one still gives values.
        if (state !== "connecting" || before === null) this.events.live(state);
      },
      failed: (error) => this.events.problem(error.message),
    });
    if (this.live === null) before?.close();
  }

  private opened(info: LiveOpen): void {
    this.intervalMs = info.interval_ms;
    this.events.host();
    // Streams that come late have left a hole, too.
    if (this.wasLost) this.reload();
    else this.loadUnread();
    this.wasLost = false;
  }

  private row(t: number, series: string[], values: unknown[]): void {
    // Without a gap the store may well have what did not come here. What is sampled seldom comes as seldom.
    if (t - this.lastRowT > 3 * Math.max(this.intervalMs, LIVE_EVERY_MS, this.finestMs) && !this.gaps.between(this.lastRowT, t)) this.reloadSoon();
    if (!(t <= this.lastRowT)) this.lastRowT = t;
    if (!Number.isNaN(this.skippedFrom)) {
      this.gaps.add({ from_ms: this.skippedFrom, to_ms: t, reason: "rows skipped, this page was too slow; reading them again" });
      this.skippedFrom = NaN;
    }
    this.sawValue(t);
    for (let i = 0; i < series.length; i++) {
      const entry = this.entries.get(series[i]!);
      const value = values[i];
      if (entry === undefined || value === null || value === undefined) continue;
      if (entry.pending === null) put(entry.track, t, value);
      else if (entry.pending.length < MAX_PENDING) entry.pending.push([t, value]);
    }
  }

  private gap(gap: Gap): void {
    this.gaps.add(gap);
    for (const track of this.tracks.values()) track.miss(gap.from_ms, gap.to_ms);
  }

  /** Between two points that are shown. A gap that is shorter is marked, but takes no point away. */
  private get shownMs(): number {
    return Math.max(this.window.bucketMs, LIVE_EVERY_MS, this.intervalMs);
  }

  private readonly isBroken = (t0: number, t1: number): boolean => this.gaps.between(t0, t1, this.shownMs);

  /** The series that is acquired most often has a new value this often. */
  private get finestMs(): number {
    let finest = Infinity;
    for (const { series } of this.entries.values()) finest = Math.min(finest, series.resolution_ms);
    return Number.isFinite(finest) ? finest : 0;
  }

  private skipped(): void {
    this.skippedFrom = this.lastRowT;
    this.reloadSoon();
  }

  /** Once for many holes, and not so often that reading again is what makes this page slow. */
  private reloadSoon(): void {
    if (this.reloadTimer !== undefined) return;
    const wait = Math.max(RELOAD_AFTER_MS, this.reloadedAt + RELOAD_EVERY_MS - performance.now());
    this.reloadTimer = setTimeout(() => {
      this.reloadTimer = undefined;
      this.reloadedAt = performance.now();
      this.reload();
    }, wait);
  }

  private sawValue(t: number): void {
    if (!(t <= this.newestMs) && t > -Infinity) this.newestMs = t;
  }

  // --- drawing ----------------------------------------------------------------------------------------------------------------------------

  private step(): number {
    const width = this.charts[0]?.width ?? 600;
    const pixel = this.window.ms / Math.max(200, width);
    return Math.min(MAX_STEP_MS, Math.max(MIN_STEP_MS, pixel, reducedMotion.matches ? REDUCED_STEP_MS : 0));
  }

  private edge(): number {
    const step = this.step();
    return Math.floor(now() / step) * step;
  }

  private readonly onFrame = (at: number): void => {
    const atMost = at - this.lastFrame > LATE_FRAME_MS ? 1 : MAX_PER_FRAME;
    this.lastFrame = at;
    this.frameRequest = requestAnimationFrame(this.onFrame);
    const to = this.paused ? this.frozenAt : this.edge();
    const due = this.charts.filter((chart) => chart.visible && chart.width > 0 && chart.drawnAt < to);
    if (due.length === 0) return;
    due.sort((a, b) => a.drawnAt - b.drawnAt);
    this.gaps.prune(to - 2 * this.window.ms);
    const scene: Scene = { from: to - this.window.ms, to, tracks: this.tracks, gaps: this.gaps, shownMs: this.shownMs, silentSince: this.silentSince(), loading: this.unread.size > 0 || this.loads > 0, fineness: this.fineness };
    const began = performance.now();
    for (const chart of due.slice(0, atMost)) {
      chart.draw(scene);
      chart.drawnAt = to;
      if (performance.now() - began > FRAME_BUDGET_MS) break;
    }
  };

  private readonly fineness = (spec: ChartSpec) => fineness(spec, this.intervalMs, Math.max(this.window.bucketMs, LIVE_EVERY_MS));
}

function put(track: Track, t: number, value: unknown): void {
  if (track instanceof HistogramTrack) track.add(t, liveEvents.histogram(value));
  else if (typeof value === "number") track.add(t, value);
}
