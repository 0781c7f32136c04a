// SPDX-License-Identifier: Apache-2.0
//! The charts that a host's page begins with, from the series that there are (names and meaning of node_exporter); and charts of any series. Pure.

import type { Series } from "../api";
import type { ChartSpec, LineSpec } from "./frame";

/** What to search for, so that `standard` finds its series. */
export const STANDARD_SEARCHES = ["node_cpu_seconds_total", "node_load", "node_memory_", "node_network_ bytes_total", "node_procs_", "run_queue"];

/** More lines than this cannot be told apart: rows of colour then. */
const MAX_CORE_LINES = 6;
/** Beyond this, modes of all cores are too much to follow. */
const MAX_MODE_SERIES = 160;
const MAX_LINES = 16;

/** From the one that matters most; idle is what is left. */
const MODES = ["user", "nice", "system", "irq", "softirq", "steal", "iowait"];

const total = (values: number[]): number => values.reduce((sum, value) => sum + value, 0);
const share = (value: number): number => Math.min(1, Math.max(0, value));

function named(series: Series[], name: string): Series[] {
  return series.filter((item) => item.name === name);
}

function byNumber(a: string, b: string): number {
  return a.localeCompare(b, "en", { numeric: true });
}

export function standard(series: Series[]): ChartSpec[] {
  return [...cpu(named(series, "node_cpu_seconds_total")), runQueue(series), processes(series), load(series), memory(series), network(series, "receive"), network(series, "transmit")].filter((spec) => spec !== null);
}

function cpu(series: Series[]): ChartSpec[] {
  const cores = [...new Set(series.map((item) => item.labels["cpu"] ?? ""))].sort(byNumber);
  if (cores.length === 0) return [];
  const find = (core: string, mode: string): Series | undefined => series.find((item) => item.labels["cpu"] === core && item.labels["mode"] === mode);
  const out: ChartSpec[] = [];

  const modes = MODES.filter((mode) => series.some((item) => item.labels["mode"] === mode));
  const used = series.filter((item) => modes.includes(item.labels["mode"] ?? ""));
  if (modes.length > 0 && used.length <= MAX_MODE_SERIES) {
    const lines = modes.map((mode): LineSpec => {
      const inputs = used.filter((item) => item.labels["mode"] === mode).map((item) => item.series);
      return { label: mode, inputs, combine: (values) => total(values) / cores.length, colour: `--mode-${mode}` };
    });
    out.push({ id: "cpu-modes", title: `CPU by mode, ${cores.length} cores`, kind: "stack", unit: "share", perSecond: false, top: 1, series: used, lines, removable: false });
  }

  const idle = cores.flatMap((core) => [find(core, "idle"), find(core, "iowait")].filter((item) => item !== undefined));
  const lines = cores.map((core): LineSpec => {
    const inputs = [find(core, "idle"), find(core, "iowait")].filter((item) => item !== undefined).map((item) => item.series);
    return { label: `cpu ${core}`, inputs, combine: (values) => share(1 - total(values)) };
  });
  if (idle.length > 0) {
    out.push({
      id: "cpu-cores", title: "CPU busy, by core", kind: cores.length > MAX_CORE_LINES ? "rows" : "lines", unit: "share", perSecond: false, top: 1, series: idle, lines, removable: false,
      ...(out.length === 0 && modes.length > 0 ? { note: "Modes are left out: too many series for this many cores. Search for single ones." } : {}),
    });
  }
  return out;
}

function load(series: Series[]): ChartSpec | null {
  const found = ["node_load1", "node_load5", "node_load15"].flatMap((name) => named(series, name));
  const lines = found.map((item): LineSpec => ({ label: item.name.replace("node_load", "") + " min", inputs: [item.series] }));
  return found.length === 0 ? null : { id: "load", title: "Load average", kind: "lines", unit: "", perSecond: false, series: found, lines, removable: false };
}

function processes(series: Series[]): ChartSpec | null {
  const found = [...named(series, "node_procs_running"), ...named(series, "node_procs_blocked")];
  const lines = found.map((item): LineSpec => ({ label: item.name.replace("node_procs_", ""), inputs: [item.series] }));
  return found.length === 0 ? null : { id: "processes", title: "Processes running and blocked", kind: "lines", unit: "", perSecond: false, series: found, lines, removable: false };
}

