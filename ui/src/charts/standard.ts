// SPDX-License-Identifier: Apache-2.0
//! The charts that each section of a host's page begins with, from the series that there are (names and meaning of node_exporter). Pure.

import type { Series } from "../api";
import { MAX_LINES, shortLabel } from "./any";
import { anyOf } from "../promql";
import type { ChartSpec, LineSpec } from "./frame";
import { type Sources, lines as together } from "./query";

/** What to search for, so that `standard` finds its series. */
export const STANDARD_SEARCHES = [
  "node_cpu_seconds_total", "node_load", "node_memory_ bytes", "node_network_ bytes_total", "node_network_ drop_total", "node_network_ errs_total", "node_procs_", "run_queue_length",
  "node_disk_ bytes_total", "node_disk_ time_seconds_total", "node_disk_ completed_total", "node_filesystem_ bytes", "node_netstat_Tcp", "node_sockstat_TCP", "node_pressure_",
  "node_vmstat_p", "node_context_switches_total", "node_intr_total",
];

/** More lines than this cannot be told apart: rows of colour then. */
const MAX_CORE_LINES = 6;
/** Beyond this, modes of all cores are too much to follow. */
const MAX_MODE_SERIES = 160;

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

/** By section. */
export type Standard = Record<"cpu" | "memory" | "disks" | "network" | "scheduler", ChartSpec[]>;

export function standard(series: Series[]): Standard {
  const there = (...specs: (ChartSpec | null)[]): ChartSpec[] => specs.filter((spec) => spec !== null);
  const rate = (id: string, title: string, lines: Record<string, string>, rest: Partial<ChartSpec> = {}): ChartSpec | null => fixed(series, id, title, lines, { perSecond: true, ...rest });
  return {
    cpu: there(...cpu(named(series, "node_cpu_seconds_total")), fixed(series, "load", "Load average", { "1 min": "node_load1", "5 min": "node_load5", "15 min": "node_load15" })),
    memory: there(
      memory(series),
      swap(series),
      rate("paging", "Paging with disks", { "pages swapped in": "node_vmstat_pswpin", "pages swapped out": "node_vmstat_pswpout", "major faults": "node_vmstat_pgmajfault" }),
    ),
    disks: there(
      filesystems(series),
      byLabel(series, "disk-busy", "Disk busy", "node_disk_io_time_seconds_total", "device", { unit: "share", top: 1 }),
      byLabel(series, "disk-read", "Disk read", "node_disk_read_bytes_total", "device", { unit: "bytes", perSecond: true }),
      byLabel(series, "disk-written", "Disk written", "node_disk_written_bytes_total", "device", { unit: "bytes", perSecond: true }),
      latency(series),
    ),
    network: there(
      byLabel(series, "network-receive", "Network received", "node_network_receive_bytes_total", "device", { unit: "bytes", perSecond: true }),
      byLabel(series, "network-transmit", "Network transmitted", "node_network_transmit_bytes_total", "device", { unit: "bytes", perSecond: true }),
      troubles(series),
      rate("tcp-trouble", "TCP sent again, timed out, refused", {
        "segments sent again": "node_netstat_Tcp_RetransSegs", timeouts: "node_netstat_TcpExt_TCPTimeouts", "listen overflows": "node_netstat_TcpExt_ListenOverflows",
        "listen drops": "node_netstat_TcpExt_ListenDrops", "resets sent": "node_netstat_Tcp_OutRsts",
      }),
      rate("tcp-opens", "TCP connections opened", { outgoing: "node_netstat_Tcp_ActiveOpens", incoming: "node_netstat_Tcp_PassiveOpens" }),
      fixed(series, "tcp-connections", "TCP connections", { established: "node_netstat_Tcp_CurrEstab", "time wait": "node_sockstat_TCP_tw", orphans: "node_sockstat_TCP_orphan" }),
    ),
    scheduler: there(
      pressure(series, "waiting", "Pressure: some tasks wait"),
      pressure(series, "stalled", "Pressure: all tasks wait"),
      runQueue(series),
      fixed(series, "processes", "Processes running and blocked", { running: "node_procs_running", blocked: "node_procs_blocked" }),
      rate("switches", "Context switches and interrupts", { "context switches": "node_context_switches_total", interrupts: "node_intr_total" }),
    ),
  };
}

/** A line for each of these metrics that there is, each a single series. */
function fixed(series: Series[], id: string, title: string, lines: Record<string, string>, rest: Partial<ChartSpec> = {}): ChartSpec | null {
  const found = Object.entries(lines).flatMap(([label, name]) => named(series, name).slice(0, 1).map((item) => ({ label, item })));
  if (found.length === 0) return null;
  return {
    id, title, kind: "lines", unit: "", perSecond: false, removable: false, series: found.map(({ item }) => item), lines: found.map(({ label, item }): LineSpec => ({ label, inputs: [item.series] })), ...rest,
  };
}

