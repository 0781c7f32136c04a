// SPDX-License-Identifier: Apache-2.0
//! Processes, control groups and TCP ports (docs/tables.md): what is asked for the top of so many, the rows that follow, and the charts of one. Pure.

import type { Series } from "../api";
import type { ChartSpec, LineSpec } from "../charts/frame";
import { type Sample, anyOf, literal, named, partOf, quote, together } from "../promql";
import type { At, Subject } from "./subject";

export interface Entity {
  /** Values of the labels that make it what it is, the one that tells it apart first, with NUL between. */
  key: string;
  labels: Record<string, string>;
  /** By measure. What has no rate has not moved. */
  values: Map<string, number>;
}

interface Measure {
  id: string;
  metric: string;
  isRate: boolean;
  /** Series of one entity are added up over other labels. */
  isSum?: boolean;
  /** Matchers besides. */
  where?: string[];
}

interface ChartOf {
  title: string;
  kind: ChartSpec["kind"];
  unit: string;
  perSecond: boolean;
  /** Metrics by label; `{mode}` makes a line for each value of a label. */
  lines: Record<string, string>;
}

export interface Kind {
  /** What one, and many, are called. */
  one: string;
  many: string;
  /** What finds its metrics. */
  searches: string[];
  /** The metric that each has once. */
  probe: string;
  /** Labels that make it what it is, those that there are; the first tells one from all others. */
  keys: string[];
  /** The first is what is looked at first. */
  measures: Measure[];
  charts: ChartOf[];
  /** Whose words a filter is looked for in. */
  filter: string;
}

const rate = (id: string, metric: string, rest: Partial<Measure> = {}): Measure => ({ id, metric, isRate: true, ...rest });
const gauge = (id: string, metric: string, rest: Partial<Measure> = {}): Measure => ({ id, metric, isRate: false, ...rest });

export const PROCESSES: Kind = {
  one: "process", many: "processes", searches: ["onlooker_process_"], probe: "onlooker_process_resident_bytes", keys: ["pid", "name", "runtime"], filter: "name",
  measures: [
    rate("cpu", "onlooker_process_cpu_seconds_total", { isSum: true }), gauge("memory", "onlooker_process_resident_bytes"),
    rate("read", "onlooker_process_read_bytes_total"), rate("written", "onlooker_process_written_bytes_total"), rate("faults", "onlooker_process_major_faults_total"),
    gauge("threads", "onlooker_process_threads"), gauge("processes", "onlooker_process_processes"), gauge("unreadable", "onlooker_process_unreadable"),
  ],
  charts: [
    { title: "CPU", kind: "stack", unit: "cores", perSecond: false, lines: { "{mode}": "onlooker_process_cpu_seconds_total" } },
    { title: "Memory", kind: "lines", unit: "bytes", perSecond: false, lines: { resident: "onlooker_process_resident_bytes" } },
    { title: "Disk I/O", kind: "lines", unit: "bytes", perSecond: true, lines: { read: "onlooker_process_read_bytes_total", written: "onlooker_process_written_bytes_total" } },
    { title: "Threads", kind: "lines", unit: "", perSecond: false, lines: { threads: "onlooker_process_threads", processes: "onlooker_process_processes" } },
  ],
};

export const CONTAINERS: Kind = {
  one: "control group", many: "control groups", searches: ["container_", "onlooker_cgroup_path_info"], probe: "container_memory_usage_bytes", keys: ["cgroup", "name", "runtime"], filter: "name",
  measures: [
    rate("cpu", "container_cpu_usage_seconds_total"), gauge("memory", "container_memory_working_set_bytes"), gauge("limit", "container_spec_memory_limit_bytes"),
    rate("read", "container_fs_reads_bytes_total"), rate("written", "container_fs_writes_bytes_total"), rate("throttled", "container_cpu_cfs_throttled_seconds_total"),
    gauge("threads", "container_threads"), gauge("kills", "container_oom_events_total"), gauge("path", "onlooker_cgroup_path_info"),
  ],
  charts: [
    { title: "CPU", kind: "lines", unit: "cores", perSecond: false, lines: { usage: "container_cpu_usage_seconds_total", throttled: "container_cpu_cfs_throttled_seconds_total" } },
    { title: "Memory", kind: "lines", unit: "bytes", perSecond: false, lines: { "working set": "container_memory_working_set_bytes", rss: "container_memory_rss", cache: "container_memory_cache" } },
    { title: "Disk I/O", kind: "lines", unit: "bytes", perSecond: true, lines: { read: "container_fs_reads_bytes_total", written: "container_fs_writes_bytes_total" } },
    {
      title: "Pressure: some tasks wait", kind: "lines", unit: "share", perSecond: false,
      lines: { cpu: "container_pressure_cpu_waiting_seconds_total", memory: "container_pressure_memory_waiting_seconds_total", io: "container_pressure_io_waiting_seconds_total" },
    },
  ],
};

