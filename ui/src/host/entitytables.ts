// SPDX-License-Identifier: Apache-2.0
//! Which tables of processes, control groups and TCP ports a host's page has, and what their columns are.

import { type HostDetail, type Metric, getMetrics, getSeries } from "../api";
import type { ChartSpec } from "../charts/frame";
import { h, setClass, setText } from "../dom";
import { NONE, bytes, cores } from "../format";
import type { Column } from "../table";
import type { Asker } from "./asker";
import { FULL, bar, fault, figure, ownMark } from "./cells";
import { CONTAINERS, type Entity, type Kind, PORTS, PROCESSES, entityCharts, keysOf } from "./entities";
import { type Choice, Ranked } from "./ranked";
import { type Section, trouble } from "./sections";
import type { Subject } from "./subject";

const MAX_SERIES = 500;

/** Names of Onlooker's own processes, as comm has them, and of its units. */
const OWN_PROCESS = /^onlooker(-agent|-holder)?$/;
const OWN_GROUP = /^onlooker-(agent|controller|holder)\.service$/;

interface Tables {
  host: HostDetail;
  subject: Subject;
  asker: Asker;
  signal: AbortSignal;
  /** Shows charts below a section's own. */
  addCharts: (section: Section, specs: ChartSpec[]) => void;
}

const CONTAINER_CHOICES: Choice[] = [
  { label: "All control groups", title: "Services, slices and containers; a group counts those below it, too", matcher: "" },
  { label: "Containers", title: "Only groups of a container runtime or of a virtual machine", matcher: 'runtime!="none"' },
];

/** Regions that not all agents publish. */
const REGIONS: [region: string, kind: Kind][] = [["processes", PROCESSES], ["cgroups", CONTAINERS], ["tcp_ports", PORTS]];

/** Metrics of the tables that the host has. */
export async function entityMetrics(host: HostDetail, signal: AbortSignal): Promise<Metric[]> {
  const there = REGIONS.filter(([region]) => host.regions_list.some(({ name }) => name === region));
  const found = await Promise.all(there.flatMap(([, kind]) => kind.searches).map((text) => getMetrics(host.name, text, MAX_SERIES, signal)));
  return found.flatMap((list) => list.series);
}

export function entityTables(tables: Tables, processes: Section, containers: Section, network: Section): void {
  const { subject } = tables;
  if (subject.has(PROCESSES.probe)) add(tables, processes, PROCESSES, "Processes", processColumns(tables), []);
  else processes.say(...off("[processes]"));
  if (subject.has(CONTAINERS.probe)) add(tables, containers, CONTAINERS, "Control groups", containerColumns(tables), CONTAINER_CHOICES);
  else containers.say(...off("[cgroups]"));
  network.body.append(h("h3", {}, "TCP ports"));
  if (subject.has(PORTS.probe)) add(tables, network, PORTS, "TCP ports", portColumns(tables), []);
  else network.body.append(h("p", { class: "hint" }, ...off("[connections]")));
}

/** How to have what an agent publishes only if it is told to. */
function off(part: string): (string | HTMLElement)[] {
  return ["Not collected on this host: set ", h("code", {}, `${part} enabled = true`), " in its ", h("code", {}, "/etc/onlooker/agent.toml"), " and restart the agent (docs/tables.md)."];
}

function add({ host, subject, asker, signal, addCharts }: Tables, section: Section, kind: Kind, title: string, columns: Column<Entity>[], choices: Choice[]): void {
  const open = (entity: Entity): void => {
    problem(null);
    const [first] = keysOf(kind, subject);
    getSeries(host.name, `${kind.searches[0]} ${first}="${entity.labels[first!]}"`, MAX_SERIES, signal).then(({ series }) => {
      const specs = entityCharts(kind, entity, series);
      if (specs.length === 0) problem(`This ${kind.one} has ended: charts show only what is there now.`);
      else addCharts(section, specs);
    }).catch((error: unknown) => {
      if (!signal.aborted) problem(error instanceof Error ? error.message : String(error));
    });
  };
  const { element } = new Ranked(kind, subject, asker, title, columns, choices, open);
  const problem = trouble(element);
  section.body.append(element);
}

const value = (id: string) => (row: Entity): number => row.values.get(id) ?? 0;
/** Of a gauge that is not there, nothing is known. */
const known = (id: string) => (row: Entity): number | null => row.values.get(id) ?? null;

function nameColumn(label: string, shown: (row: Entity) => [name: string, more: string], isOwn: (row: Entity) => boolean): Column<Entity> {
  return {
    id: "name", label, title: "Sorts what is shown", sort: (row) => shown(row)[0],
    cell: (node, row) => {
      if (node.firstElementChild === null) node.append(h("span", { class: "entity" }), " ", h("span", { class: "dim more-of" }));
      const [name, more] = shown(row);
      setText(node.firstElementChild as HTMLElement, name);
      setText(node.children[1] as HTMLElement, more);
      node.title = row.labels["path"] ?? name;
      if (isOwn(row) && node.children.length === 2) node.append(" ", ownMark());
    },
  };
}

