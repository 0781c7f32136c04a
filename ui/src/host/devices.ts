// SPDX-License-Identifier: Apache-2.0
//! File systems, disks, network interfaces and TCP of a host: what is asked for them and the rows that follow. Pure.

import { type Sample, named, together, partOf } from "../promql";
import type { At, Subject } from "./subject";

/** Kinds of file systems that are full, or empty, by design. */
const NO_STORAGE = 'fstype!~"ramfs|rootfs"';

export interface Mount {
  mountpoint: string;
  /** Where else it is mounted. */
  others: string[];
  device: string;
  fstype: string;
  size: number;
  used: number;
  available: number;
  /** Of what users may have, as `df` has it; null without any size. */
  share: number | null;
  inodes: number | null;
  isReadOnly: boolean;
}

export interface Disk {
  device: string;
  busy: number;
  read: number;
  written: number;
  reads: number;
  writes: number;
  /** Mean time of a request in seconds; null without any. */
  wait: number | null;
  queue: number;
}

export interface Interface {
  device: string;
  in: number;
  out: number;
  /** Bytes each second that it can carry; null where it says none. */
  speed: number | null;
  inPackets: number;
  outPackets: number;
  errors: number;
  drops: number;
  isUp: boolean | null;
}

/** Name of a column, metric, and whether its rate is meant. */
type Column = [name: string, metric: string, isRate: boolean, ...matchers: string[]];

const MOUNTS: Column[] = [
  ["size", "node_filesystem_size_bytes", false, NO_STORAGE], ["free", "node_filesystem_free_bytes", false, NO_STORAGE], ["avail", "node_filesystem_avail_bytes", false, NO_STORAGE],
  ["files", "node_filesystem_files", false, NO_STORAGE], ["filesFree", "node_filesystem_files_free", false, NO_STORAGE], ["readonly", "node_filesystem_readonly", false, NO_STORAGE],
];
const DISKS: Column[] = [
  ["busy", "node_disk_io_time_seconds_total", true], ["read", "node_disk_read_bytes_total", true], ["written", "node_disk_written_bytes_total", true],
  ["reads", "node_disk_reads_completed_total", true], ["writes", "node_disk_writes_completed_total", true],
  ["readTime", "node_disk_read_time_seconds_total", true], ["writeTime", "node_disk_write_time_seconds_total", true], ["queue", "node_disk_io_now", false],
];
const INTERFACES: Column[] = [
  ["in", "node_network_receive_bytes_total", true], ["out", "node_network_transmit_bytes_total", true],
  ["inPackets", "node_network_receive_packets_total", true], ["outPackets", "node_network_transmit_packets_total", true],
  ["inErrors", "node_network_receive_errs_total", true], ["outErrors", "node_network_transmit_errs_total", true],
  ["inDrops", "node_network_receive_drop_total", true], ["outDrops", "node_network_transmit_drop_total", true],
  ["speed", "node_network_speed_bytes", false], ["up", "node_network_up", false],
];
const TCP: Column[] = [
  ["sent", "node_netstat_Tcp_OutSegs", true], ["again", "node_netstat_Tcp_RetransSegs", true], ["timeouts", "node_netstat_TcpExt_TCPTimeouts", true],
  ["drops", "node_netstat_TcpExt_ListenDrops", true], ["overflows", "node_netstat_TcpExt_ListenOverflows", true], ["resets", "node_netstat_Tcp_OutRsts", true],
  ["opened", "node_netstat_Tcp_ActiveOpens", true], ["accepted", "node_netstat_Tcp_PassiveOpens", true], ["established", "node_netstat_Tcp_CurrEstab", false],
  ["states", "node_tcp_connection_states", false], ["reading", "onlooker_responder_packets_total", true, 'exit="answered"'],
];

function query(columns: Column[], subject: Subject, at: At): string {
  const there = columns.filter(([, metric]) => subject.has(metric));
  return together(Object.fromEntries(there.map(([name, metric, isRate, ...matchers]) => [name, isRate ? subject.rate(metric, at, ...matchers) : subject.select(metric, ...matchers)])));
}

export const mountsQuery = (subject: Subject, at: At): string => query(MOUNTS, subject, at);
export const disksQuery = (subject: Subject, at: At): string => query(DISKS, subject, at);
export const interfacesQuery = (subject: Subject, at: At): string => query(INTERFACES, subject, at);
export const tcpQuery = (subject: Subject, at: At): string => query(TCP, subject, at);

