// SPDX-License-Identifier: Apache-2.0
//! What a chart shows at one moment: specified by series, assembled from tracks. Pure.

import type { Series } from "../api";
import { type Column, type Gaps, HistogramTrack, NumberTrack, type Track, align } from "../series";

export interface LineSpec {
  label: string;
  /** Series texts. */
  inputs: string[];
  /** From the values of the inputs at one time; without it the only input is shown as it is. */
  combine?: (values: number[]) => number;
  /** It combines to a quotient, of which the least and greatest of one input say nothing. */
  isQuotient?: true;
  /** A custom property such as `--mode-user`; without it the line's place decides. */
  colour?: string;
}

export interface ChartSpec {
  id: string;
  title: string;
  /** Besides the title: labels. */
  detail?: string;
  /** `rows`: one row of colour for each line, for more lines than can be told apart. */
  kind: "lines" | "stack" | "rows" | "histogram";
  unit: string;
  perSecond: boolean;
  /** Greatest value of the axis, where it is known. */
  top?: number;
  /** All series that lines refer to. */
  series: Series[];
  lines: LineSpec[];
  note?: string;
  removable: boolean;
}

/** What all charts of a board have in common at the moment of drawing. */
export interface Scene {
  from: number;
  to: number;
  tracks: ReadonlyMap<string, Track>;
  gaps: Gaps;
  /** Between two points; shorter gaps are only marked. */
  shownMs: number;
  /** Since when the host gives nothing; null while it does. */
  silentSince: number | null;
  /** The past is still being read. */
  loading: boolean;
  fineness: (spec: ChartSpec) => Fineness;
}

export interface LineData {
  values: Float64Array;
  /** Least and greatest in each point; null where they would say nothing. */
  lows: Float64Array | null;
  highs: Float64Array | null;
}

export interface Frame {
  from: number;
  to: number;
  t: Float64Array;
  lines: LineData[];
  least: number;
  greatest: number;
  columns: Column[];
}

export function emptyFrame(from: number, to: number, lines: number): Frame {
  const none = new Float64Array(0);
  return { from, to, t: none, lines: Array.from({ length: lines }, () => ({ values: none, lows: null, highs: null })), least: 0, greatest: 0, columns: [] };
}

/** More bands than this would hide each other. */
const MAX_BANDS = 4;

/** `breaks` tells between which times no value may be carried. */
export function assemble(spec: ChartSpec, tracks: ReadonlyMap<string, Track>, from: number, to: number, breaks: (t0: number, t1: number) => boolean): Frame {
  const frame = emptyFrame(from, to, spec.lines.length);
  if (spec.kind === "histogram") {
    const track = tracks.get(spec.lines[0]?.inputs[0] ?? "");
    if (track instanceof HistogramTrack) frame.columns = track.columns.filter(({ t }) => t >= from && t <= to);
    return frame;
  }
  const names = [...new Set(spec.lines.flatMap((line) => line.inputs))].filter((name) => tracks.get(name) instanceof NumberTrack);
  const place = new Map(names.map((name, i) => [name, i]));
  const bands = spec.kind === "lines" && spec.lines.length <= MAX_BANDS && spec.lines.every((line) => line.combine === undefined);
  const got = align(names.map((name) => tracks.get(name) as NumberTrack), from, to, bands);
  frame.t = got.t;
  if (spec.kind === "stack" || spec.lines.some((line) => line.combine !== undefined)) for (const values of got.values) hold(got.t, values, breaks);
  frame.lines = spec.lines.map((line) => {
    const inputs = line.inputs.map((name) => place.get(name)).filter((i) => i !== undefined);
    const [only] = inputs;
    if (line.combine === undefined) {
      if (only === undefined) return { values: new Float64Array(got.t.length).fill(NaN), lows: null, highs: null };
      return { values: got.values[only]!, lows: bands ? got.lows[only]! : null, highs: bands ? got.highs[only]! : null };
    }
    return { values: combined(line.combine, inputs.length < line.inputs.length ? [] : inputs.map((i) => got.values[i]!), got.t.length), lows: null, highs: null };
  });
  if (spec.kind === "stack") stack(frame.lines);
  findExtent(frame);
  return frame;
}

/** Values that are calculated with one another must be there at the same times: each holds until its next. */
function hold(t: Float64Array, values: Float64Array, breaks: (t0: number, t1: number) => boolean): void {
  let last = -1;
  for (let i = 0; i < values.length; i++) {
    if (!Number.isNaN(values[i]!)) last = i;
    else if (last >= 0 && !breaks(t[last]!, t[i]!)) values[i] = values[last]!;
  }
}

function combined(combine: (values: number[]) => number, inputs: Float64Array[], length: number): Float64Array {
  const out = new Float64Array(length).fill(NaN);
  if (inputs.length === 0) return out;
  const values = new Array<number>(inputs.length).fill(0);
  for (let at = 0; at < length; at++) {
    for (let i = 0; i < inputs.length; i++) values[i] = inputs[i]![at]!;
    out[at] = combine(values);
  }
  return out;
}

/** Each line onto those before it. */
function stack(lines: LineData[]): void {
  for (let k = 1; k < lines.length; k++) {
    const below = lines[k - 1]!.values;
    lines[k]!.values = lines[k]!.values.map((value, i) => value + below[i]!);
  }
}

/** The value of one line itself, not of the stack up to it. */
export function ownValue(spec: ChartSpec, frame: Frame, line: number, at: number): number {
  const value = frame.lines[line]?.values[at] ?? NaN;
  return spec.kind === "stack" && line > 0 ? value - (frame.lines[line - 1]!.values[at] ?? NaN) : value;
}

function findExtent(frame: Frame): void {
  let least = Infinity;
  let greatest = -Infinity;
  for (const line of frame.lines) {
    for (const value of line.highs ?? line.values) if (value > greatest) greatest = value;
    for (const value of line.lows ?? line.values) if (value < least) least = value;
  }
  frame.least = least === Infinity ? 0 : least;
  frame.greatest = greatest === -Infinity ? 0 : greatest;
}

/** The point of the axis nearest to `t`, -1 if there is none. */
export function nearest(times: Float64Array, t: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! < t) low = middle + 1;
    else high = middle;
  }
  if (low === 0) return times.length === 0 ? -1 : 0;
  if (low === times.length) return low - 1;
  return t - times[low - 1]! <= times[low]! - t ? low - 1 : low;
}

/** What the reader must know about how fine the values are. */
export interface Fineness {
  /** Between two readings. */
  intervalMs: number;
  /** Between two points shown. */
  shownMs: number;
  /** Coarsest resolution of the chart's series. */
  resolutionMs: number;
  /** The value moves more coarsely than points are shown: lines are steps. */
  stepped: boolean;
  /** A counter's steps make its rate uncertain by this share of one second per second; 0 where that is less than 1 %. */
  rateError: number;
}

export function fineness(spec: ChartSpec, intervalMs: number, shownMs: number): Fineness {
  const resolutionMs = Math.max(0, ...spec.series.map((item) => item.resolution_ms));
  const shown = Math.max(intervalMs, shownMs);
  const counters = spec.series.some((item) => item.type === "counter");
  const error = resolutionMs / Math.max(shown, resolutionMs, 1);
  return {
    intervalMs,
    shownMs: shown,
    resolutionMs,
    stepped: resolutionMs > shown * 1.5,
    // Time counted in ticks is off by up to one tick; other counters only say when they are updated.
    rateError: counters && spec.series.every((item) => item.unit === "seconds") && error >= 0.01 && resolutionMs <= shown ? error : 0,
  };
}
