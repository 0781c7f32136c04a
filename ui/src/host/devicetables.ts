// SPDX-License-Identifier: Apache-2.0
//! Tables of file systems, disks and network interfaces, and the figures of TCP.

import { h, setClass, setHidden, setText } from "../dom";
import { bytes, count, quantity } from "../format";
import { instant } from "../promql";
import { type Column, Table } from "../table";
import type { Asker } from "./asker";
import { FULL, bar, fault, figure } from "./cells";
import { type Disk, type Interface, type Mount, type Tcp, disks, disksQuery, interfaces, interfacesQuery, mounts, mountsQuery, tcp, tcpQuery } from "./devices";
import { type Section, trouble } from "./sections";
import type { At, Subject } from "./subject";

/** File systems are looked at every few seconds by agents, too. */
const MOUNTS_EVERY_MS = 5000;
const EVERY_MS = 2000;

/** The tables that there are for the host; a section's charts stand below them. */
export function deviceTables(subject: Subject, asker: Asker, disksSection: Section, network: Section): void {
  if (subject.has("node_filesystem_size_bytes")) {
    const table = new Table<Mount>("File systems", mountColumns(), (row) => `${row.device} ${row.mountpoint}`, null, () => 0, { column: "share", descending: true }, () => undefined);
    ask(subject, asker, disksSection, "File systems", table, MOUNTS_EVERY_MS, mountsQuery, mounts);
  }
  if (subject.has("node_disk_io_time_seconds_total")) {
    const table = new Table<Disk>("Disks", diskColumns(), (row) => row.device, null, () => 0, { column: "busy", descending: true }, () => undefined);
    ask(subject, asker, disksSection, "Disks", table, EVERY_MS, disksQuery, disks);
  }
  if (subject.has("node_network_receive_bytes_total")) {
    const table = new Table<Interface>("Network interfaces", interfaceColumns(), (row) => row.device, null, () => 0, { column: "in", descending: true }, () => undefined);
    ask(subject, asker, network, "Interfaces", table, EVERY_MS, interfacesQuery, interfaces);
  }
  if (subject.has("node_netstat_Tcp_OutSegs") || subject.has("node_netstat_Tcp_CurrEstab")) {
    const figures = new TcpFigures();
    network.body.append(figures.element);
    asker.add({
      element: figures.element, everyMs: EVERY_MS, problem: trouble(figures.element),
      ask: async (at, signal) => figures.show(tcp(await instant(tcpQuery(subject, at), at.timeMs, signal))),
    });
  }
}

function ask<T>(
  subject: Subject,
  asker: Asker,
  section: Section,
  title: string,
  table: Table<T>,
  everyMs: number,
  query: (subject: Subject, at: At) => string,
  rows: (samples: Awaited<ReturnType<typeof instant>>) => T[],
): void {
  table.keepKeys();
  table.element.classList.add("dense");
  const part = h("div", { class: "part" }, h("h3", {}, title), table.element);
  section.body.append(part);
  asker.add({ element: part, everyMs, ask: async (at, signal) => table.update(rows(await instant(query(subject, at), at.timeMs, signal))), problem: trouble(part) });
}

function mountColumns(): Column<Mount>[] {
  return [
    {
      id: "name", label: "Mounted on", sort: (row) => row.mountpoint,
      cell: (node, row) => {
        setText(node, row.mountpoint + (row.others.length === 0 ? "" : ` and ${row.others.length} more`));
        node.title = [row.mountpoint, ...row.others].join("\n");
      },
    },
    bar("share", "Used, %", "Of what users may have, as df shows it. Red from 90 %", (row) => row.share, FULL),
    figure("used", "Used", "", (row) => row.used, "bytes"),
    figure("available", "Free", "For users without privileges", (row) => row.available, "bytes"),
    figure("size", "Size", "", (row) => row.size, "bytes"),
    bar("inodes", "Inodes, %", "Of the files that the file system has room for. Red from 90 %", (row) => row.inodes, FULL),
    { id: "device", label: "Device", minor: true, sort: (row) => row.device, cell: (node, row) => setText(node, row.device) },
    { id: "kind", label: "Type", minor: true, sort: (row) => row.fstype, cell: (node, row) => setText(node, row.fstype + (row.isReadOnly ? ", read-only" : "")) },
  ];
}