/** A line for each value of a label. What each core counts is added up; where the sum is given as well, it is that. */
function byLabel(series: Series[], id: string, title: string, name: string, label: string, rest: Partial<ChartSpec>): ChartSpec | null {
  const all = named(series, name);
  const valueOf = (item: Series): string => item.labels[label] ?? item.series;
  // The loopback last: traffic that leaves the host matters more.
  const values = [...new Set(all.map(valueOf))].sort((a, b) => Number(a === "lo") - Number(b === "lo") || byNumber(a, b));
  const found: Series[] = [];
  const lines = values.slice(0, MAX_LINES).map((value): LineSpec => {
    const counted = all.filter((item) => valueOf(item) === value);
    const sums = counted.filter((item) => item.labels["cpu"] === undefined);
    const inputs = sums.length > 0 ? sums.slice(0, 1) : counted;
    found.push(...inputs);
    return { label: value, inputs: inputs.map((item) => item.series), ...(inputs.length > 1 ? { combine: total } : {}) };
  });
  const left = values.length - lines.length;
  const note = left > 0 ? { note: `${left} more have no place in one chart: the table has all.` } : {};
  const query = lines.some(({ combine }) => combine !== undefined) ? { query: (from: Sources) => `sum by (${label}) (${from.rate(name, anyOf(label, values.slice(0, MAX_LINES)))})` } : {};
  return found.length === 0 ? null : { id, title, kind: "lines", unit: "", perSecond: false, series: found, lines, removable: false, ...note, ...query, ...rest };
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
    out.push({
      id: "cpu-modes", title: `CPU by mode, ${cores.length} cores`, kind: "stack", unit: "share", perSecond: false, top: 1, series: used, lines, removable: false,
      query: ({ rate }) => `sum by (mode) (${rate("node_cpu_seconds_total", anyOf("mode", modes))}) / ${cores.length}`,
    });
  }

  const idle = cores.flatMap((core) => [find(core, "idle"), find(core, "iowait")].filter((item) => item !== undefined));
  const lines = cores.map((core): LineSpec => {
    const inputs = [find(core, "idle"), find(core, "iowait")].filter((item) => item !== undefined).map((item) => item.series);
    return { label: `cpu ${core}`, inputs, combine: (values) => share(1 - total(values)) };
  });
  if (idle.length > 0) {
    out.push({
      id: "cpu-cores", title: "CPU busy, by core", kind: cores.length > MAX_CORE_LINES ? "rows" : "lines", unit: "share", perSecond: false, top: 1, series: idle, lines, removable: false,
      query: ({ rate }) => `clamp(1 - sum by (cpu) (${rate("node_cpu_seconds_total", anyOf("mode", ["idle", "iowait"]))}), 0, 1)`,
      ...(out.length === 0 && modes.length > 0 ? { note: "Modes are left out: too many series for this many cores. Search for single ones." } : {}),
    });
  }
  return out;
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
  const query = ({ of }: Sources): string => {
    const [a, b, c] = ["MemTotal", "MemAvailable", "MemFree"].map((part) => of(`node_memory_${part}_bytes`));
    return together(free === undefined ? { used: `${a!} - ${b!}`, available: b! } : { used: `${a!} - ${b!}`, reclaimable: `clamp_min(${b!} - ${c!}, 0)`, free: c! });
  };
  return { id: "memory", title: "Memory", kind: "stack", unit: "bytes", perSecond: false, series: used, lines, removable: false, query, ...(typeof all.value === "number" ? { top: all.value } : {}) };
}

function swap(series: Series[]): ChartSpec | null {
  const [all, free] = [named(series, "node_memory_SwapTotal_bytes")[0], named(series, "node_memory_SwapFree_bytes")[0]];
  if (all === undefined || free === undefined || !(typeof all.value === "number" && all.value > 0)) return null;
  return {
    id: "swap", title: "Swap used", kind: "lines", unit: "bytes", perSecond: false, top: all.value, series: [all, free], removable: false,
    lines: [{ label: "used", inputs: [all.series, free.series], combine: ([a, b]) => a! - b! }], query: ({ of }) => `${of("node_memory_SwapTotal_bytes")} - ${of("node_memory_SwapFree_bytes")}`,
  };
}