function cpuColumn({ subject }: Tables): Column<Entity> {
  return bar("cpu", "CPU, cores", "Cores in use; the bar: of all cores", (row) => value("cpu")(row) / Math.max(1, subject.cores), undefined, { get: value("cpu"), show: cores });
}

function memoryColumn({ subject }: Tables, title: string, limit: (row: Entity) => number): Column<Entity> {
  const of = (row: Entity): number | null => {
    const total = limit(row) > 0 ? limit(row) : subject.memoryBytes;
    return total === null ? null : value("memory")(row) / total;
  };
  return bar("memory", "Memory", title, of, FULL, { get: known("memory"), show: bytes });
}

function processColumns(tables: Tables): Column<Entity>[] {
  const single = keysOf(PROCESSES, tables.subject).includes("pid");
  const io = (id: string, label: string): Column<Entity> => {
    const column = figure<Entity>(id, label, "Bytes each second from and to block devices", value(id), "bytes", true);
    return {
      ...column,
      cell: (node, row) => {
        column.cell(node, row);
        // What the agent may not read is not nothing.
        const isHidden = value("unreadable")(row) > 0 && value(id)(row) === 0;
        if (isHidden) setText(node, NONE);
        node.title = isHidden ? "Its I/O is not known: the agent may not trace it" : "";
      },
    };
  };
  return [
    nameColumn("Process", ({ labels }) => [labels["name"] ?? "", labels["pid"] ?? labels["runtime"] ?? ""], ({ labels }) => OWN_PROCESS.test(labels["name"] ?? "")),
    cpuColumn(tables),
    memoryColumn(tables, "Resident memory, with shared pages; the bar: of the host’s memory", () => 0),
    io("read", "Read"),
    io("written", "Written"),
    figure("faults", "Major faults", "Page faults each second that had to read from a disk", value("faults"), "", true, true),
    single ? figure("threads", "Threads", "", known("threads"), "", false, true) : figure("processes", "Processes", "Processes that share this row", known("processes"), "", false, true),
  ];
}

function containerColumns(tables: Tables): Column<Entity>[] {
  const runtime = ({ labels }: Entity): string => (labels["runtime"] === "none" ? "" : (labels["runtime"] ?? ""));
  return [
    nameColumn("Control group", (row) => [row.labels["name"] === "" ? (row.labels["path"] ?? "/") : (row.labels["name"] ?? ""), runtime(row)], ({ labels }) => OWN_GROUP.test(labels["name"] ?? "")),
    cpuColumn(tables),
    memoryColumn(tables, "Working set: memory without inactive file pages; the bar: of its limit, or of the host’s memory", value("limit")),
    figure("limit", "Limit", "Memory that it may have", (row) => value("limit")(row) || null, "bytes"),
    fault("throttled", "Throttled", "Time each second in which it was held back by its CPU limit, of all its tasks", value("throttled"), true, "seconds"),
    figure("read", "Read", "Bytes each second from block devices", value("read"), "bytes", true),
    figure("written", "Written", "Bytes each second to block devices", value("written"), "bytes", true),
    fault("kills", "OOM kills", "Processes that the kernel killed since the group was made, for want of memory", value("kills"), false),
    figure("threads", "Tasks", "", known("threads"), "", false, true),
  ];
}

function portColumns({ host }: Tables): Column<Entity>[] {
  const own = host.address.slice(host.address.lastIndexOf(":") + 1);
  const again = (row: Entity): number | null => (value("sent")(row) > 0 ? value("again")(row) / value("sent")(row) : null);
  return [
    nameColumn("Port", ({ labels }) => (labels["port"] === "0" ? ["others", "outgoing, and ports without a row"] : [labels["port"] ?? "", ""]), ({ labels }) => labels["port"] === own),
    figure("connections", "Connections", "Sockets in all states but listening", value("connections"), ""),
    figure("established", "Established", "", value("established"), ""),
    {
      ...figure<Entity>("queue", "Accept queue", "Connections that wait for the program to accept them, of those that may. Red from 90 %", value("queue"), ""),
      cell: (node, row) => {
        setText(node, value("room")(row) > 0 ? `${value("queue")(row)} of ${value("room")(row)}` : NONE);
        setClass(node, "bad", value("room")(row) > 0 && value("queue")(row) >= FULL * value("room")(row));
      },
    },
    figure("in", "In", "Bytes received each second", value("in"), "bytes", true),
    figure("out", "Out", "Bytes sent and acknowledged each second", value("out"), "bytes", true),
    figure("again", "Sent again", "Share of the segments sent that were sent again; sorts by their number", again, "share"),
  ];
}