function diskColumns(): Column<Disk>[] {
  return [
    { id: "name", label: "Disk", sort: (row) => row.device, cell: (node, row) => setText(node, row.device) },
    bar("busy", "Busy, %", "Share of time with I/O under way. Disks that work at several requests at once may have room at 100 %. Red from 90 %", (row) => row.busy, FULL),
    figure("read", "Read", "Bytes each second", (row) => row.read, "bytes", true),
    figure("written", "Written", "Bytes each second", (row) => row.written, "bytes", true),
    figure("reads", "Reads", "Requests each second", (row) => row.reads, "", true),
    figure("writes", "Writes", "Requests each second", (row) => row.writes, "", true),
    figure("wait", "Latency", "Mean time of a request, with its time in the queue", (row) => row.wait, "seconds"),
    figure("queue", "Under way", "Requests at this moment", (row) => row.queue, "", false, true),
  ];
}

function interfaceColumns(): Column<Interface>[] {
  const load = (part: (row: Interface) => number) => (row: Interface): number | null => (row.speed === null ? null : part(row) / row.speed);
  const rate = (value: number | null): string => quantity(value, "bytes", true);
  return [
    {
      id: "name", label: "Interface", sort: (row) => row.device,
      cell: (node, row) => {
        setText(node, row.device + (row.isUp === false && row.device !== "lo" ? " (down)" : ""));
        setClass(node, "dim", row.isUp === false && row.device !== "lo");
      },
    },
    bar("in", "In", "Bytes received each second; the bar: of the interface’s speed", load((row) => row.in), FULL, { get: (row) => row.in, show: rate }),
    bar("out", "Out", "Bytes sent each second; the bar: of the interface’s speed", load((row) => row.out), FULL, { get: (row) => row.out, show: rate }),
    figure("speed", "Speed", "Bits each second that it can carry", (row) => (row.speed === null ? null : row.speed * 8), "b", true),
    figure("inPackets", "Packets in", "Each second", (row) => row.inPackets, "", true, true),
    figure("outPackets", "Packets out", "Each second", (row) => row.outPackets, "", true, true),
    fault("errors", "Errors", "Packets with errors each second, both directions", (row) => row.errors),
    fault("drops", "Drops", "Packets dropped each second, both directions", (row) => row.drops),
  ];
}

/** Retransmits above this share slow connections down. */
const MANY_AGAIN = 0.01;

const FIGURES: [label: string, title: string, text: (tcp: Tcp) => string, isBad: (tcp: Tcp) => boolean][] = [
  ["Retransmits", "Share of the segments sent that were sent again. Above 1 % connections get slow", (of) => quantity(of.again, "share"), (of) => (of.again ?? 0) > MANY_AGAIN],
  ["Timeouts", "Retransmission timeouts each second", (of) => quantity(of.timeouts, "", true), () => false],
  ["Listen overflows", "Connections each second that found the accept queue of their listener full: a program does not accept fast enough", (of) => quantity(of.overflows, "", true), (of) => (of.overflows ?? 0) > 0],
  ["Listen drops", "Connections each second that a listener dropped, for any reason", (of) => quantity(of.drops, "", true), (of) => (of.drops ?? 0) > 0],
  ["Resets sent", "RST segments each second", (of) => quantity(of.resets, "", true), () => false],
  ["Opened", "Connections opened each second by this host", (of) => quantity(of.opened, "", true), () => false],
  ["Accepted", "Connections accepted each second", (of) => quantity(of.accepted, "", true), () => false],
  ["Connections", "Sockets by state", (of) => of.states.map(([state, n]) => `${state} ${count(n)}`).join(", "), () => false],
];

class TcpFigures {
  private readonly values = FIGURES.map(() => h("dd", { class: "num" }, "–"));
  private readonly own = h("p", { class: "note", hidden: true });
  readonly element = h(
    "div",
    { class: "part" },
    h("h3", {}, "TCP"),
    h("dl", { class: "facts" }, ...FIGURES.map(([label, title], i) => h("div", { title }, h("dt", {}, label), this.values[i]!))),
    this.own,
  );

  show(found: Tcp): void {
    FIGURES.forEach(([, , text, isBad], i) => {
      setText(this.values[i]!, text(found) || "–");
      setClass(this.values[i]!, "bad", isBad(found));
    });
    // What watching takes is traffic of this host, too.
    setHidden(this.own, !(found.reading !== null && found.reading > 0));
    setText(this.own, `Part of the traffic above is Onlooker’s: the kernel answers ${quantity(found.reading, "")} READs a second, each of ${bytes(1024)} or a few.`);
  }
}