export const PORTS: Kind = {
  one: "port", many: "ports", searches: ["onlooker_tcp_port_"], probe: "onlooker_tcp_port_accept_queue", keys: ["port"], filter: "port",
  measures: [
    gauge("connections", "onlooker_tcp_port_connections", { isSum: true }), gauge("established", "onlooker_tcp_port_connections", { isSum: true, where: ['state="established"'] }),
    gauge("queue", "onlooker_tcp_port_accept_queue"), gauge("room", "onlooker_tcp_port_accept_queue_limit"),
    rate("in", "onlooker_tcp_port_received_bytes_total"), rate("out", "onlooker_tcp_port_acked_bytes_total"), rate("again", "onlooker_tcp_port_retransmits_total"), rate("sent", "onlooker_tcp_port_sent_segments_total"),
  ],
  charts: [
    { title: "Connections", kind: "lines", unit: "", perSecond: false, lines: { "{state}": "onlooker_tcp_port_connections" } },
    { title: "Bytes", kind: "lines", unit: "bytes", perSecond: true, lines: { in: "onlooker_tcp_port_received_bytes_total", out: "onlooker_tcp_port_acked_bytes_total" } },
    { title: "Segments sent again", kind: "lines", unit: "", perSecond: true, lines: { "sent again": "onlooker_tcp_port_retransmits_total" } },
    { title: "Round trip time", kind: "histogram", unit: "seconds", perSecond: false, lines: { rtt: "onlooker_tcp_port_rtt_seconds" } },
  ],
};

/** Keys that the host's series have: processes may share a row by name. */
export function keysOf(kind: Kind, subject: Subject): string[] {
  const labels = subject.of(kind.probe)[0]?.labels ?? {};
  return kind.keys.filter((key) => key in labels);
}

function expression(measure: Measure, keys: string[], subject: Subject, at: At, matchers: string[]): string {
  const all = [...matchers, ...(measure.where ?? [])];
  const values = measure.isRate ? subject.rate(measure.metric, at, ...all) : subject.select(measure.metric, ...all);
  return measure.isSum === true ? `sum by (${keys.join(", ")}) (${values})` : values;
}

/** Those of which a text is a part; a number is the beginning of a pid. */
export function matching(kind: Kind, keys: string[], words: string): string[] {
  if (words === "") return [];
  if (keys.includes("pid") && /^\d+$/.test(words)) return [`pid=~${quote(`${words}.*`)}`];
  return [`${kind.filter}=~${quote(`(?i).*${literal(words)}.*`)}`];
}

/** A line of a table that does not change is stored so often, and one that has gone answers for a minute (docs/promql.md). */
const STANDS_MS = 10_000;

/** Since how long, in seconds, nothing was heard of what is there no longer. */
export const goneAfter = (kind: Kind, subject: Subject): number => Math.ceil((STANDS_MS + 2 * Math.max(subject.intervalMs, ...subject.of(kind.probe).map((item) => item.resolution_ms))) / 1000);

