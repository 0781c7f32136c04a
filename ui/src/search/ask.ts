// SPDX-License-Identifier: Apache-2.0
//! What the controller finds for some words (docs/http.md, Search), typed and checked.

import { type HostState, type Series, type SeriesType, hostState, seriesList, seriesType } from "../api";
import { list, number, object, optional, record, text } from "../check";
import { BASE, query, request } from "../request";

export interface FoundMetric {
  name: string;
  type: SeriesType;
  unit: string;
  help: string;
  /** So many were found. */
  series: number;
  /** They are on so many hosts. */
  hosts: number;
}

export interface FoundHost {
  name: string;
  address: string;
  labels: Record<string, string>;
  state: HostState;
  /** Of a metric, on this host; 0 where a host was looked for. */
  series: number;
}

export interface FoundAlert {
  name: string;
  group: string;
  firing: number;
  pending: number;
}

/** The controller looks through all hosts, after up to 10 s for its turn. */
const ASKING = { timeoutMs: 30_000 };

/** The best of what was found, and how many there are. */
export interface Best<T> {
  total: number;
  list: T[];
}

export interface Found {
  searched: { hosts: number; series: number };
  metrics: Best<FoundMetric> & { series: number };
  /** Both empty where one host is searched. */
  hosts: Best<FoundHost>;
  alerts: Best<FoundAlert>;
}

const best = <T>(item: (value: unknown, path: string) => T): ((value: unknown, path: string) => Best<T>) => object<Best<T>>({ total: number, list: list(item) });
const metric = object<FoundMetric>({ name: text, type: seriesType, unit: text, help: text, series: number, hosts: number });
const host = object<FoundHost>({ name: text, address: text, labels: record(text), state: hostState, series: optional(number, 0) });
const alert = object<FoundAlert>({ name: text, group: text, firing: number, pending: number });
const found = object<Found>({
  searched: object({ hosts: number, series: number }),
  metrics: object({ total: number, series: number, list: list(metric) }),
  hosts: optional(best(host), { total: 0, list: [] }),
  alerts: optional(best(alert), { total: 0, list: [] }),
});

/** Of all hosts, where `host` is null. */
export function find(search: string, host: string | null, limit: number, signal: AbortSignal): Promise<Found> {
  const of: [string, string][] = host === null ? [] : [["host", host]];
  return request(`${BASE}/search?${query([["search", search], ...of, ["limit", limit]])}`, found, signal, ASKING);
}

/** Hosts that have a metric, of which series have the words. */
export const hostsOf = (metric: string, search: string, limit: number, signal: AbortSignal): Promise<Best<FoundHost>> =>
  request(`${BASE}/metrics/${encodeURIComponent(metric)}/hosts?${query([["search", search], ["limit", limit]])}`, best(host), signal, ASKING);

/** Series of one metric of a host that have the words, with their values. */
export async function seriesOf(host: string, metric: string, search: string, limit: number, signal?: AbortSignal): Promise<Best<Series>> {
  const { series, total } = await request(`${BASE}/hosts/${encodeURIComponent(host)}/series?${query([["metric", metric], ["search", search], ["limit", limit]])}`, seriesList, signal, ASKING);
  return { total, list: series };
}