/** What a device counts and has no rate has not moved: that is stored every 10 s only (docs/promql.md). */
const rateOf = (row: Map<string, number>) => (name: string): number => row.get(name) ?? 0;

/** What samples say of each key, by column; what several series say of one (each core) is added up. */
function rowsBy(samples: Sample[], keyOf: (labels: Record<string, string>) => string | undefined): Map<string, Map<string, number>> {
  const rows = new Map<string, Map<string, number>>();
  for (const { labels, value } of samples) {
    const key = keyOf(labels);
    const column = partOf({ labels });
    if (key === undefined) continue;
    const row = rows.get(key) ?? new Map<string, number>();
    row.set(column, (row.get(column) ?? 0) + value);
    rows.set(key, row);
  }
  return rows;
}

/** One row for each file system, also if it is mounted several times. */
export function mounts(samples: Sample[]): Mount[] {
  // Something else may be mounted over a path.
  const keyOf = ({ device = "", mountpoint = "" }: Record<string, string>): string => `${device} ${mountpoint}`;
  const rows = rowsBy(samples, keyOf);
  const sizes = named(samples, "size").sort((a, b) => (a.labels["mountpoint"] ?? "").length - (b.labels["mountpoint"] ?? "").length);
  const out = new Map<string, Mount>();
  for (const { labels, value: size } of sizes) {
    const { mountpoint = "", device = "", fstype = "" } = labels;
    const identity = device.startsWith("/") ? device : mountpoint;
    const before = out.get(identity);
    if (before !== undefined) {
      before.others.push(mountpoint);
      continue;
    }
    const row = rows.get(keyOf(labels))!;
    const used = size - (row.get("free") ?? NaN);
    const available = row.get("avail") ?? NaN;
    const files = row.get("files") ?? 0;
    out.set(identity, {
      mountpoint, others: [], device, fstype, size, used, available, share: used + available > 0 ? used / (used + available) : null,
      inodes: files > 0 ? 1 - (row.get("filesFree") ?? NaN) / files : null, isReadOnly: row.get("readonly") === 1,
    });
  }
  return [...out.values()];
}

export function disks(samples: Sample[]): Disk[] {
  return [...rowsBy(samples, ({ device }) => device)].map(([device, row]) => {
    const get = rateOf(row);
    const requests = get("reads") + get("writes");
    return {
      device, busy: get("busy"), read: get("read"), written: get("written"), reads: get("reads"), writes: get("writes"), queue: row.get("queue") ?? NaN,
      wait: requests > 0 ? (get("readTime") + get("writeTime")) / requests : null,
    };
  });
}

export function interfaces(samples: Sample[]): Interface[] {
  return [...rowsBy(samples, ({ device }) => device)].map(([device, row]) => {
    const get = rateOf(row);
    const speed = get("speed");
    return {
      device, in: get("in"), out: get("out"), speed: speed > 0 ? speed : null, inPackets: get("inPackets"), outPackets: get("outPackets"),
      errors: get("inErrors") + get("outErrors"), drops: get("inDrops") + get("outDrops"), isUp: row.has("up") ? get("up") === 1 : null,
    };
  });
}

export interface Tcp {
  /** Share of the segments sent that were sent again; null where none were. */
  again: number | null;
  timeouts: number | null;
  /** Connections that came while a listener's queue was full, or were refused otherwise. */
  overflows: number | null;
  drops: number | null;
  resets: number | null;
  opened: number | null;
  accepted: number | null;
  states: [state: string, count: number][];
  /** READs of Onlooker that the kernel answers each second. */
  reading: number | null;
}

export function tcp(samples: Sample[]): Tcp {
  const one = (name: string): number | null => named(samples, name)[0]?.value ?? null;
  const [sent, again, established] = [one("sent"), one("again"), one("established")];
  // node_exporter has the bytes in queues among the states.
  const states = named(samples, "states").filter(({ labels }) => labels["state"]?.endsWith("_bytes") !== true).map(({ labels, value }): [string, number] => [(labels["state"] ?? "").replaceAll("_", " "), value]);
  return {
    again: again !== null && sent !== null && sent > 0 ? again / sent : null,
    timeouts: one("timeouts"), overflows: one("overflows"), drops: one("drops"), resets: one("resets"), opened: one("opened"), accepted: one("accepted"),
    states: states.length > 0 ? states.filter(([, count]) => count > 0).sort((a, b) => b[1] - a[1]) : established === null ? [] : [["established", established]],
    reading: named(samples, "reading").length === 0 ? null : named(samples, "reading").reduce((total, { value }) => total + value, 0),
  };
}
