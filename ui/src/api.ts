// SPDX-License-Identifier: Apache-2.0
//! The controller's HTTP interface (docs/http.md), typed and checked. It, promql.ts and search/ask.ts alone know paths and field names of the wire.

import { type Check, anything, boolean, list, nullable, number, numbers, numbersOrNulls, object, oneOf, optional, record, text } from "./check";
import { chunks } from "./chunks";
import { ApiError, BASE, PROMETHEUS, errorText, query, request } from "./request";

export type HostState = "connecting" | "reading" | "silent" | "failed";
export const HOST_STATES: readonly HostState[] = ["reading", "connecting", "silent", "failed"];

export interface Status {
  version: string;
  started_ms: number;
  now_ms: number;
  hosts: Record<string, number>;
  reads_per_s: number;
  blocks_per_s: number;
  rows_per_s: number;
  credits: { total_bytes: number; in_flight_bytes: number; decreases: number };
  store: {
    bytes: number;
    max_bytes: number;
    hot_bytes: number;
    durable_lag_ms: number | null;
    oldest_ms: number | null;
    failed: string | null;
  };
}

export interface Host {
  name: string;
  address: string;
  labels: Record<string, string>;
  state: HostState;
  /** Who answers the READs. */
  via: string | null;
  /** Who sends them. */
  requester: string | null;
  since_ms: number;
  error: string | null;
  interval_ms: number;
  /** Its class where not all hosts can be read in time. */
  priority: "high" | "normal" | "low";
  /** Of the newest values; null where nothing was ever read. */
  age_ms: number | null;
  clock_error_ms: number | null;
  regions: number;
  series: number;
  cycles: number;
  late: number;
  gaps: Record<string, number>;
  invalid_samples: Record<string, number>;
  over_quota: OverQuota[];
  reads: {
    done: number;
    repeated: number;
    timed_out: number;
    refused: number;
    retries: Record<string, number>;
    latency_us: Quantiles & { p90: number };
  };
  lateness_us: Quantiles;
}

/** Hosts, all or those that have changed. */
export interface HostChanges {
  hosts: Host[];
  /** Names of hosts that are no longer there. */
  gone: string[];
  /** These are all: what was known is to be forgotten. */
  whole: boolean;
  /** To ask with the next time. */
  cursor: number;
}

/** What of a host is not kept, since it would cost more than the controller's `[quota]` allows. */
export interface OverQuota {
  quota: string;
  of: string;
  limit: number;
  used: number;
  rows: number;
}

export interface Quantiles {
  p50: number;
  p99: number;
  max: number;
}

export interface Region {
  name: string;
  labels: Record<string, string>;
  acquisition: string[];
  via: string[];
  bytes: number;
  pid: number;
  uid: number;
  orphan: boolean;
  age_ms: number | null;
  problem: string | null;
  series: number;
}

export interface HostDetail extends Host {
  regions_list: Region[];
}

export type SeriesType = "counter" | "gauge" | "histogram" | "info";

export interface Series {
  series: string;
  name: string;
  labels: Record<string, string>;
  type: SeriesType;
  unit: string;
  help: string;
  /** How finely the value really moves. */
  resolution_ms: number;
  acquisition: string;
  region: string;
  value: unknown;
}

/** A metric that a search found: its best series, and how many of its series were found. */
export interface Metric extends Series {
  count: number;
}

export interface Gap {
  from_ms: number;
  to_ms: number;
  reason: string;
}

export type AlertState = "pending" | "firing";

export interface Alert {
  labels: Record<string, string>;
  annotations: Record<string, string>;
  state: AlertState;
  /** When its condition began to hold. */
  since_ms: number;
  value: number;
}

export interface Rule {
  name: string;
  group: string;
  file: string;
  type: "alerting" | "recording";
  query: string;
  health: string;
  error: string | null;
  /** How long its condition must hold; 0 for a recording rule. */
  for_s: number;
  interval_s: number;
  took_s: number;
}

/** Numbers or histograms, by the type of the series. */
export interface RangeSeries {
  series: string;
  type: SeriesType;
  t_ms: number[];
  last: (number | null)[];
  min: (number | null)[];
  max: (number | null)[];
  rate: (number | null)[];
  /** Least and greatest rate between neighbouring rows of each bucket; empty where the controller does not give them. */
  rate_min: (number | null)[];
  rate_max: (number | null)[];
  bounds: (number | null)[];
  counts: (number[] | null)[];
}

export interface Range {
  bucket_ms: number;
  series: RangeSeries[];
  gaps: Gap[];
}

/** A histogram as `live` gives it: observations so far in each bucket that is not empty; `bounds` are upper bounds, null the open end. */
export interface HistogramValue {
  bounds: (number | null)[];
  counts: number[];
}

export interface LiveOpen {
  series: { series: string; type: SeriesType; unit: string }[];
  interval_ms: number;
}

