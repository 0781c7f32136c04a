// SPDX-License-Identifier: Apache-2.0
//! What a controller records of its hosts (docs/http.md, vitals), and how it is asked for over time. Pure.

import { anyOf } from "../promql";

export interface Metric {
  key: string;
  label: string;
  /** As the controller records it, and what else tells its series. */
  name: string;
  matcher: string;
  unit: "share" | "bytes";
  /** What has the strongest colour; null: the greatest there is. */
  full: number | null;
}

const pressure = (key: string, label: string, resource: string): Metric => ({ key, label, name: "onlooker_host_pressure_ratio", matcher: `resource="${resource}"`, unit: "share", full: null });
export const CPU: Metric = { key: "cpu", label: "CPU", name: "onlooker_host_cpu_ratio", matcher: "", unit: "share", full: 1 };
export const METRICS: readonly Metric[] = [
  CPU,
  { key: "memory", label: "Memory", name: "onlooker_host_memory_ratio", matcher: "", unit: "share", full: 1 },
  { key: "disk", label: "Disk", name: "onlooker_host_filesystem_ratio", matcher: "", unit: "share", full: 1 },
  pressure("psi-cpu", "CPU pressure", "cpu"),
  pressure("psi-memory", "Memory pressure", "memory"),
  pressure("psi-io", "I/O pressure", "io"),
  { key: "in", label: "Network in", name: "onlooker_host_receive_bytes_per_second", matcher: "", unit: "bytes", full: null },
  { key: "out", label: "Network out", name: "onlooker_host_transmit_bytes_per_second", matcher: "", unit: "bytes", full: null },
  { key: "retransmit", label: "Retransmits", name: "onlooker_host_retransmit_ratio", matcher: "", unit: "share", full: null },
];

export const SPANS: readonly { key: string; label: string; ms: number }[] = [
  { key: "10m", label: "10 min", ms: 600_000 },
  { key: "1h", label: "1 h", ms: 3_600_000 },
  { key: "6h", label: "6 h", ms: 6 * 3_600_000 },
  { key: "24h", label: "24 h", ms: 24 * 3_600_000 },
];

/** The controller samples so often. */
const SAMPLED_MS = 5000;
const COLUMNS = 240;
const LEAST_COLUMNS = 30;
/** Values that are asked for of all hosts together: 5 MB in columns; as JSON 14 MB, which a browser takes apart in a fifth of a second. */
const MAX_CELLS = 600_000;

/** A column is so long: a whole number of samples. Of many hosts there are fewer columns, half of them, or a quarter, so that one host more seldom changes them. */
export function stepOf(spanMs: number, hosts = 1): number {
  let columns = COLUMNS;
  while (columns > LEAST_COLUMNS && columns * hosts > MAX_CELLS) columns /= 2;
  return Math.ceil(spanMs / columns / SAMPLED_MS) * SAMPLED_MS;
}

/** Of each step the least, mean or greatest. A colour, or a point of a line, shows no more digits, and short numbers pack better. */
export function overStep({ name, matcher, unit }: Metric, how: "min" | "avg" | "max", hosts: readonly string[], stepMs: number): string {
  const matchers = [matcher, anyOf("instance", hosts)].filter((text) => text !== "").join(",");
  return `round(${how}_over_time(${name}{${matchers}}[${stepMs / 1000}s])${unit === "share" ? ", 0.0001" : ""})`;
}

/** The greatest value of each step: a burst between two steps counts. */
export const worst = (metric: Metric, hosts: readonly string[], stepMs: number): string => overStep(metric, "max", hosts, stepMs);
