// SPDX-License-Identifier: Apache-2.0
//! The charts of one host on one time axis. While the view is live: owns tracks and gaps, fills them from `range` and keeps them going by `live`. What a fixed view
//! shows is `past`'s. Decides which chart is drawn when.
//!
//! Drawing: each chart is due once a step (a pixel's worth of time, at least 100 ms), or when a fixed view or what is known of it changes; in each animation frame
//! the charts that waited longest are drawn until the frame's budget is used up. So a frame stays short however many charts there are, and all show the same time.

import { type Gap, type HostState, type LiveOpen, type Range, type Series, getRange, liveEvents } from "./api";
import { Chart } from "./charts/chart";
import { type ChartSpec, type Fineness, type Scene, fineness } from "./charts/frame";
import type { Navigator } from "./charts/gestures";
import { queryOf } from "./charts/query";
import { now } from "./clock";
import { Gaps, SKIPPED } from "./gaps";
import { InvalidReader } from "./invalid";
import { Live, type LiveState, affordable } from "./live";
import { Past } from "./past";
import { stepsOf } from "./query/result";
import { LIVE_EVERY_MS, type TimeWindow } from "./ranges";
import { HistogramTrack, NumberTrack, type Track, division } from "./series";
import { queryAddress } from "./router";
import { reducedMotion } from "./theme";
import { type Span, type View, spanOf, toParameters } from "./view";

