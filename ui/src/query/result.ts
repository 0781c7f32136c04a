// SPDX-License-Identifier: Apache-2.0
//! What becomes of an answer: step, names and unit of its lines, why there may be none. Pure.

import type { ChartSpec } from "../charts/frame";
import { count, moment } from "../format";
import { type Point, type Result, quote } from "../promql";
import { NumberTrack } from "../series";
import type { Limits, Span } from "../view";
import type { Metric } from "./complete";
import { callsOf, metricsOf } from "./typed";

/** Lines of a chart: more cannot be told apart. */
export const MAX_LINES = 100;
/** Series that are asked for: of a chart so many have room in an answer, of a table so many can be sorted. */
export const MAX_SERIES = { chart: 500, table: 10_000 };
export type Shape = keyof typeof MAX_SERIES;

const MAX_STEPS = 500;
const SECOND = 1000;
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400].map((s) => s * SECOND)];

export interface Steps {
  fromMs: number;
  toMs: number;
  stepMs: number;
}

/** At most some 500 steps, at multiples of their length: what is asked again a little later has the same ones. */
export function stepsOf({ from, to }: Span): Steps {
  const stepMs = STEPS.find((step) => (to - from) / step <= MAX_STEPS) ?? Math.ceil((to - from) / MAX_STEPS);
  const fromMs = Math.ceil(from / stepMs) * stepMs;
  return { fromMs, toMs: Math.max(fromMs, Math.floor(to / stepMs) * stepMs), stepMs };
}

/** As Prometheus writes a series. */
export function seriesText(labels: Record<string, string>): string {
  const { __name__: name = "", ...others } = labels;
  const matchers = Object.entries(others).sort(([a], [b]) => (a < b ? -1 : 1)).map(([label, value]) => `${label}=${quote(value)}`).join(", ");
  return matchers === "" && name !== "" ? name : `${name}{${matchers}}`;
}

/** Names of labels that not all series have alike, the metric's first. */
export function differing(all: readonly { labels: Record<string, string> }[]): string[] {
  const names = [...new Set(all.flatMap(({ labels }) => Object.keys(labels)))].sort((a, b) => Number(b === "__name__") - Number(a === "__name__") || (a < b ? -1 : 1));
  return names.filter((name) => all.some(({ labels }) => labels[name] !== all[0]!.labels[name]));
}

export interface Unit {
  unit: string;
  perSecond: boolean;
}

const KEEPS_UNIT = new Set(["sum", "avg", "min", "max", "topk", "bottomk", "quantile", "avg_over_time", "min_over_time", "max_over_time", "last_over_time", "first_over_time", "quantile_over_time", "sort", "sort_desc", "increase", "delta", "abs"]);
const PER_SECOND = new Set(["rate", "irate", "deriv"]);

/** The unit of values, where it is plain: one metric with a unit, which nothing is calculated with. */
export function unitOf(query: string, metrics: ReadonlyMap<string, Metric>): Unit {
  const none = { unit: "", perSecond: false };
  const names = metricsOf(query);
  const { functions, operators } = callsOf(query);
  const rates = functions.filter((name) => PER_SECOND.has(name)).length;
  if (names.length !== 1 || operators.length > 0 || rates > 1 || functions.some((name) => !KEEPS_UNIT.has(name) && !PER_SECOND.has(name))) return none;
  const unit = metrics.get(names[0]!)?.unit ?? "";
  return unit === "" ? none : { unit, perSecond: rates === 1 };
}

export interface Drawing {
  spec: ChartSpec;
  tracks: Map<string, NumberTrack>;
  /** What is not drawn, in words. */
  left: string[];
}

/** What can be drawn of points, and how many of them cannot. */
export function trackOf(key: string, points: readonly Point[], stepMs: number): { track: NumberTrack; left: { odd: number; histograms: number } } {
  const track = new NumberTrack("gauge", { capacity: MAX_STEPS + 2, joinMs: 0 }, 0);
  const floats = points.filter((point) => "value" in point);
  const finite = floats.filter(({ value }) => Number.isFinite(value));
  track.fill({ series: key, type: "gauge", t_ms: finite.map(({ t_ms }) => t_ms), last: finite.map(({ value }) => value), min: [], max: [], rate: [], rate_min: [], rate_max: [], bounds: [], counts: [] }, stepMs);
  return { track, left: { odd: floats.length - finite.length, histograms: points.length - floats.length } };
}

