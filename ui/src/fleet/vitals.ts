// SPDX-License-Identifier: Apache-2.0
//! How busy and how full the fleet's hosts are, by name; and how their CPUs went in the last minutes, of the hosts in view.

import { list, nullable, number, object, text } from "../check";
import { now } from "../clock";
import { type Points, range } from "../promql";
import { BASE, request } from "../request";
import { CPU, worst } from "./metrics";

/** How busy and how full a host is; shares are from 0 to 1, null is what is not known. */
export interface Vital {
  name: string;
  cpu: number | null;
  cores: number;
  load1: number | null;
  memory: number | null;
  swap: number | null;
  /** Of the fullest file system, which is mounted at `mountpoint`. */
  filesystem: number | null;
  mountpoint: string | null;
  receive_bytes_per_s: number | null;
  transmit_bytes_per_s: number | null;
  /** Share of the TCP segments sent that had been sent before. */
  retransmit: number | null;
  /** Share of the time in which some task waited. */
  pressure: { cpu: number | null; memory: number | null; io: number | null };
}

const orUnknown = nullable(number);
const vital = object<Vital>({
  name: text,
  cpu: orUnknown,
  cores: number,
  load1: orUnknown,
  memory: orUnknown,
  swap: orUnknown,
  filesystem: orUnknown,
  mountpoint: nullable(text),
  receive_bytes_per_s: orUnknown,
  transmit_bytes_per_s: orUnknown,
  retransmit: orUnknown,
  pressure: object({ cpu: orUnknown, memory: orUnknown, io: orUnknown }),
});
const vitals = object<{ hosts: Vital[] }>({ hosts: list(vital) });

/** What a small line shows. */
export const TREND_MS = 600_000;
const TREND_STEP_MS = 10_000;

export type Line = Pick<Points, "t_ms" | "values">;

export class FleetVitals {
  private known = new Map<string, Vital>();
  private lines = new Map<string, Line>();
  /** The time that all lines are of. */
  trendSpan = { from: 0, to: 1 };

  get(name: string): Vital | null {
    return this.known.get(name) ?? null;
  }

  /** The CPU's share over [`TREND_MS`]. */
  trend(name: string): Line | null {
    return this.lines.get(name) ?? null;
  }

  async refresh(signal: AbortSignal): Promise<void> {
    const { hosts } = await request(`${BASE}/vitals`, vitals, signal);
    this.known = new Map(hosts.map((vital) => [vital.name, vital]));
  }

  /** Of these hosts only: each line is a range of its own. */
  async refreshTrends(hosts: string[], signal: AbortSignal): Promise<void> {
    const to = Math.floor(now() / TREND_STEP_MS) * TREND_STEP_MS;
    const span = { from: to - TREND_MS, to };
    const all = hosts.length === 0 ? [] : await range(worst(CPU, hosts, TREND_STEP_MS), { fromMs: span.from, toMs: span.to, stepMs: TREND_STEP_MS }, signal);
    this.lines = byHost(all);
    this.trendSpan = span;
  }
}

export function byHost(all: Points[]): Map<string, Line> {
  return new Map(all.map(({ labels, t_ms, values }) => [labels["instance"] ?? "", { t_ms, values }]));
}
