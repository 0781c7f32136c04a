// SPDX-License-Identifier: Apache-2.0
//! The figures by which one sees at a glance how a host is: what is asked for them, and what follows from the answers. Pure.

import { type Points, type Sample, anyOf, named, together } from "../promql";
import { type Mount, mounts } from "./devices";
import type { At, Subject } from "./subject";
import { rates } from "./spark";

/** Devices through which traffic passes that another one counts, too: bridges, bonds, tunnels, containers' ends, VLANs. As crates/series/src/devices.rs has it for the fleet and for `onlooker top`. */
export const VIRTUAL = /^(lo$|veth|docker|br-|br\d|virbr|cni|cali|flannel|tap|tun|wg|bond|team|ifb|dummy|vlan)|\./;
/** Disks made of others, which count again, or of memory. */
const COMPOUND = /^(dm-|md|drbd|zram)/;

/** Those that count on their own; where there are none, all but the loopback. */
export function counted(devices: string[], double: RegExp): string[] {
  const own = devices.filter((device) => !double.test(device));
  return own.length > 0 ? own : devices.filter((device) => device !== "lo");
}

export interface Vitals {
  cores: number | null;
  usedCores: number | null;
  load1: number | null;
  memory: { total: number; used: number } | null;
  swap: { total: number; used: number } | null;
  /** Shares of time in which some task waited. */
  pressure: { cpu: number | null; memory: number | null; io: number | null };
  fullest: Mount | null;
  network: { in: number | null; out: number | null };
  disk: { read: number | null; written: number | null; busy: number | null };
  bootMs: number | null;
  windowMs: number;
}

const CPU = "node_cpu_seconds_total";
const RECEIVED = "node_network_receive_bytes_total";
const SENT = "node_network_transmit_bytes_total";
const READ = "node_disk_read_bytes_total";
const WRITTEN = "node_disk_written_bytes_total";
const BUSY = "node_disk_io_time_seconds_total";
const BUSY_MODES = 'mode!~"idle|iowait"';

/** Metrics that are looked at as they are. */
const PLAIN = {
  load: "node_load1", memory: "node_memory_MemTotal_bytes", available: "node_memory_MemAvailable_bytes", swap: "node_memory_SwapTotal_bytes", swapFree: "node_memory_SwapFree_bytes",
  boot: "node_boot_time_seconds", size: "node_filesystem_size_bytes", free: "node_filesystem_free_bytes", avail: "node_filesystem_avail_bytes",
};
const PRESSURE = { psiCpu: "node_pressure_cpu_waiting_seconds_total", psiMemory: "node_pressure_memory_waiting_seconds_total", psiIo: "node_pressure_io_waiting_seconds_total" };

const devicesOf = (subject: Subject, name: string, double: RegExp): string => anyOf("device", counted(subject.values(name, "device"), double));

export function vitalsQuery(subject: Subject, at: At): string {
  const parts: [string, string, string][] = [
    ["cores", CPU, `count(${subject.select(CPU, 'mode="idle"')})`],
    ["cpu", CPU, `sum(${subject.rate(CPU, at, BUSY_MODES)})`],
    ["in", RECEIVED, `sum(${subject.rate(RECEIVED, at, devicesOf(subject, RECEIVED, VIRTUAL))})`],
    ["out", SENT, `sum(${subject.rate(SENT, at, devicesOf(subject, SENT, VIRTUAL))})`],
    ["read", READ, `sum(${subject.rate(READ, at, devicesOf(subject, READ, COMPOUND))})`],
    ["written", WRITTEN, `sum(${subject.rate(WRITTEN, at, devicesOf(subject, WRITTEN, COMPOUND))})`],
    ["busy", BUSY, `max(${subject.rate(BUSY, at)})`],
    ...Object.entries(PRESSURE).map(([id, name]): [string, string, string] => [id, name, subject.rate(name, at)]),
    ...Object.entries(PLAIN).map(([id, name]): [string, string, string] => [id, name, subject.select(name)]),
  ];
  return together(Object.fromEntries(parts.filter(([, name]) => subject.has(name)).map(([id, , expression]) => [id, expression])));
}

