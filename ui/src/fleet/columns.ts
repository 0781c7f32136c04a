// SPDX-License-Identifier: Apache-2.0
//! Columns of the fleet's table, in two views: how the hosts are, and how they are read.

import { nameOf, ofHost, summaryOf } from "../alerts";
import { h, setClass, setText, setTitle } from "../dom";
import { age, count, duration, quantity, reasons, sum } from "../format";
import { FULL, bar, figure, showLink } from "../host/cells";
import { drawSpark } from "../host/spark";
import type { Known } from "../hosts";
import { STATE_RANK, ageNow, labelsOf, pairText, showPair, showState } from "../state";
import type { Column } from "../table";
import type { FleetVitals, Line, Vital } from "./vitals";

/** What the cells of small lines show: a line is worked out once, however often its cell is written. */
const drawn = new WeakMap<HTMLElement, Line>();

/** A pressure of which somebody should know. */
const PRESSED = 0.2;

export const VIEWS = ["vitals", "reading"] as const;
export type View = (typeof VIEWS)[number];

export function columns(view: View, vitals: FleetVitals): Column<Known>[] {
  return [nameColumn(view), STATE, ALERTS, ...(view === "vitals" ? vitalColumns(vitals) : READING), AGE, LABELS];
}

function vitalColumns(vitals: FleetVitals): Column<Known>[] {
  const of = (get: (vital: Vital) => number | null) => (host: Known): number | null => {
    const vital = vitals.get(host.name);
    return vital === null ? null : get(vital);
  };
  /** Without a bar where nothing is known: an empty one says 0. */
  const share = (id: string, label: string, title: string, get: (host: Known) => number | null): Column<Known> => {
    const column = bar<Known>(id, label, title, get, FULL);
    return { ...column, cell: (node, host) => { column.cell(node, host); setClass(node, "unknown", get(host) === null); } };
  };
  const disk = share("disk", "Disk", "The fullest file system that can be written to", of((vital) => vital.filesystem));
  const load = figure<Known>("load", "Load", "Load average of a minute, for each core", of((vital) => (vital.load1 === null || vital.cores === 0 ? null : vital.load1 / vital.cores)), "", false, true);
  return [
    share("cpu", "CPU", "Share of all cores’ time in which they did something", of((vital) => vital.cpu)),
    {
      id: "trend", label: "10 min", title: "The CPU in the last ten minutes; sorts by its greatest share", numeric: true, minor: true,
      sort: (host) => Math.max(-1, ...(vitals.trend(host.name)?.values ?? [])),
      cell: (node, host) => {
        const line = vitals.trend(host.name);
        if (line === (drawn.get(node) ?? null)) return;
        if (line === null) drawn.delete(node);
        else drawn.set(node, line);
        drawSpark(node, line, vitals.trendSpan.from, vitals.trendSpan.to, 1);
      },
    },
    load,
    share("memory", "Memory", "Share that programs cannot get", of((vital) => vital.memory)),
    { ...disk, cell: (node, host) => { disk.cell(node, host); setTitle(node, vitals.get(host.name)?.mountpoint ?? ""); } },
    figure<Known>("in", "In", "Bytes that its network devices receive", of((vital) => vital.receive_bytes_per_s), "bytes", true),
    figure<Known>("out", "Out", "Bytes that its network devices send", of((vital) => vital.transmit_bytes_per_s), "bytes", true),
    figure<Known>("retransmit", "Retrans", "Share of the TCP segments sent that had been sent before, where there are 4 a second", of((vital) => vital.retransmit), "share", false, true),
    {
      id: "pressure", label: "Pressure", title: "PSI: share of the time in which some task waited for CPU, memory or I/O, whichever is most", numeric: true,
      sort: (host) => most(vitals.get(host.name))?.share ?? NaN,
      cell: (node, host) => {
        const worst = most(vitals.get(host.name));
        setText(node, worst === null ? "–" : `${quantity(worst.share, "share")}${worst.share > 0 ? ` ${worst.resource}` : ""}`);
        setClass(node, "dim", worst?.share === 0);
        setClass(node, "bad", (worst?.share ?? 0) >= PRESSED);
      },
    },
  ];
}

