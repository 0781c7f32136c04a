// SPDX-License-Identifier: Apache-2.0
//! How a host is, at a glance: a tile each for what may be short, which leads to its section.

import { h, setClass, setHidden } from "../dom";
import { bytes, cores, count, duration, moment, quantity } from "../format";
import { Tile } from "../pages/page";
import { instant, range } from "../promql";
import type { Asker } from "./asker";
import { FULL } from "./cells";
import { type Index, type Section, type SectionId, trouble } from "./sections";
import { drawSpark } from "./spark";
import type { At, Subject } from "./subject";
import { type Trend, type Vitals, trends, trendsQuery, vitals, vitalsQuery } from "./vitals";

const EVERY_MS = 2000;
const TREND_MS = 300_000;
const TREND_STEP_MS = 5000;
const TREND_EVERY_MS = 10_000;

const sizes = (used: number, total: number): string => `${bytes(used)} of ${bytes(total)}`;

export class Overview {
  private readonly tiles: Record<"cpu" | "load" | "memory" | "swap" | "pressure" | "filesystem" | "disk" | "network" | "uptime", Tile>;
  private readonly sparks = new Map<Trend, HTMLElement>();
  private readonly list = h("div", { class: "tiles vitals" });

  constructor(
    private readonly subject: Subject,
    asker: Asker,
    section: Section,
    index: Index,
  ) {
    const tile = (label: string, id: SectionId, title: string, trend?: Trend): Tile => {
      const made = new Tile(label, title, index.link(subject.host, id));
      if (trend !== undefined) {
        const spark = h("span", { class: "tile-spark", "aria-hidden": "true" });
        this.sparks.set(trend, spark);
        made.element.append(spark);
      }
      this.list.append(made.element);
      return made;
    };
    this.tiles = {
      cpu: tile("CPU", "cpu", "Share of all cores that work: all modes but idle and iowait. The line: the last 5 minutes", "cpu"),
      load: tile("Load, 1 min", "cpu", "Tasks that run or wait for a CPU or a disk, averaged over a minute. More than there are cores means that tasks wait", "load"),
      memory: tile("Memory", "memory", "Used: all memory but MemAvailable, which programs could still get. Red from 90 %", "memory"),
      swap: tile("Swap", "memory", "Memory that was moved to disk. Red from 90 %"),
      pressure: tile("Pressure (PSI)", "scheduler", "Share of time in which some task waited for CPU, memory or I/O: the greatest of the three", "pressure"),
      filesystem: tile("Fullest file system", "disks", "Used of what users may have, as df shows it. Red from 90 %"),
      disk: tile("Disk I/O", "disks", "Bytes read and written each second, of all disks; and the busiest one’s share of time with I/O under way", "disk"),
      network: tile("Network", "network", "Bytes in and out each second, of all interfaces but lo, bridges, bonds and tunnels, whose traffic others count, too", "network"),
      uptime: tile("Up", "overview", "Since the host booted"),
    };
    section.body.append(this.list);
    if (vitalsQuery(subject, { timeMs: 0, windowMs: null }) === "") {
      setHidden(this.list, true);
      section.say("This host gives none of the usual kernel metrics. Press / and search for what it has.");
      return;
    }
    asker.add({ element: section.body, everyMs: EVERY_MS, ask: (at, signal) => this.ask(at, signal), problem: trouble(section.body) });
    asker.add({ element: this.list, everyMs: TREND_EVERY_MS, ask: (at, signal) => this.askTrends(at, signal), problem: () => undefined });
  }

  private async ask(at: At, signal: AbortSignal): Promise<void> {
    this.show(vitals(await instant(vitalsQuery(this.subject, at), at.timeMs, signal), this.subject, at), at);
  }

  private async askTrends(at: At, signal: AbortSignal): Promise<void> {
    const query = trendsQuery(this.subject);
    if (query === "") return;
    const toMs = Math.floor(at.timeMs / TREND_STEP_MS) * TREND_STEP_MS;
    const { memoryBytes, cores } = this.subject;
    const lines = trends(await range(query, { fromMs: toMs - TREND_MS, toMs, stepMs: TREND_STEP_MS }, signal), memoryBytes);
    const top: Partial<Record<Trend, number>> = { cpu: cores, memory: memoryBytes ?? 0, pressure: 1 };
    for (const [trend, node] of this.sparks) {
      const line = lines[trend];
      if (line !== null) drawSpark(node, line, toMs - TREND_MS, toMs, top[trend]);
    }
  }

  private show(found: Vitals, at: At): void {
    const { tiles } = this;
    const { cores: all, usedCores, load1, memory, swap, pressure, fullest, network, disk, bootMs } = found;
    const over = `over ${duration(found.windowMs)}`;
    const share = (part: number | null, whole: number | null): number | null => (part === null || whole === null || whole === 0 ? null : part / whole);
    const rate = (value: number | null): string => quantity(value, "bytes", true);

    const busy = share(usedCores, all);
    tiles.cpu.show(quantity(busy, "share"), usedCores === null ? "" : `${cores(usedCores)} of ${count(all)} cores, ${over}`, busy);
    const loaded = share(load1, all);
    tiles.load.show(quantity(load1, ""), all === null ? "" : `${quantity(loaded, "")} a core`, loaded);
    setClass(tiles.load.element, "warn", (loaded ?? 0) > 1);
    const filled = memory === null ? null : share(memory.used, memory.total);
    tiles.memory.show(quantity(filled, "share"), memory === null ? "" : sizes(memory.used, memory.total), filled);
    setClass(tiles.memory.element, "bad", (filled ?? 0) >= FULL);
    const swapped = swap === null ? null : share(swap.used, swap.total);
    tiles.swap.show(swap?.total === 0 ? "none" : quantity(swapped, "share"), swap === null ? "" : swap.total === 0 ? "there is no swap" : sizes(swap.used, swap.total), swapped);
    setClass(tiles.swap.element, "bad", (swapped ?? 0) >= FULL);
    const waits = Object.entries(pressure).filter((pair): pair is [string, number] => pair[1] !== null).sort((a, b) => b[1] - a[1]);
    tiles.pressure.show(quantity(waits[0]?.[1] ?? null, "share"), waits.map(([name, value]) => `${name === "io" ? "I/O" : name === "cpu" ? "CPU" : name} ${quantity(value, "share")}`).join(", "), waits[0]?.[1] ?? null);
    tiles.filesystem.show(quantity(fullest?.share ?? null, "share"), fullest === null ? "" : `${fullest.mountpoint}, ${bytes(fullest.available)} left`, fullest?.share ?? null);
    setClass(tiles.filesystem.element, "bad", (fullest?.share ?? 0) >= FULL);
    tiles.disk.show(rate(disk.read === null ? null : disk.read + (disk.written ?? 0)), disk.read === null ? "" : `read ${rate(disk.read)}, written ${rate(disk.written)}, busy ${quantity(disk.busy, "share")}`);
    tiles.network.show(network.in === null ? "–" : `↓ ${rate(network.in)}`, network.out === null ? "" : `↑ ${rate(network.out)} out`);
    tiles.uptime.show(bootMs === null ? "–" : duration(Math.max(0, at.timeMs - bootMs)), bootMs === null ? "" : `since ${moment(bootMs, at.timeMs)}`);
  }
}
