// SPDX-License-Identifier: Apache-2.0
//! A comparison of hosts: its address, and what is asked for it. Pure.

import type { ChartSpec } from "../charts/frame";
import { METRICS, type Metric, overStep } from "../fleet/metrics";
import { type Points, anyOf, literal, named, quote, together } from "../promql";
import { NumberTrack } from "../series";

/** Lines that can be told apart: seven colours, three kinds of dashes. */
export const MOST_HOSTS = 20;
/** Each vital comes as mean, least and greatest: so many points are as many as half a screen is wide. */
const MAX_POINTS = 300;
const SAMPLED_MS = 5000;
const STEPS_S = [5, 10, 15, 20, 30, 60, 120, 180, 300, 600, 900, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400];

export interface Comparison {
  hosts: readonly string[];
  metrics: readonly Metric[];
  /** A metric, or PromQL with $hosts; empty: none. */
  query: string;
}

/** What makes no sense is as if it were not there. */
export function fromParameters(parameters: URLSearchParams): Comparison {
  const keys = parameters.getAll("m");
  return {
    hosts: [...new Set(parameters.getAll("host"))].filter((name) => name !== "").slice(0, MOST_HOSTS),
    metrics: parameters.has("m") ? METRICS.filter(({ key }) => keys.includes(key)) : METRICS,
    query: parameters.get("q") ?? "",
  };
}

/** All metrics need no mention, and none is said by an empty name. */
export function toParameters({ hosts, metrics, query }: Comparison): [string, string][] {
  const keys = metrics.length === METRICS.length ? [] : metrics.length === 0 ? [""] : metrics.map(({ key }) => key);
  return [...hosts.map((name): [string, string] => ["host", name]), ...keys.map((key): [string, string] => ["m", key]), ...(query === "" ? [] : [["q", query] as [string, string]])];
}

export const compareAddress = (hosts: readonly string[]): string => `#/compare?${new URLSearchParams(hosts.map((name) => ["host", name])).toString()}`;

/** Steps of vitals, as multiples of their length: no shorter than the controller samples them. */
export function vitalSteps({ from, to }: { from: number; to: number }): { fromMs: number; toMs: number; stepMs: number } {
  const stepMs = 1000 * (STEPS_S.find((step) => (to - from) / (1000 * step) <= MAX_POINTS) ?? Math.ceil((to - from) / MAX_POINTS / 86_400_000) * 86_400);
  const fromMs = Math.ceil(from / stepMs) * stepMs;
  return { fromMs, toMs: Math.max(fromMs, Math.floor(to / stepMs) * stepMs), stepMs };
}

/** A vital of hosts over steps; of a step with several samples the least and greatest, too. */
export function vitalQuery(metric: Metric, hosts: readonly string[], stepMs: number): string {
  // The controller's samples are a little more than their distance apart: no step is to miss one.
  if (stepMs <= SAMPLED_MS) return together({ mean: overStep(metric, "avg", hosts, 2 * SAMPLED_MS) });
  return together({ mean: overStep(metric, "avg", hosts, stepMs), least: overStep(metric, "min", hosts, stepMs), most: overStep(metric, "max", hosts, stepMs) });
}

/** The chart of a vital: all hosts in their order, so that each has the same colour in all charts. */
export function vitalSpec(metric: Metric, hosts: readonly string[]): ChartSpec {
  const words: Record<string, string> = { disk: "Fullest file system" };
  return {
    id: metric.key, title: words[metric.key] ?? metric.label, kind: "lines", unit: metric.unit, perSecond: metric.unit === "bytes", ...(metric.full === null ? {} : { top: metric.full }),
    series: [], lines: hosts.map((name) => ({ label: name, inputs: [name] })), removable: false,
  };
}

/** What `vitalQuery` was answered, by host. */
export function vitalTracks(answer: Points[], stepMs: number): Map<string, NumberTrack> {
  const edges = { least: byHost(named(answer, "least")), most: byHost(named(answer, "most")) };
  return new Map(named(answer, "mean").map(({ labels, t_ms, values }) => {
    const host = labels["instance"] ?? "";
    const track = new NumberTrack("gauge", { capacity: MAX_POINTS + 2, joinMs: 0 }, 0);
    const edge = (at: Map<string, Points>): number[] => (at.get(host)?.t_ms.length === t_ms.length ? at.get(host)!.values : []);
    track.fill({ series: host, type: "gauge", t_ms, last: values, min: edge(edges.least), max: edge(edges.most), rate: [], rate_min: [], rate_max: [], bounds: [], counts: [] }, stepMs);
    return [host, track];
  }));
}

const byHost = (all: Points[]): Map<string, Points> => new Map(all.map((points) => [points.labels["instance"] ?? "", points]));

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

/** What is asked for the own query: a metric of these hosts, or PromQL whose `$hosts` stands for them; null where it would ask all hosts. */
export function ownQuery(text: string, hosts: readonly string[]): string | null {
  const query = text.trim();
  if (NAME.test(query)) return `${query}{${anyOf("instance", hosts)}}`;
  if (!query.includes("$hosts")) return null;
  // Within quotes, as in instance=~"$hosts".
  return query.replaceAll("$hosts", () => quote(hosts.map(literal).join("|")).slice(1, -1));
}