function filesystems(series: Series[]): ChartSpec | null {
  const get = (part: string, mount: string): Series | undefined => named(series, `node_filesystem_${part}_bytes`).find((item) => item.labels["mountpoint"] === mount);
  const found: Series[] = [];
  const lines: LineSpec[] = [];
  // What is mounted twice is one file system, under its shortest path.
  const devices = new Set<string>();
  const sizes = named(series, "node_filesystem_size_bytes").sort((a, b) => (a.labels["mountpoint"] ?? "").length - (b.labels["mountpoint"] ?? "").length);
  for (const size of sizes) {
    const { device = "", mountpoint = "" } = size.labels;
    const [free, available] = [get("free", mountpoint), get("avail", mountpoint)];
    if (!device.startsWith("/") || devices.has(device) || free === undefined || available === undefined || lines.length === MAX_LINES) continue;
    devices.add(device);
    found.push(size, free, available);
    lines.push({ label: mountpoint, inputs: [size.series, free.series, available.series], combine: ([all, f, a]) => (all! - f!) / (all! - f! + a!), isQuotient: true });
  }
  const query = ({ of }: Sources): string => {
    const [size, free, available] = ["size", "free", "avail"].map((part) => of(`node_filesystem_${part}_bytes`, anyOf("mountpoint", lines.map(({ label }) => label)), anyOf("device", [...devices])));
    return `(${size!} - ${free!}) / (${size!} - ${free!} + ${available!})`;
  };
  return lines.length === 0 ? null : { id: "filesystems", title: "File systems, used", kind: "lines", unit: "share", perSecond: false, top: 1, series: found, lines, removable: false, query };
}

/** Time of a request by device, read and written together. */
function latency(series: Series[]): ChartSpec | null {
  const parts = ["node_disk_read_time_seconds_total", "node_disk_write_time_seconds_total", "node_disk_reads_completed_total", "node_disk_writes_completed_total"];
  const devices = [...new Set(named(series, parts[0]!).map((item) => item.labels["device"] ?? ""))].sort(byNumber);
  const found: Series[] = [];
  const lines = devices.slice(0, MAX_LINES).flatMap((device): LineSpec[] => {
    const inputs = parts.flatMap((name) => named(series, name).filter((item) => item.labels["device"] === device && item.labels["cpu"] === undefined).slice(0, 1));
    if (inputs.length < parts.length) return [];
    found.push(...inputs);
    return [{ label: device, inputs: inputs.map((item) => item.series), combine: ([read, write, reads, writes]) => (reads! + writes! > 0 ? (read! + write!) / (reads! + writes!) : 0), isQuotient: true }];
  });
  const query = ({ rate }: Sources): string => {
    const [read, write, reads, writes] = parts.map((name) => `sum by (device) (${rate(name, anyOf("device", lines.map(({ label }) => label)))})`);
    const done = `(${reads!} + ${writes!})`;
    return `(${read!} + ${write!}) / (${done} > 0) or 0 * ${done}`;
  };
  return lines.length === 0 ? null : { id: "disk-latency", title: "Disk latency, mean (0 without I/O)", kind: "lines", unit: "seconds", perSecond: false, series: found, lines, removable: false, query };
}

/** Packets that were lost on the way through the host's devices. */
function troubles(series: Series[]): ChartSpec | null {
  const found: Series[] = [];
  const lines = [["receive drops", "receive_drop"], ["transmit drops", "transmit_drop"], ["receive errors", "receive_errs"], ["transmit errors", "transmit_errs"]].flatMap(([label, part]): LineSpec[] => {
    const inputs = named(series, `node_network_${part}_total`).filter((item) => item.labels["cpu"] === undefined && item.labels["device"] !== "lo").slice(0, MAX_LINES);
    found.push(...inputs);
    return inputs.length === 0 ? [] : [{ label: label!, inputs: inputs.map((item) => item.series), ...(inputs.length > 1 ? { combine: total } : {}) }];
  });
  const query = ({ rate }: Sources): string => together(Object.fromEntries(lines.map(({ label }) => [label, `sum(${rate(`node_network_${label.replace(/ (\w+)$/, (_, what: string) => (what === "drops" ? "_drop" : "_errs"))}_total`, 'device!="lo"')})`])));
  return found.length === 0 ? null : { id: "network-trouble", title: "Network packets dropped, errors", kind: "lines", unit: "", perSecond: true, series: found, lines, removable: false, query };
}

/** PSI: the share of time in which some, or all, tasks waited for a resource. */
function pressure(series: Series[], kind: string, title: string): ChartSpec | null {
  const lines = Object.fromEntries(["cpu", "memory", "io", "irq"].map((resource) => [resource, `node_pressure_${resource}_${kind}_seconds_total`]));
  return fixed(series, `pressure-${kind}`, title, lines, { unit: "share" });
}

function runQueue(series: Series[]): ChartSpec | null {
  const found = series.filter((item) => item.name.includes("run_queue") && item.type === "gauge");
  found.sort((a, b) => byNumber(shortLabel(a), shortLabel(b)));
  const lines = found.map((item): LineSpec => ({ label: item.labels["cpu"] === undefined ? shortLabel(item) : `cpu ${item.labels["cpu"]}`, inputs: [item.series] }));
  const kind = lines.length > MAX_CORE_LINES ? "rows" : "lines";
  return found.length === 0 ? null : { id: "run-queue", title: "Run queue, by core", kind, unit: "", perSecond: false, series: found, lines, removable: false };
}
