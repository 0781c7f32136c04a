// SPDX-License-Identifier: Apache-2.0
//! A value for each host and column of time, as the heat map has it. All hosts are kept, so that another order or filter asks for nothing. Pure.

import type { Points } from "../promql";

interface Row {
  /** NaN: not known. */
  values: Float32Array;
  /** Columns that end later have not been asked for. */
  until: number;
}

/** Rows of pixels: of each column the greatest value of the row's hosts, and whose it is. */
export interface Pixels {
  rows: number;
  /** Row by row; NaN where nothing is known. */
  values: Float32Array;
  /** Places in the order of hosts; meaningless where nothing is known. */
  hosts: Uint32Array;
  greatest: number;
}

export class Matrix {
  private readonly known = new Map<string, Row>();

  /** `to` is the end of the newest column. */
  constructor(
    readonly stepMs: number,
    readonly columns: number,
    private end: number,
  ) {}

  get to(): number {
    return this.end;
  }

  /** The beginning of the oldest column. */
  get from(): number {
    return this.end - this.columns * this.stepMs;
  }

  /** Hosts by the end of what is known of them: by what is still to be asked for. */
  missing(hosts: readonly string[]): Map<number, string[]> {
    const groups = new Map<number, string[]>();
    for (const host of hosts) {
      const until = Math.max(this.from, this.known.get(host)?.until ?? -Infinity);
      if (until >= this.end) continue;
      const group = groups.get(until);
      if (group === undefined) groups.set(until, [host]);
      else group.push(host);
    }
    return groups;
  }

  /** What is known of these hosts up to `until`; hosts without an answer have no values. */
  fill(hosts: readonly string[], answer: readonly Points[], until: number): void {
    for (const host of hosts) {
      const row = this.known.get(host) ?? { values: new Float32Array(this.columns).fill(NaN), until };
      row.until = until;
      this.known.set(host, row);
    }
    for (const { labels, t_ms, values } of answer) {
      const row = this.known.get(labels["instance"] ?? "");
      if (row === undefined) continue;
      t_ms.forEach((t, i) => {
        const column = Math.round((t - this.from) / this.stepMs) - 1;
        if (column >= 0 && column < this.columns) row.values[column] = values[i]!;
      });
    }
  }

  /** Time goes on: the oldest columns give way to new ones, of which nothing is known yet. */
  advance(to: number): void {
    const by = Math.min(this.columns, Math.round((to - this.end) / this.stepMs));
    if (by <= 0) return;
    this.end = to;
    for (const { values } of this.known.values()) {
      values.copyWithin(0, by);
      values.fill(NaN, this.columns - by);
    }
  }

  at(host: string, column: number): number {
    return this.known.get(host)?.values[column] ?? NaN;
  }

  pixels(hosts: readonly string[], rows: number): Pixels {
    const { columns } = this;
    const pixels: Pixels = { rows, values: new Float32Array(rows * columns).fill(NaN), hosts: new Uint32Array(rows * columns), greatest: 0 };
    hosts.forEach((host, place) => {
      const values = this.known.get(host)?.values;
      if (values === undefined) return;
      const base = rowOf(place, hosts.length, rows) * columns;
      for (let column = 0; column < columns; column++) {
        const value = values[column]!;
        if (Number.isNaN(value) || value <= pixels.values[base + column]!) continue;
        pixels.values[base + column] = value;
        pixels.hosts[base + column] = place;
        if (value > pixels.greatest) pixels.greatest = value;
      }
    });
    return pixels;
  }
}

/** The row of pixels that a host is in. */
export const rowOf = (place: number, hosts: number, rows: number): number => Math.floor((place * rows) / hosts);

/** The hosts of a row of pixels: from the first to the one before the second. */
export const hostsOf = (row: number, hosts: number, rows: number): [number, number] => [Math.ceil((row * hosts) / rows), Math.ceil(((row + 1) * hosts) / rows)];