/** What came new: values by the time at which they were acquired, which ascends. `series` are places in `open`; a value is null once its series has gone. */
export interface LiveRow {
  rows: { t_ms: number; series: number[]; v: unknown[] }[];
}

const noNumbers: (number | null)[] = [];
const quantiles = { p50: number, p99: number, max: number };
const noQuantiles = { p50: NaN, p99: NaN, max: NaN };
const orNone = <T>(check: Check<T>, none: T): Check<T> => (value, path) => (value === null ? none : check(value, path));

const status = object<Status>({
  version: text,
  started_ms: number,
  now_ms: number,
  hosts: record(number),
  reads_per_s: number,
  blocks_per_s: number,
  rows_per_s: number,
  credits: object({ total_bytes: number, in_flight_bytes: number, decreases: number }),
  store: object({
    bytes: number,
    max_bytes: number,
    hot_bytes: number,
    durable_lag_ms: nullable(number),
    oldest_ms: nullable(number),
    failed: nullable(text),
  }),
});

export const hostState: Check<HostState> = oneOf("connecting", "reading", "silent", "failed");

const hostFields: { [K in keyof Host]: Check<Host[K]> } = {
  name: text,
  address: text,
  labels: record(text),
  state: hostState,
  via: nullable(text),
  requester: nullable(text),
  since_ms: number,
  error: nullable(text),
  interval_ms: number,
  priority: oneOf("high", "normal", "low"),
  age_ms: nullable(number),
  clock_error_ms: nullable(number),
  regions: number,
  series: number,
  cycles: number,
  late: number,
  gaps: record(number),
  invalid_samples: record(number),
  over_quota: optional(list(object<OverQuota>({ quota: text, of: text, limit: number, used: number, rows: number })), []),
  reads: object({
    done: number,
    repeated: number,
    timed_out: number,
    refused: number,
    retries: record(number),
    latency_us: orNone(object({ ...quantiles, p90: number }), { ...noQuantiles, p90: NaN }),
  }),
  lateness_us: orNone(object(quantiles), noQuantiles),
};

const hostChanges = object<HostChanges>({ hosts: list(object<Host>(hostFields)), gone: list(text), whole: boolean, cursor: number });

const detail = object<HostDetail>({
  ...hostFields,
  regions_list: list(
    object<Region>({
      name: text,
      labels: record(text),
      acquisition: list(text),
      via: list(text),
      bytes: number,
      pid: number,
      uid: number,
      orphan: boolean,
      age_ms: nullable(number),
      problem: nullable(text),
      series: number,
    }),
  ),
});

export const seriesType = oneOf("counter", "gauge", "histogram", "info");

const seriesFields: { [K in keyof Series]: Check<Series[K]> } = {
  series: text,
  name: text,
  labels: record(text),
  type: seriesType,
  unit: text,
  help: text,
  resolution_ms: number,
  acquisition: text,
  region: text,
  value: anything,
};
export const seriesList = object<{ series: Series[]; more: boolean; total: number }>({ series: list(object<Series>(seriesFields)), more: boolean, total: number });
const metricList = object<{ series: Metric[]; more: boolean }>({ series: list(object<Metric>({ ...seriesFields, count: number })), more: boolean });

const gap = object<Gap>({ from_ms: number, to_ms: number, reason: text });
const maybeNumbers = optional(numbersOrNulls, noNumbers);

const range = object<Omit<Range, "series"> & { series: (Omit<RangeSeries, "type"> & { type: SeriesType | null })[] }>({
  bucket_ms: number,
  series: list(
    object({
      series: text,
      // Null: the store has nothing of it.
      type: nullable(seriesType),
      t_ms: numbers,
      last: maybeNumbers,
      min: maybeNumbers,
      max: maybeNumbers,
      rate: maybeNumbers,
      rate_min: maybeNumbers,
      rate_max: maybeNumbers,
      bounds: maybeNumbers,
      counts: optional(list(nullable(numbers)), []),
    }),
  ),
  gaps: list(gap),
});

/** Texts that hold a number or a time, as Prometheus writes them. */
const written = (parse: (text: string) => number): Check<number> => (value, path) => parse(text(value, path));

// Prometheus' own interface: what it calls things is its, too.
const alerts = object({
  data: object({
    alerts: list(object({ labels: record(text), annotations: record(text), state: oneOf("pending", "firing"), activeAt: written(Date.parse), value: written(Number) })),
  }),
});

const rules = object({
  data: object({
    groups: list(object({
      name: text,
      file: text,
      interval: number,
      rules: list(object({
        name: text,
        type: oneOf("alerting", "recording"),
        query: text,
        health: text,
        lastError: optional(nullable(text), null),
        duration: optional(number, 0),
        evaluationTime: number,
      })),
    })),
  }),
});

const liveOpen = object<LiveOpen>({
  series: list(object({ series: text, type: seriesType, unit: text })),
  interval_ms: number,
});
const liveRow = object<LiveRow>({ rows: list(object({ t_ms: number, series: list(number), v: list(anything) })) });
const histogramValue = object<HistogramValue>({ bounds: list(nullable(number)), counts: list(number) });