function runQueue(series: Series[]): ChartSpec | null {
  const found = series.filter((item) => item.name.includes("run_queue") && item.type === "gauge");
  found.sort((a, b) => byNumber(shortLabel(a), shortLabel(b)));
  const lines = found.map((item): LineSpec => ({ label: item.labels["cpu"] === undefined ? shortLabel(item) : `cpu ${item.labels["cpu"]}`, inputs: [item.series] }));
  const kind = lines.length > MAX_CORE_LINES ? "rows" : "lines";
  return found.length === 0 ? null : { id: "run-queue", title: "Run queue, by core", kind, unit: "", perSecond: false, series: found, lines, removable: false };
}

function memory(series: Series[]): ChartSpec | null {
  const get = (part: string): Series | undefined => named(series, `node_memory_${part}_bytes`)[0];
  const [all, available, free] = [get("MemTotal"), get("MemAvailable"), get("MemFree")];
  if (all === undefined || available === undefined) return null;
  const lines: LineSpec[] = [{ label: "used", inputs: [all.series, available.series], combine: ([a, b]) => a! - b!, colour: "--mode-user" }];
  if (free === undefined) lines.push({ label: "available", inputs: [available.series], colour: "--mode-free" });
  else {
    lines.push(
      { label: "reclaimable", inputs: [available.series, free.series], combine: ([a, b]) => Math.max(0, a! - b!), colour: "--mode-nice" },
      { label: "free", inputs: [free.series], colour: "--mode-free" },
    );
  }
  const used = [all, available, free].filter((item) => item !== undefined);
  return { id: "memory", title: "Memory", kind: "stack", unit: "bytes", perSecond: false, series: used, lines, removable: false, ...(typeof all.value === "number" ? { top: all.value } : {}) };
}

function network(series: Series[], direction: "receive" | "transmit"): ChartSpec | null {
  const all = named(series, `node_network_${direction}_bytes_total`);
  const deviceOf = (item: Series): string => item.labels["device"] ?? item.series;
  // The loopback last: traffic that leaves the host matters more.
  const devices = [...new Set(all.map(deviceOf))].sort((a, b) => Number(a === "lo") - Number(b === "lo") || byNumber(a, b)).slice(0, MAX_LINES);
  const found: Series[] = [];
  const lines = devices.map((device): LineSpec => {
    const counted = all.filter((item) => deviceOf(item) === device);
    // A device is counted by each core; where the sum is given as well, it is that.
    const sums = counted.filter((item) => item.labels["cpu"] === undefined);
    const inputs = sums.length > 0 ? sums.slice(0, 1) : counted;
    found.push(...inputs);
    return { label: device, inputs: inputs.map((item) => item.series), ...(inputs.length > 1 ? { combine: total } : {}) };
  });
  const title = direction === "receive" ? "Network received" : "Network transmitted";
  return found.length === 0 ? null : { id: `network-${direction}`, title, kind: "lines", unit: "bytes", perSecond: true, series: found, lines, removable: false };
}

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
  const specs = names.slice(0, MAX_PROGRAM_CHARTS).map((name) => chartOf(named(own, name), `program-${name}`, known));
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
  const unit = first.unit === "" ? "" : first.type === "counter" ? `${first.unit}/s` : `in ${first.unit}`;
  const own = (item: Series): string => Object.entries(item.labels).filter(([name]) => !isCommon(name)).map(([name, value]) => `${name} ${value}`).join(" ");
  return {
    id,
    title: first.name,
    detail: [unit, single ? "" : `${shown.length} series`, ...common].filter((part) => part !== "").join(" · "),
    kind: first.type === "histogram" ? "histogram" : "lines",
    unit: first.unit,
    perSecond: first.type === "counter",
    series: shown,
    lines: shown.map((item) => ({ label: single ? (first.type === "counter" ? "rate" : "value") : own(item), inputs: [item.series] })),
    ...(found.length > shown.length ? { note: `${found.length - shown.length} more series have no place in one chart: search for them one by one.` } : {}),
    removable: true,
  };
}