/** What a chart draws of a range. */
export function drawingOf(result: Result, query: string, stepMs: number, unit: Unit): Drawing {
  const shown = result.series.slice(0, MAX_LINES);
  const own = differing(shown);
  const [first] = shown;
  const label = (labels: Record<string, string>): string => own.filter((name) => labels[name] !== undefined).map((name) => (name === "__name__" ? labels[name]! : `${name} ${labels[name]!}`)).join(" ");
  const lines = shown.map(({ labels }) => ({ key: seriesText(labels), label: (shown.length === 1 ? seriesText(labels) : label(labels)) || "without these labels" }));
  let [odd, histograms] = [0, 0];
  const tracks = new Map(shown.map(({ points }, i) => {
    const { track, left: undrawn } = trackOf(lines[i]!.key, points, stepMs);
    odd += undrawn.odd;
    histograms += undrawn.histograms;
    return [lines[i]!.key, track];
  }));
  const common = Object.entries(first?.labels ?? {}).filter(([name]) => !own.includes(name) && name !== "__name__").map(([name, value]) => `${name}=${value}`);
  const left: string[] = [];
  if (result.series.length > MAX_LINES) left.push(`The chart has the first ${MAX_LINES} of ${seriesCount(result, "chart")}. topk(${MAX_LINES}, …) finds the greatest at each step; sum by (…) (…) adds up.`);
  if (odd > 0) left.push(`${count(odd)} values are not finite (NaN, +Inf, -Inf) and not drawn. The table shows them.`);
  if (histograms > 0) left.push(`${count(histograms)} values are native histograms and not drawn: histogram_quantile(0.99, …) makes numbers of them.`);
  const spec: ChartSpec = {
    id: "query", title: first?.labels["__name__"] !== undefined && !own.includes("__name__") ? first.labels["__name__"] : query.replace(/\s+/g, " "), kind: "lines", ...unit,
    ...(shown.length > 1 && common.length > 0 ? { detail: common.join(" · ") } : {}),
    series: [], lines: lines.map(({ key, label: text }) => ({ label: text, inputs: [key] })), removable: false,
  };
  return { spec, tracks, left };
}

/** As many as there are, or as were asked for. */
export function seriesCount({ series }: Result, shape: Shape): string {
  return `${count(series.length)}${series.length >= MAX_SERIES[shape] ? " or more" : ""} series`;
}

/** Why an answer is empty where that is known, else why it may be. */
export function whyEmpty(query: string, metrics: ReadonlyMap<string, Metric>, { to }: Span, { oldest, now }: Limits): string[] {
  const { functions, operators } = callsOf(query);
  const absent = metrics.size === 0 ? [] : metricsOf(query).filter((name) => !metrics.has(name));
  if (absent.length > 0) return absent.map((name) => `No series of the store is called ${name}.`);
  const why: string[] = [];
  if (oldest !== null && to <= oldest) why.push(`The store begins at ${moment(oldest, now)}, after the time shown.`);
  if (query.includes("{")) why.push("No series may match the braces: type a label to see its values.");
  if (functions.some((name) => PER_SECOND.has(name) || ["increase", "delta", "idelta"].includes(name))) why.push("A rate needs two samples within its brackets: tables as those of processes have one every 5 s, what the controller says of itself one every 10 s.");
  if (operators.some((sign) => /^([<>]|[=!<>]=)$/.test(sign))) why.push("A comparison leaves out what does not hold; with bool it gives 0 or 1.");
  if (operators.some((sign) => /^([-+*/%^]|atan2|and|unless)$/.test(sign))) why.push("Both sides of an operator must have the same labels: on (…) or ignoring (…) says which ones count.");
  why.push("Hosts that are not read, and processes that have gone, have no values at such a time.");
  return why;
}
