// SPDX-License-Identifier: Apache-2.0
//! What a chart shows at one moment: specified by series, assembled from tracks. Pure.

import type { Series } from "../api";
import type { Gaps } from "../gaps";
import type { InvalidSamples } from "../invalid";
import { type Aligned, type Column, HistogramTrack, NumberTrack, type Track, align } from "../series";
import type { Span } from "../view";
import type { Sources } from "./query";

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
  /** The same in PromQL, where lines are calculated. */
  query?: (from: Sources) => string;
  /** Of the plot; without it as all of a host's page. */
  heightPx?: number;
}

/** What all charts of a board have in common at the moment of drawing. */
export interface Scene extends Span {
  tracks: ReadonlyMap<string, Track>;
  gaps: Gaps;
  /** Of the host, where somebody has read them. */
  invalid?: InvalidSamples;
  /** Since when the host gives nothing; null while it does. */
  silentSince: number | null;
  /** The past is still being read. */
  loading: boolean;
  fineness: (spec: ChartSpec) => Fineness;
  /** Its time moves under somebody's hand, and nothing else is other than before. */
  isMoving?: boolean;
}

export interface LineData {
  values: Float64Array;
  /** Least and greatest in each point; null where they would say nothing. */
  lows: Float64Array | null;
  highs: Float64Array | null;
}

export interface Peak {
  tops: Float64Array;
  feet: Float64Array;
}

export interface Frame {
  from: number;
  to: number;
  t: Float64Array;
  lines: LineData[];
  least: number;
  greatest: number;
  /** What bursts between two points reached, for all lines together, and what it stands on; null where nothing did, or each line has its own band. */
  peak: Peak | null;
  columns: Column[];
}

export function emptyFrame(from: number, to: number, lines: number): Frame {
  const none = new Float64Array(0);
  return { from, to, t: none, lines: Array.from({ length: lines }, () => ({ values: none, lows: null, highs: null })), least: 0, greatest: 0, peak: null, columns: [] };
}

/** More bands than this would hide each other: then one line tells what any of them reached. */
export const MAX_BANDS = 4;
/** A peak that exceeds what is drawn by less than this share of the greatest value is not worth ink. */
const PEAK_SHARE = 0.02;

/** `breaks` tells between which times no value may be carried; `hidden` are places of lines. */
export function assemble(spec: ChartSpec, tracks: ReadonlyMap<string, Track>, from: number, to: number, breaks: (t0: number, t1: number) => boolean, hidden: ReadonlySet<number> = new Set()): Frame {
  const frame = emptyFrame(from, to, spec.lines.length);
  if (spec.kind === "histogram") {
    const track = tracks.get(spec.lines[0]?.inputs[0] ?? "");
    if (track instanceof HistogramTrack) frame.columns = track.columns.filter(({ t }) => t >= from && t <= to);
    return frame;
  }
  const lines = spec.lines.filter((_, i) => !hidden.has(i));
  const names = [...new Set(lines.flatMap((line) => line.inputs))].filter((name) => tracks.get(name) instanceof NumberTrack);
  const found = names.map((name) => tracks.get(name) as NumberTrack);
  const place = new Map(names.map((name, i) => [name, i]));
  const bands = found.some((track) => track.hasBand);
  const got = align(found, from, to, bands);
  frame.t = got.t;
  if (spec.kind === "stack" || spec.lines.some((line) => line.combine !== undefined)) for (const values of [...got.values, ...got.lows, ...got.highs]) hold(got.t, values, breaks);
  frame.lines = spec.lines.map((line, i) => {
    const inputs = line.inputs.map((name) => place.get(name)).filter((at) => at !== undefined);
    if (hidden.has(i) || inputs.length < line.inputs.length || inputs.length === 0) return { values: new Float64Array(got.t.length).fill(NaN), lows: null, highs: null };
    return lineOf(line, got, inputs, bands);
  });
  let tops: Float64Array | null = null;
  if (bands && spec.kind === "stack" && found.every((track) => track.type === "counter")) tops = withBursts(frame.lines, spec.top);
  if (spec.kind === "stack") stack(frame.lines, hidden);
  else if (bands && (spec.kind === "rows" || lines.length > MAX_BANDS)) tops = greatestOf(frame.lines.map((line) => line.highs));
  if (tops !== null) frame.peak = { tops, feet: greatestOf(frame.lines.map((line) => line.values))! };
  findExtent(frame, spec);
  if (frame.peak?.tops.some((_, at) => stands(frame, at)) !== true) frame.peak = null;
  return frame;
}

function lineOf({ combine, isQuotient }: LineSpec, got: Aligned, inputs: number[], bands: boolean): LineData {
  const pick = (arrays: Float64Array[]): Float64Array[] => inputs.map((at) => arrays[at]!);
  const values = pick(got.values);
  if (combine === undefined) return { values: values[0]!, lows: bands ? pick(got.lows)[0]! : null, highs: bands ? pick(got.highs)[0]! : null };
  const line: LineData = { values: combined(combine, values), lows: null, highs: null };
  if (bands && isQuotient !== true) addBand(line, combine, values, pick(got.lows), pick(got.highs));
  return line;
}

