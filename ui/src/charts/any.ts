// SPDX-License-Identifier: Apache-2.0
//! Charts of any series: one metric each, as a search finds it or a program publishes it. Pure.

import type { Series } from "../api";
import type { ChartSpec } from "./frame";

/** Lines that one chart has at most. */
export const MAX_LINES = 16;

/** What to search for, so that `programs` finds its series. */
export const PROGRAM_SEARCH = "program=";
/** A page shows the beginning of what programs publish; search finds the rest. */
const MAX_PROGRAM_CHARTS = 6;
const PROGRAM_RANK: Record<Series["type"], number> = { histogram: 0, counter: 1, gauge: 2, info: 3 };

/** A chart for each metric that programs publish by themselves, one name once: histograms first, then counters, then gauges, and of these the first of each region before the second. */
export function programs(series: Series[], known: ReadonlySet<string>): { specs: ChartSpec[]; left: number } {
  const own = series.filter((item) => item.labels["program"] !== undefined && item.labels["program"] !== "onlooker-agent" && item.type !== "info");
  const firsts = [...new Map(own.map((item) => [item.name, item])).values()];
  const turn = (item: Series): number => firsts.filter((other) => other.region === item.region && other.type === item.type && other.name < item.name).length;
  firsts.sort((a, b) => PROGRAM_RANK[a.type] - PROGRAM_RANK[b.type] || turn(a) - turn(b) || (a.name < b.name ? -1 : 1));
  const names = firsts.map((item) => item.name);
  const specs = names.slice(0, MAX_PROGRAM_CHARTS).map((name) => chartOf(own.filter((item) => item.name === name), `program-${name}`, known));
  return { specs, left: names.length - specs.length };
}

/** Labels without names: what tells series of one name apart. */
export function shortLabel(item: Series): string {
  const labels = Object.values(item.labels);
  return labels.length === 0 ? item.name : labels.join(" ");
}

/** One chart of one series, or of several that share a name. `known`: labels that need not be told, since all of the page has them. */
export function chartOf(found: Series[], id: string, known: ReadonlySet<string> = new Set()): ChartSpec {
  const [first] = found;
  if (first === undefined) throw new Error("a chart needs a series");
  const shown = found.slice(0, first.type === "histogram" ? 1 : MAX_LINES);
  const single = shown.length === 1;
  const isCommon = (name: string): boolean => shown.every((item) => item.labels[name] === first.labels[name]);
  const common = Object.entries(first.labels).filter(([name]) => isCommon(name) && !known.has(name)).map(([name, value]) => `${name}=${value}`);
  // CPU time each second is cores; other time each second is a share of it.
  const cores = first.type === "counter" && first.unit === "seconds" && /cpu_/.test(first.name) && !first.name.includes("pressure");
  const unit = cores ? "in cores" : first.unit === "" ? "" : first.type === "counter" ? (first.unit === "seconds" ? "share of time" : `${first.unit}/s`) : `in ${first.unit}`;
  const own = (item: Series): string => Object.entries(item.labels).filter(([name]) => !isCommon(name)).map(([name, value]) => `${name} ${value}`).join(" ");
  return {
    id,
    title: first.name,
    detail: [unit, single ? "" : `${shown.length} series`, ...common].filter((part) => part !== "").join(" · "),
    kind: first.type === "histogram" ? "histogram" : "lines",
    unit: cores ? "cores" : first.unit,
    perSecond: first.type === "counter" && !cores,
    series: shown,
    lines: shown.map((item) => ({ label: single ? (first.type === "counter" ? "rate" : "value") : own(item), inputs: [item.series] })),
    ...(found.length > shown.length ? { note: `${found.length - shown.length} more series have no place in one chart: search for them one by one.` } : {}),
    removable: true,
  };
}