export function vitals(samples: Sample[], subject: Subject, at: At): Vitals {
  const one = (name: string): number | null => named(samples, name)[0]?.value ?? null;
  const used = (total: number | null, left: number | null): { total: number; used: number } | null => (total === null || left === null ? null : { total, used: total - left });
  const all = mounts(samples);
  const boot = one("boot");
  // Devices that have not moved have no rate; a host that is not read has no cores.
  const rate = (name: string, metric: string): number | null => one(name) ?? (one("cores") !== null && subject.has(metric) ? 0 : null);
  return {
    cores: one("cores"),
    usedCores: one("cpu"),
    load1: one("load"),
    memory: used(one("memory"), one("available")),
    swap: used(one("swap"), one("swapFree")),
    pressure: { cpu: one("psiCpu"), memory: one("psiMemory"), io: one("psiIo") },
    // Read-only images are full by design.
    fullest: all.filter((mount) => mount.fstype !== "squashfs" && mount.share !== null).sort((a, b) => b.share! - a.share!)[0] ?? null,
    network: { in: rate("in", RECEIVED), out: rate("out", SENT) },
    disk: { read: rate("read", READ), written: rate("written", WRITTEN), busy: rate("busy", BUSY) },
    bootMs: boot === null ? null : boot * 1000,
    windowMs: subject.windowMs(CPU, at),
  };
}

/** How they went: what a tile draws small. */
export type Trend = "cpu" | "load" | "memory" | "pressure" | "network" | "disk";
type Line = Pick<Points, "t_ms" | "values">;

/** Counters are asked for as they are and now and then: that reads few rows, where rates would read all. */
export function trendsQuery(subject: Subject): string {
  const devices = (name: string, double: RegExp): string => `sum(${subject.select(name, devicesOf(subject, name, double))})`;
  const parts: [string, string, string][] = [
    ["cpu", CPU, `sum(${subject.select(CPU, BUSY_MODES)})`],
    ["load", PLAIN.load, subject.select(PLAIN.load)],
    ["available", PLAIN.available, subject.select(PLAIN.available)],
    ...Object.entries(PRESSURE).map(([id, name]): [string, string, string] => [id, name, subject.select(name)]),
    ["in", RECEIVED, devices(RECEIVED, VIRTUAL)],
    ["out", SENT, devices(SENT, VIRTUAL)],
    ["read", READ, devices(READ, COMPOUND)],
    ["written", WRITTEN, devices(WRITTEN, COMPOUND)],
  ];
  return together(Object.fromEntries(parts.filter(([, name]) => subject.has(name)).map(([id, , expression]) => [id, expression])));
}

export function trends(all: Points[], memoryBytes: number | null): Record<Trend, Line | null> {
  const line = (name: string): Line[] => named(all, name);
  const rate = (...names: string[]): Line[] => names.flatMap(line).map(rates);
  return {
    cpu: merged(rate("cpu")),
    load: merged(line("load")),
    memory: memoryBytes === null ? null : merged(line("available").map(({ t_ms, values }) => ({ t_ms, values: values.map((left) => memoryBytes - left) }))),
    pressure: merged(rate(...Object.keys(PRESSURE)), Math.max),
    network: merged(rate("in", "out")),
    disk: merged(rate("read", "written")),
  };
}

/** Lines over the same steps as one; null without any. */
function merged(lines: Line[], combine: (a: number, b: number) => number = (a, b) => a + b): Line | null {
  const [first, ...rest] = lines;
  if (first === undefined) return null;
  return rest.reduce((sum, line) => {
    const at = new Map(line.t_ms.map((t, i) => [t, line.values[i]!]));
    return { t_ms: sum.t_ms, values: sum.values.map((value, i) => combine(value, at.get(sum.t_ms[i]!) ?? NaN)) };
  }, first);
}