const FRAME_BUDGET_MS = 6;
/** What the browser does with what was drawn comes after; a frame that came late shows that it was too much, and then one chart a frame has to do. */
const MAX_PER_FRAME = 2;
/** While a fixed view moves under the pointer. */
const MAX_PER_FRAME_FIXED = 4;
const LATE_FRAME_MS = 25;
/** A view that has not changed for so long rests. */
const MOVING_MS = 120;
const MIN_STEP_MS = 100;
const MAX_STEP_MS = 1000;
const REDUCED_STEP_MS = 1000;
const RELOAD_AFTER_MS = 1000;
const RELOAD_EVERY_MS = 10_000;
const OPEN_PATIENCE_MS = 3000;
const SCROLL_PATIENCE_MS = 200;
/** Rows that arrive while `range` is being read. */
const MAX_PENDING = 1000;
/** Streams go on so long while a fixed view is shown, so that a look back costs no new beginning; an abandoned page takes no streams from others. */
const REST_AFTER_MS = 60_000;

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
  /** What gestures on charts do. */
  navigator: Navigator | null = null;
  state: HostState = "connecting";
  intervalMs = LIVE_EVERY_MS;
  /** Time of the newest value seen, by stream or by the list of hosts. */
  newestMs = NaN;
  private readonly entries = new Map<string, Entry>();
  readonly tracks = new Map<string, Track>();
  readonly gaps = new Gaps();
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
  /** That of the live tracks. */
  private window: TimeWindow;
  private frameRequest = 0;
  private lastFrame = 0;
  private readonly past: Past;
  /** Of what a fixed view shows. */
  private version = 0;
  /** When the fixed view was changed last. */
  private movedAt = -Infinity;
  /** Streams stand, or shall. */
  private isFollowing: boolean;
  private resting: number | undefined;
  /** Requests for the past under way. */
  private loads = 0;
  private readonly invalid: InvalidReader;
  /** Of the host: how many samples have failed a check, and the labels that all its series have. */
  private invalidCount = 0;
  private hostLabels: Record<string, string> = {};
  private readonly ending = new AbortController();
  private readonly cursorKey = `board-${Math.random().toString(36).slice(2)}`;

  constructor(
    private readonly host: string,
    public view: View,
    private readonly element: HTMLElement,
    private readonly events: BoardEvents,
  ) {
    this.window = view.window;
    this.isFollowing = view.span === null;
    this.past = new Past(host, { changed: () => this.changed(), problem: events.problem });
    this.invalid = new InvalidReader(host, this.ending.signal, () => this.changed());
    this.frameRequest = requestAnimationFrame(this.onFrame);
  }

  /** Its values are read once it is on the screen. */
  add(spec: ChartSpec, onRemove: (() => void) | null, element = this.element): Chart {
    const chart = new Chart(spec, this.cursorKey, () => this.navigator, onRemove);
    chart.onSight = () => this.queueReconcile();
    chart.linkTo(() => this.queryAddressOf(spec));
    this.charts.push(chart);
    element.append(chart.element);
    return chart;
  }

  private queryAddressOf(spec: ChartSpec): string {
    const { stepMs } = stepsOf(this.span);
    return queryAddress(queryOf(spec, this.host, this.intervalMs, stepMs), toParameters(this.view));
  }

  remove(chart: Chart): void {
    this.charts.splice(this.charts.indexOf(chart), 1);
    chart.destroy();
    this.queueReconcile();
  }

  show(view: View): void {
    const wasLive = this.view.span === null;
    this.view = view;
    clearTimeout(this.resting);
    if (view.span === null) {
      const isOther = view.window !== this.window;
      this.window = view.window;
      this.past.stop();
      this.redraw();
      if (!this.isFollowing) this.resume();
      else if (isOther) this.reload();
      return;
    }
    if (wasLive) this.past.begin(this.tracks, this.gaps, this.liveMs);
    else this.movedAt = performance.now();
    this.past.aim(view.span, this.widthPx);
    this.version++;
    this.resting = setTimeout(() => this.rest(), REST_AFTER_MS);
  }

  /** What is on the screen. */
  get span(): Span {
    return this.view.span ?? spanOf(this.view, this.edge());
  }

  /** What is known of a fixed view. */
  get reading(): "reading" | "open-ended" | "complete" {
    return this.past.isReading ? "reading" : this.past.isOpenEnded ? "open-ended" : "complete";
  }

  /** Of a fixed view there are other values. */
  private changed(): void {
    this.version++;
    this.movedAt = -Infinity;
  }

  /** What a drag would select. */
  showSelection(span: Span | null): void {
    for (const chart of this.charts) if (chart.visible) chart.showSelection(span);
  }

  /** All charts are due, as after another zone was chosen. */
  redraw(): void {
    for (const chart of this.charts) chart.drawn = NaN;
  }

  /** Nothing comes any more: streams are closed, what is shown stays as it is. */
  end(): void {
    const { span } = this;
    this.abort.abort();
    this.ending.abort();
    clearTimeout(this.unreadTimer);
    this.rest();
    if (this.view.span === null) this.past.begin(this.tracks, this.gaps, this.liveMs);
    else this.past.stop();
    this.view = { ...this.view, span };
    this.version++;
  }

  private rest(): void {
    clearTimeout(this.resting);
    clearTimeout(this.reloadTimer);
    this.reloadTimer = undefined;
    this.isFollowing = this.wasLost = false;
    this.live?.close();
    this.live = null;
    this.followed = [];
    this.lastRowT = NaN;
  }

  private resume(): void {
    this.isFollowing = true;
    for (const [name, entry] of this.entries) {
      this.put(name, entry.series);
      this.unread.add(name);
    }
    this.reconcile();
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

  /** How many of the host's samples have failed a check so far. */
  setInvalid(count: number, hostLabels: Record<string, string>): void {
    this.invalidCount = count;
    this.hostLabels = hostLabels;
  }

  /** Reads the whole window anew; what is shown stays until that has come. */
  reload(): void {
    this.abort.abort();
    this.abort = new AbortController();
    for (const [name, entry] of this.entries) this.put(name, entry.series);
    this.redraw();
    this.unread.clear();
    void this.load([...this.entries.keys()], true);
  }

  destroy(): void {
    cancelAnimationFrame(this.frameRequest);
    clearTimeout(this.unreadTimer);
    this.abort.abort();
    this.ending.abort();
    this.rest();
    this.past.stop();
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
    this.past.keep(new Set(names));
    if (!this.isFollowing) return;
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
    this.gaps.addAll(range.gaps);
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
      this.gaps.add({ from_ms: this.skippedFrom, to_ms: t, reason: SKIPPED });
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
  private get liveMs(): number {
    return Math.max(this.window.bucketMs, LIVE_EVERY_MS, this.intervalMs);
  }

  private readonly isBroken = (t0: number, t1: number): boolean => this.gaps.between(t0, t1, this.liveMs);

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

  private get widthPx(): number {
    return this.charts.find((chart) => chart.width > 0)?.width ?? 600;
  }

  private edge(): number {
    const pixel = this.window.ms / Math.max(200, this.widthPx);
    const step = Math.min(MAX_STEP_MS, Math.max(MIN_STEP_MS, pixel, reducedMotion.matches ? REDUCED_STEP_MS : 0));
    return Math.floor(now() / step) * step;
  }

  private readonly onFrame = (at: number): void => {
    const isLive = this.view.span === null;
    const atMost = at - this.lastFrame > LATE_FRAME_MS ? 1 : isLive ? MAX_PER_FRAME : MAX_PER_FRAME_FIXED;
    this.lastFrame = at;
    this.frameRequest = requestAnimationFrame(this.onFrame);
    const { span } = this;
    const stamp = isLive ? span.to : this.version;
    const shown = this.charts.filter((chart) => chart.visible && chart.width > 0);
    if (!isLive && !this.past.isAimed && shown.length > 0 && !this.abort.signal.aborted) this.past.aim(span, this.widthPx);
    if (!isLive) this.past.need(shown.flatMap((chart) => chart.spec.series).filter((item) => this.entries.has(item.series)));
    this.invalid.need(span, this.invalidCount, this.hostLabels);
    for (const chart of shown) if (chart.areValuesDue) chart.showValues();
    const due = shown.filter((chart) => chart.drawn !== stamp);
    if (due.length === 0) return;
    // The one under the pointer first: it must follow the hand.
    due.sort((a, b) => Number(b.isHot) - Number(a.isHot) || a.drawnAt - b.drawnAt);
    if (isLive) this.gaps.prune(span.to - 2 * this.window.ms);
    const source = isLive ? this : this.past;
    const loading = isLive ? this.unread.size > 0 || this.loads > 0 : this.past.isReading;
    const scene: Scene = { ...span, tracks: source.tracks, gaps: source.gaps, invalid: this.invalid.samples, silentSince: this.silentSince(), loading, fineness: this.fineness, isMoving: !isLive && performance.now() - this.movedAt < MOVING_MS };
    const began = performance.now();
    for (const chart of due.slice(0, atMost)) {
      chart.draw(scene);
      chart.drawn = stamp;
      chart.drawnAt = at;
      if (performance.now() - began > FRAME_BUDGET_MS) break;
    }
  };

  private readonly fineness = (spec: ChartSpec): Fineness => {
    const distances = this.view.span === null ? [] : spec.series.map((item) => this.past.distance(item.series)).filter((ms) => ms !== null);
    return fineness(spec, this.intervalMs, distances.length === 0 ? this.liveMs : Math.max(...distances));
  };
}

function put(track: Track, t: number, value: unknown): void {
  if (track instanceof HistogramTrack) track.add(t, liveEvents.histogram(value));
  else if (typeof value === "number") track.add(t, value);
}