function most(vital: Vital | null): { resource: string; share: number } | null {
  const all = vital === null ? [] : Object.entries(vital.pressure).flatMap(([resource, share]) => (share === null ? [] : [{ resource, share }]));
  return all.sort((a, b) => b.share - a.share)[0] ?? null;
}

/** The host, and what is wrong with it; where its reading is shown also its address, for which vitals have no room. */
const nameColumn = (view: View): Column<Known> => ({
  id: "name", label: "Host", sort: (host) => host.name,
  cell: (node, host) => {
    if (node.firstChild === null) node.append(h("a", { tabindex: -1 }), h("span", { class: "dim under" }));
    showLink(node.firstChild as HTMLAnchorElement, host.name);
    // What is wrong is worth more than an address.
    setText(node.lastElementChild!, host.error ?? (view === "reading" ? host.address : ""));
    setClass(node.lastElementChild!, "problem", host.error !== null);
    setTitle(node, host.error ?? host.address);
  },
});

const STATE: Column<Known> = { id: "state", label: "State", sort: (host) => STATE_RANK[host.state], cell: (node, host) => showState(node, host.state) };

const ALERTS: Column<Known> = {
  id: "alerts", label: "Alerts", title: "That fire, or are pending", descendingFirst: true,
  sort: (host) => ofHost(host.name).reduce((sum, alert) => sum + (alert.state === "firing" ? 1000 : 1), 0),
  cell: (node, host) => {
    const alerts = ofHost(host.name);
    const [first] = alerts;
    setText(node, first === undefined ? "" : nameOf(first) + (alerts.length > 1 ? ` +${alerts.length - 1}` : ""));
    setClass(node, "bad", first?.state === "firing");
    setClass(node, "dim", first?.state === "pending");
    setTitle(node, alerts.map((alert) => `${alert.state}: ${nameOf(alert)}. ${summaryOf(alert)}`).join("\n"));
  },
};

const READING: Column<Known>[] = [
  { id: "via", label: "Read via", title: "Who answers the READs on the host", minor: true, sort: (host) => pairText(host), cell: (node, host) => showPair(node, host) },
  { id: "interval", label: "Interval", title: "Between two readings", numeric: true, minor: true, sort: (host) => host.interval_ms, cell: (node, host) => setText(node, duration(host.interval_ms)) },
  {
    id: "gaps", label: "Gaps", title: "Readings that failed, since the controller began", numeric: true, sort: (host) => sum(host.gaps),
    cell: (node, host) => {
      setText(node, count(sum(host.gaps)));
      setClass(node, "dim", sum(host.gaps) === 0);
      setTitle(node, reasons(host.gaps));
    },
  },
  { id: "late", label: "Late", title: "Readings that began later than they were due", numeric: true, minor: true, sort: (host) => host.late, cell: (node, host) => { setText(node, count(host.late)); setClass(node, "dim", host.late === 0); } },
  { id: "series", label: "Series", numeric: true, minor: true, sort: (host) => host.series, cell: (node, host) => setText(node, count(host.series)) },
];

const AGE: Column<Known> = {
  id: "age", label: "Age", title: "Of the newest values", numeric: true, sort: (host) => ageNow(host) ?? -1,
  cell: (node, host) => {
    setText(node, age(ageNow(host)));
    setClass(node, "bad", host.state === "silent");
  },
};

const LABELS: Column<Known> = { id: "labels", label: "Labels", minor: true, sort: (host) => labelsOf(host).join(), cell: (node, host) => { setText(node, labelsOf(host).join(" · ")); setTitle(node, labelsOf(host).join("\n")); } };
