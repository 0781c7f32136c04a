// SPDX-License-Identifier: Apache-2.0
//! The query that gives what a chart of a host shows. Pure.

import type { Series } from "../api";
import { rateWindowMs, span } from "../host/subject";
import { anyOf, quote } from "../promql";
import type { ChartSpec } from "./frame";

/** What a chart's own query is made of: a metric of the host, and its rate over a time that fits the chart. */
export interface Sources {
  of: (name: string, ...matchers: string[]) => string;
  rate: (name: string, ...matchers: string[]) => string;
}

/** Several expressions as one, with what each line is called: names of metrics do not survive a rate. */
export const lines = (parts: Record<string, string>): string => {
  const all = Object.entries(parts);
  return all.length === 1 ? all[0]![1] : all.map(([label, expression]) => `label_replace(${expression}, "line", ${quote(label.replaceAll("$", "$$$$"))}, "", "")`).join(" or ");
};

/** In PromQL, over all hosts. `stepMs`: between two points; rates are over no less. */
export function queryOf(spec: ChartSpec, host: string, intervalMs: number, stepMs: number): string {
  const select = (name: string, matchers: string[]): string => `${name}{${[`instance=${quote(host)}`, ...matchers].join(",")}}`;
  const resolutionOf = (series: readonly Series[]): number => Math.max(0, ...series.map((item) => item.resolution_ms));
  const window = (series: readonly Series[]): string => `[${span(Math.max(stepMs, rateWindowMs(null, intervalMs, resolutionOf(series))))}]`;
  if (spec.query !== undefined) {
    return spec.query({ of: (name, ...matchers) => select(name, matchers), rate: (name, ...matchers) => `rate(${select(name, matchers)}${window(spec.series)})` });
  }
  const byText = new Map(spec.series.map((item) => [item.series, item]));
  const shown = spec.lines.flatMap(({ label, inputs }) => inputs.flatMap((text) => {
    const series = byText.get(text);
    return series === undefined ? [] : [{ label, series }];
  }));
  const names = [...new Set(shown.map(({ series }) => series.name))];
  const parts = names.map((name): [string, string] => {
    const own = shown.filter(({ series }) => series.name === name);
    const all = own.map(({ series }) => series);
    const asked = (selector: string): string => {
      if (all[0]!.type === "histogram") return `sum by (le) (increase(${selector}${window(all)}))`;
      return all[0]!.type === "counter" ? `rate(${selector}${window(all)})` : selector;
    };
    const named = all[0]!.type === "histogram" ? `${name}_bucket` : name;
    return [own.length === 1 ? own[0]!.label : name, selectors(all).map((matchers) => asked(select(named, matchers))).join(" or ")];
  });
  return lines(Object.fromEntries(parts));
}

/** Matchers for just these series of one metric: one selector where it finds no others than these, else one each. */
function selectors(series: readonly Series[]): string[][] {
  const names = [...new Set(series.flatMap(({ labels }) => Object.keys(labels)))].filter((name) => name !== "instance").sort();
  const valuesOf = (name: string): string[] => [...new Set(series.map(({ labels }) => labels[name] ?? ""))];
  const combinations = names.reduce((count, name) => count * valuesOf(name).length, 1);
  if (combinations === series.length) return [names.map((name) => anyOf(name, valuesOf(name)))];
  return series.map(({ labels }) => names.map((name) => `${name}=${quote(labels[name] ?? "")}`));
}