/** Checks one event of `live`; the name of the event chooses the check. */
export const liveEvents = {
  open: (data: string) => liveOpen(JSON.parse(data), "open"),
  row: (data: string) => liveRow(JSON.parse(data), "row"),
  gap: (data: string) => gap(JSON.parse(data), "gap"),
  host: (data: string) => object<{ state: HostState }>({ state: hostFields.state })(JSON.parse(data), "host"),
  skipped: (data: string) => object<{ rows: number }>({ rows: number })(JSON.parse(data), "skipped"),
  histogram: (value: unknown) => histogramValue(value, "row.v"),
};

export const getStatus = (signal?: AbortSignal): Promise<Status> => request(`${BASE}/status`, status, signal);

/** All hosts; with `since` those that have changed, and the `fresh` ones in any case, as far as their names fit into a URL. */
export function getHosts(since: { cursor: number; fresh: string[] } | null, signal?: AbortSignal): Promise<HostChanges> {
  if (since === null) return request(`${BASE}/hosts`, hostChanges, signal);
  const fresh = (chunks(since.fresh)[0] ?? []).map((name): [string, string] => ["fresh", name]);
  return request(`${BASE}/hosts?${query([["since", since.cursor], ...fresh])}`, hostChanges, signal);
}

export const getHost = (host: string, signal?: AbortSignal): Promise<HostDetail> =>
  request(`${BASE}/hosts/${encodeURIComponent(host)}`, detail, signal);

export function getSeries(host: string, search: string, limit: number, signal?: AbortSignal): Promise<{ series: Series[]; more: boolean }> {
  return request(`${BASE}/hosts/${encodeURIComponent(host)}/series?${query([["search", search], ["limit", limit]])}`, seriesList, signal);
}

/** Metrics in place of series: the best of each, with the number of those found. */
export function getMetrics(host: string, search: string, limit: number, signal?: AbortSignal): Promise<{ series: Metric[]; more: boolean }> {
  return request(`${BASE}/hosts/${encodeURIComponent(host)}/series?${query([["search", search], ["limit", limit], ["by", "metric"]])}`, metricList, signal);
}

/** Alerts that are pending or firing. */
export async function getAlerts(signal?: AbortSignal): Promise<Alert[]> {
  const { data } = await request(`${PROMETHEUS}/alerts`, alerts, signal);
  return data.alerts.map(({ activeAt, ...alert }) => ({ ...alert, since_ms: activeAt }));
}

export async function getRules(signal?: AbortSignal): Promise<Rule[]> {
  const { data } = await request(`${PROMETHEUS}/rules?exclude_alerts=true`, rules, signal);
  return data.groups.flatMap(({ name: group, file, interval, rules: all }) =>
    all.map(({ name, type, query: expression, health, lastError, duration, evaluationTime }) => ({
      name, group, file, type, query: expression, health, error: lastError, for_s: duration, interval_s: interval, took_s: evaluationTime,
    })),
  );
}

export interface Span {
  from_ms: number;
  to_ms: number;
  points: number;
}

/** The controller reads for a query 20 s at most, after up to 10 s for its turn. */
const RANGE_TIMEOUT_MS = 30_000;
/** An answer has 16 MiB of text at most, and a point takes some 100 bytes. */
const MAX_ANSWER_POINTS = 100_000;

/** Series are asked for in as many requests as the lengths of a URL and of an answer demand, one after the other. */
export async function getRange(host: string, series: string[], span: Span, signal?: AbortSignal): Promise<Range> {
  const whole: Range = { bucket_ms: 0, series: [], gaps: [] };
  const most = Math.max(1, Math.floor(MAX_ANSWER_POINTS / span.points));
  for (const part of chunks(series, most)) {
    const parameters: [string, string | number][] = part.map((name) => ["series", name]);
    parameters.push(["from_ms", span.from_ms], ["to_ms", span.to_ms], ["points", span.points]);
    const got = await request(`${BASE}/hosts/${encodeURIComponent(host)}/range?${query(parameters)}`, range, signal, { timeoutMs: RANGE_TIMEOUT_MS });
    whole.bucket_ms = Math.max(whole.bucket_ms, got.bucket_ms);
    whole.series.push(...got.series.filter((item): item is RangeSeries => item.type !== null));
    whole.gaps = got.gaps; // The host's gaps, the same in every part.
  }
  return whole;
}

export function liveUrl(host: string, series: string[], everyMs: number): string {
  const parameters: [string, string | number][] = [["host", host], ...series.map((name): [string, string] => ["series", name])];
  parameters.push(["every_ms", everyMs]);
  return `${BASE}/live?${query(parameters)}`;
}

/** Exchanges the token for a cookie. */
export async function login(token: string): Promise<void> {
  const answer = await fetch("login", {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (!answer.ok) throw new ApiError(answer.status, errorText(await answer.text()) ?? `The controller refused the token (${answer.status}).`);
}
