// SPDX-License-Identifier: Apache-2.0
//! What becomes of the answers to a panel's queries: lines of a chart, figures with their state. Pure.

import type { ChartSpec } from "../charts/frame";
import { count } from "../format";
import type { Point, Result } from "../promql";
import { type Drawing, MAX_LINES, type Unit, differing, seriesText, trackOf } from "../query/result";
import type { Panel, Target, Threshold } from "./dashboard";
import type { Scaled } from "./units";

export interface Answered {
  target: Target;
  result: Result;
}

type Labels = Record<string, string>;

/** `{{name}}` stands for a label's value. */
const legendOf = (format: string, labels: Labels): string => format.replace(/\{\{\s*([\w.]+)\s*\}\}/g, (_, name: string) => labels[name] ?? "").trim();

interface Line {
  key: string;
  label: string;
  points: Point[];
}

/** All series, named so that they can be told apart. */
export function linesOf(answers: readonly Answered[]): Line[] {
  return answers.flatMap(({ target, result }) => {
    const own = differing(result.series);
    return result.series.map(({ labels, points }) => {
      const short = own.filter((name) => labels[name] !== undefined).map((name) => (name === "__name__" ? labels[name]! : `${name} ${labels[name]!}`)).join(" ");
      const whole = seriesText(labels);
      const unnamed = result.series.length > 1 ? short : whole === "{}" ? target.expression : whole;
      return { key: `${target.ref} ${whole}`, label: legendOf(target.legend, labels) || unnamed || "without these labels", points };
    });
  });
}

const scaledPoint = (point: Point, scale: number): Point => ("value" in point ? { ...point, value: point.value * scale } : point);

/** The unit in which values are shown: that of the panel, or what its query has. */
export const shownUnit = (panel: Panel, plain: Unit): Scaled => panel.unit ?? { ...plain, scale: 1 };

export function panelDrawing(panel: Panel, answers: readonly Answered[], stepMs: number, unit: Scaled, heightPx: number): Drawing {
  const all = linesOf(answers);
  const shown = all.slice(0, MAX_LINES);
  let [odd, histograms] = [0, 0];
  const tracks = new Map(shown.map(({ key, points }) => {
    const { track, left } = trackOf(key, points.map((point) => scaledPoint(point, unit.scale)), stepMs);
    odd += left.odd;
    histograms += left.histograms;
    return [key, track];
  }));
  const left: string[] = [];
  if (all.length > MAX_LINES) left.push(`The first ${MAX_LINES} of ${count(all.length)} series are drawn.`);
  if (odd > 0) left.push(`${count(odd)} values are not finite and not drawn.`);
  if (histograms > 0) left.push(`${count(histograms)} values are native histograms and not drawn.`);
  const spec: ChartSpec = {
    id: panel.path.join("-"), title: panel.title || "Chart", kind: panel.isStacked ? "stack" : "lines", unit: unit.unit, perSecond: unit.perSecond,
    ...(panel.max === null ? {} : { top: panel.max * unit.scale }),
    series: [], lines: shown.map(({ key, label }) => ({ label, inputs: [key] })), removable: false, heightPx,
  };
  return { spec, tracks, left };
}

export interface Figure {
  label: string;
  /** In the unit shown; NaN: there is none. */
  value: number;
  state: State;
  /** Of a meter; null: there is none. */
  share: number | null;
}

export type State = "" | "good" | "warn" | "bad";

/** Figures beyond this are not read. */
export const MAX_FIGURES = 24;

export function figuresOf(panel: Panel, answers: readonly Answered[], unit: Scaled): { figures: Figure[]; left: number } {
  const all = linesOf(answers);
  const figures = all.slice(0, MAX_FIGURES).map(({ label, points }) => {
    const raw = calculated(panel.calculation, points);
    return { label, value: raw * unit.scale, state: stateOf(raw, panel.thresholds), share: shareOf(panel, raw, unit) };
  });
  return { figures, left: all.length - figures.length };
}

/** Values that need no more than the last moment. */
export const isOfEnd = (calculation: string): boolean => ["lastNotNull", "last", ""].includes(calculation);

export function calculated(calculation: string, points: readonly Point[]): number {
  const values = points.flatMap((point) => ("value" in point && !Number.isNaN(point.value) ? [point.value] : []));
  const [first = NaN] = values;
  const last = values.at(-1) ?? NaN;
  if (values.length === 0) return calculation === "count" ? 0 : NaN;
  const total = values.reduce((sum, value) => sum + value, 0);
  switch (calculation) {
    case "mean": return total / values.length;
    case "sum": return total;
    case "min": return values.reduce((least, value) => Math.min(least, value));
    case "max": return values.reduce((most, value) => Math.max(most, value));
    case "range": return values.reduce((most, value) => Math.max(most, value)) - values.reduce((least, value) => Math.min(least, value));
    case "count": return values.length;
    case "first": case "firstNotNull": return first;
    case "delta": case "diff": return last - first;
    default: return last;
  }
}

/** By its colour in Grafana; others than those of a traffic light say nothing. */
function stateOf(value: number, thresholds: readonly Threshold[]): State {
  const colour = thresholds.findLast(({ from }) => value >= from)?.colour ?? "";
  return /red/.test(colour) ? "bad" : /orange|yellow/.test(colour) ? "warn" : /green/.test(colour) && thresholds.length > 1 ? "good" : "";
}

function shareOf(panel: Panel, value: number, unit: Scaled): number | null {
  if (panel.type !== "gauge" && panel.type !== "bargauge") return null;
  const most = panel.max ?? (unit.unit === "share" ? 1 / unit.scale : null);
  const least = panel.min ?? 0;
  return most === null || !(most > least) || Number.isNaN(value) ? null : (value - least) / (most - least);
}