/** How far the line reaches if one of its inputs has its least or greatest value while the others have their own: whether bursts of several came together nobody knows. */
function addBand(line: LineData, combine: (values: number[]) => number, values: Float64Array[], lows: Float64Array[], highs: Float64Array[]): void {
  // Of more than two inputs only sums are shown: each counts as much as it does alone.
  const weights = values.length <= 2 ? null : values.map((_, k) => combine(values.map((_, j) => Number(j === k))));
  const row = new Array<number>(values.length).fill(0);
  const [least, most] = [line.values.slice(), line.values.slice()];
  for (let at = 0; at < least.length; at++) {
    for (let i = 0; i < row.length; i++) row[i] = values[i]![at]!;
    for (let k = 0; k < row.length; k++) {
      const own = row[k]!;
      for (const edges of [lows, highs]) {
        const edge = edges[k]![at]!;
        if (weights === null) row[k] = edge;
        const value = weights === null ? combine(row) : line.values[at]! + weights[k]! * (edge - own);
        if (value < least[at]!) least[at] = value;
        if (value > most[at]!) most[at] = value;
      }
      row[k] = own;
    }
  }
  line.lows = least;
  line.highs = most;
}

/** Values that are calculated with one another must be there at the same times: each holds until its next. */
function hold(t: Float64Array, values: Float64Array, breaks: (t0: number, t1: number) => boolean): void {
  let last = -1;
  for (let i = 0; i < values.length; i++) {
    if (!Number.isNaN(values[i]!)) last = i;
    else if (last >= 0 && !breaks(t[last]!, t[i]!)) values[i] = values[last]!;
  }
}

function combined(combine: (values: number[]) => number, inputs: Float64Array[]): Float64Array {
  const values = new Array<number>(inputs.length).fill(0);
  return inputs[0]!.map((_, at) => {
    for (let i = 0; i < inputs.length; i++) values[i] = inputs[i]![at]!;
    return combine(values);
  });
}

/** Each line onto those before it; one that is hidden stays empty. */
function stack(lines: LineData[], hidden: ReadonlySet<number>): void {
  let below: Float64Array | null = null;
  lines.forEach((line, k) => {
    if (hidden.has(k)) return;
    const base = below;
    if (base !== null) line.values = line.values.map((value, i) => value + base[i]!);
    below = line.values;
  });
}

/** The total, and on top the greatest burst of a line. */
function withBursts(lines: LineData[], top = Infinity): Float64Array {
  return lines[0]!.values.map((_, at) => {
    let [total, rise] = [NaN, 0];
    for (const { values, highs } of lines) {
      if (Number.isNaN(values[at]!)) continue;
      total = (total || 0) + values[at]!;
      rise = Math.max(rise, (highs?.[at] ?? 0) - values[at]! || 0);
    }
    return Math.min(total + rise, top);
  });
}

/** At each point; NaN where no line has one, null without lines. */
function greatestOf(lines: (Float64Array | null)[]): Float64Array | null {
  const all = lines.filter((values) => values !== null);
  return all.length === 0 ? null : all[0]!.map((_, i) => all.reduce((most, values) => (values[i]! > most || Number.isNaN(most) ? values[i]! : most), NaN));
}

/** Whether the peak is seen above what is drawn. */
export const stands = ({ peak, greatest }: Frame, at: number): boolean => peak !== null && peak.tops[at]! - peak.feet[at]! > PEAK_SHARE * greatest;

/** The value of one line itself, not of the stack up to it. */
export function ownValue(spec: ChartSpec, frame: Frame, line: number, at: number): number {
  const value = frame.lines[line]?.values[at] ?? NaN;
  if (spec.kind !== "stack") return value;
  for (let below = line - 1; below >= 0; below--) {
    const base = frame.lines[below]!.values[at]!;
    if (!Number.isNaN(base)) return value - base;
  }
  return value;
}

/** Least, mean and greatest of what is shown of a line; NaN without points. */
export function extremes(spec: ChartSpec, frame: Frame, line: number): { least: number; mean: number; greatest: number } {
  const { lows, highs } = frame.lines[line]!;
  let [least, greatest, sum, count] = [Infinity, -Infinity, 0, 0];
  for (let i = 0; i < frame.t.length; i++) {
    const value = frame.t[i]! < frame.from || frame.t[i]! > frame.to ? NaN : ownValue(spec, frame, line, i);
    if (Number.isNaN(value)) continue;
    sum += value;
    count++;
    least = Math.min(least, lows?.[i] ?? value);
    greatest = Math.max(greatest, highs?.[i] ?? value);
  }
  return count === 0 ? { least: NaN, mean: NaN, greatest: NaN } : { least, mean: sum / count, greatest };
}

function findExtent(frame: Frame, spec: ChartSpec): void {
  let least = Infinity;
  let greatest = -Infinity;
  const own = spec.kind !== "stack";
  for (const line of frame.lines) {
    for (const value of (own ? line.highs : null) ?? line.values) if (value > greatest) greatest = value;
    for (const value of (own ? line.lows : null) ?? line.values) if (value < least) least = value;
  }
  for (const value of frame.peak?.tops ?? []) if (value > greatest) greatest = value;
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
  /** Between two readings; 0 where values are none that were read. */
  intervalMs: number;
  /** Between two points shown. */
  shownMs: number;
  /** Coarsest resolution of the chart's series. */
  resolutionMs: number;
  /** The value moves more coarsely than points are shown: lines are steps. */
  stepped: boolean;
  /** A counter's steps make its rate uncertain by this share of one second per second; 0 where that is less than 1 %. */
  rateError: number;
  /** There is a value at each point shown, or there was none: where one is missing the line breaks. */
  isExact?: true;
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