/** How many there are (`total`), and which of them are the first by a measure (`rank`); where fewer have moved, those with most memory or so (`fill`). */
export function rankQuery(kind: Kind, subject: Subject, at: At, by: { id: string; descending: boolean }, limit: number, matchers: string[]): string {
  const keys = keysOf(kind, subject);
  const measure = kind.measures.find(({ id }) => id === by.id) ?? kind.measures[0]!;
  const first = by.descending ? "topk" : "bottomk";
  const all = subject.select(kind.probe, ...matchers);
  const there = `${all} and (time() - timestamp(${all}) < ${goneAfter(kind, subject)})`;
  return together({ total: `count(${there})`, rank: `${first}(${limit}, ${expression(measure, keys, subject, at, matchers)})`, fill: `topk(${limit}, ${there})` });
}

/** Values of the labels that make it what it is, with NUL between. */
export const keyOf = (labels: Record<string, string>, keys: string[]): string => keys.map((name) => labels[name] ?? "").join("\u0000");
/** What tells it apart, out of its key. */
export const mainOf = (key: string): string => key.split("\u0000")[0]!;

/** The keys of the first `limit`, and how many there are. */
export function ranked(samples: Sample[], keys: string[], limit: number): { total: number; first: string[] } {
  const first = new Set([...named(samples, "rank"), ...named(samples, "fill")].map(({ labels }) => keyOf(labels, keys)));
  return { total: named(samples, "total")[0]?.value ?? 0, first: [...first].slice(0, limit) };
}

/** All measures of these entities, and how long ago they were heard of. */
export function detailsQuery(kind: Kind, subject: Subject, at: At, matchers: string[]): string {
  const keys = keysOf(kind, subject);
  const there = kind.measures.filter(({ metric }) => subject.has(metric));
  const parts = there.map((measure): [string, string] => [measure.id, expression(measure, keys, subject, at, matchers)]);
  return together(Object.fromEntries([...parts, [AGE, `time() - timestamp(${subject.select(kind.probe, ...matchers)})`]]));
}

const AGE = "age";

/** Those that are there. `goneAfterS`: what nothing was heard of for so long is not. */
export function entities(samples: Sample[], keys: string[], goneAfterS: number): Entity[] {
  const rows = new Map<string, Entity>();
  for (const { labels, value } of samples) {
    const id = partOf({ labels });
    const key = keyOf(labels, keys);
    let row = rows.get(key);
    if (row === undefined) {
      row = { key, labels: Object.fromEntries(keys.map((name) => [name, labels[name] ?? ""])), values: new Map() };
      rows.set(key, row);
    }
    row.values.set(id, value);
    // An info has its text in a label.
    if (id === "path") row.labels["path"] = labels["value"] ?? "";
  }
  return [...rows.values()].filter((row) => (row.values.get(AGE) ?? Infinity) < goneAfterS);
}

/** How the first measure went. */
export function trendQuery(kind: Kind, subject: Subject, at: At, key: string, first: string[]): string {
  return expression(kind.measures[0]!, keysOf(kind, subject), subject, at, [anyOf(key, first)]);
}

/** The charts of one, from its series. */
export function entityCharts(kind: Kind, entity: Entity, series: Series[]): ChartSpec[] {
  const own = series.filter((item) => Object.entries(entity.labels).every(([name, value]) => name === "path" || item.labels[name] === value));
  const name = Object.entries(entity.labels).filter(([label]) => label !== "path" && label !== "cgroup").map(([label, value]) => `${label}=${value}`).join(" · ");
  return kind.charts.flatMap(({ lines, title, ...rest }): ChartSpec[] => {
    const found = Object.entries(lines).flatMap(([label, metric]) => {
      const of = own.filter((item) => item.name === metric);
      const by = /^\{(.*)\}$/.exec(label)?.[1];
      // States in which nothing is would be lines at zero.
      const shown = by === "state" ? of.filter((item) => typeof item.value === "number" && item.value > 0) : of;
      return shown.map((item) => ({ item, line: { label: by === undefined ? label : (item.labels[by] ?? ""), inputs: [item.series] } satisfies LineSpec }));
    });
    if (found.length === 0) return [];
    return [{ id: `${kind.one} ${entity.key} ${title}`, title, detail: name, ...rest, series: found.map(({ item }) => item), lines: found.map(({ line }) => line), removable: true }];
  });
}
