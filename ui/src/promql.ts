// SPDX-License-Identifier: Apache-2.0
//! PromQL over the controller's own Prometheus API (docs/promql.md): queries as texts, answers typed and checked. A refused query is an ApiError with Prometheus' words.

import { type Check, ContractError, anything, list, object, oneOf, optional, record, text } from "./check";
import { COLUMNS, decoded, isColumns } from "./columns";
import { PROMETHEUS, answered, request } from "./request";

/** One value of an instant vector. The name of its metric, where it has one, is the label `__name__`. */
export interface Sample {
  labels: Record<string, string>;
  value: number;
}

/** One series of a range: as many times as values. */
export interface Points {
  labels: Record<string, string>;
  t_ms: number[];
  values: number[];
}

/** A time in seconds, and a number as Prometheus writes it. */
const point: Check<[number, number]> = (value, path) => {
  if (!Array.isArray(value) || value.length !== 2 || typeof value[0] !== "number") throw new ContractError(path, "a time and a value", value);
  return [value[0] * 1000, numberOf(text(value[1], `${path}[1]`))];
};

function numberOf(written: string): number {
  return written === "+Inf" ? Infinity : written === "-Inf" ? -Infinity : Number(written);
}

// Native histograms have no `value`: nobody asks for any here.
const NO_VALUE: [number, number] = [NaN, NaN];
const vector = object({
  data: object({ resultType: oneOf("vector"), result: list(object({ metric: record(text), value: optional(point, NO_VALUE) })) }),
});
/** Of a matrix there are hundreds of thousands: taken apart in one go. */
const points: Check<Omit<Points, "labels">> = (value, path) => {
  if (!Array.isArray(value)) throw new ContractError(path, "a list", value);
  const out: Omit<Points, "labels"> = { t_ms: new Array<number>(value.length), values: new Array<number>(value.length) };
  value.forEach((pair: unknown, i) => {
    if (!Array.isArray(pair) || pair.length !== 2 || typeof pair[0] !== "number" || typeof pair[1] !== "string") throw new ContractError(`${path}[${i}]`, "a time and a value", pair);
    out.t_ms[i] = pair[0] * 1000;
    out.values[i] = numberOf(pair[1]);
  });
  return out;
};
const matrix = object({
  data: object({ resultType: oneOf("matrix"), result: list(object({ metric: record(text), values: optional(points, { t_ms: [], values: [] }) })) }),
});

/** The controller evaluates for 30 s at most, after up to 10 s for its turn. */
const QUERY_TIMEOUT_MS = 45_000;

/** The values of `query` at a time. */
export async function instant(query: string, timeMs: number, signal: AbortSignal): Promise<Sample[]> {
  const { data } = await request(`${PROMETHEUS}/query`, vector, signal, { form: { query, time: String(timeMs / 1000) } });
  return data.result.map(({ metric, value }) => ({ labels: metric, value: value[1] }));
}

/** The values of `query` at each step between two times, both included: in columns, where the controller has them so. */
export async function range(query: string, span: { fromMs: number; toMs: number; stepMs: number }, signal: AbortSignal): Promise<Points[]> {
  const form = { query, start: String(span.fromMs / 1000), end: String(span.toMs / 1000), step: String(span.stepMs / 1000) };
  const take = (answer: Response): Promise<string | ArrayBuffer> => (isColumns(answer) ? answer.arrayBuffer() : answer.text());
  const body = await answered(`${PROMETHEUS}/query_range`, take, signal, { form, timeoutMs: QUERY_TIMEOUT_MS, accept: `${COLUMNS}, application/json` });
  if (typeof body !== "string") return decoded(body);
  const { data } = matrix(JSON.parse(body), "");
  return data.result.map(({ metric, values }) => ({ labels: metric, ...values }));
}

/** What any query gives. Of a native histogram its count and sum. */
export type Point = { t_ms: number; value: number } | { t_ms: number; count: number; sum: number };
export interface Result {
  /** `vector`: one point a series. */
  kind: "vector" | "matrix" | "scalar" | "string";
  series: { labels: Record<string, string>; points: Point[] }[];
  /** Of the kind `string`. */
  text: string;
  /** What Prometheus calls warnings and infos. */
  warnings: string[];
  infos: string[];
}

const histogram: Check<Point> = (value, path) => {
  if (!Array.isArray(value) || value.length !== 2 || typeof value[0] !== "number") throw new ContractError(path, "a time and a histogram", value);
  const { count, sum } = object({ count: text, sum: text })(value[1], `${path}[1]`);
  return { t_ms: value[0] * 1000, count: numberOf(count), sum: numberOf(sum) };
};
const float: Check<Point> = (value, path) => {
  const [t_ms, number] = point(value, path);
  return { t_ms, value: number };
};
const anySeries = object({ metric: record(text), value: optional<Point | null>(float, null), values: optional(list(float), []), histogram: optional<Point | null>(histogram, null), histograms: optional(list(histogram), []) });
const anyResult: Check<Pick<Result, "kind" | "series" | "text">> = (value, path) => {
  const { resultType: kind, result } = object({ resultType: oneOf("vector", "matrix", "scalar", "string"), result: anything })(value, path);
  if (kind === "string") return { kind, series: [], text: text(list(anything)(result, `${path}.result`)[1], `${path}.result[1]`) };
  if (kind === "scalar") return { kind, series: [{ labels: {}, points: [float(result, `${path}.result`)] }], text: "" };
  const series = list(anySeries)(result, `${path}.result`).map((item) => ({
    labels: item.metric,
    points: [item.value, item.histogram, ...item.values, ...item.histograms].filter((one) => one !== null).sort((a, b) => a.t_ms - b.t_ms),
  }));
  return { kind, series, text: "" };
};
const answer = object({ data: anyResult, warnings: optional(list(text), []), infos: optional(list(text), []) });

/** Any query, at a time or over a range: of at most `limit` series. */
export async function ask(query: string, when: { atMs: number } | { fromMs: number; toMs: number; stepMs: number }, limit: number, signal: AbortSignal): Promise<Result> {
  const times: Record<string, string> = "atMs" in when ? { time: String(when.atMs / 1000) } : { start: String(when.fromMs / 1000), end: String(when.toMs / 1000), step: String(when.stepMs / 1000) };
  const { data, warnings, infos } = await request(`${PROMETHEUS}/${"atMs" in when ? "query" : "query_range"}`, answer, signal, { form: { query, limit: String(limit), ...times }, timeoutMs: QUERY_TIMEOUT_MS });
  return { ...data, warnings, infos };
}

const names = object({ data: list(text) });
const metadata = object({ data: record(list(object({ type: text, unit: text, help: text }))) });
/** A host with many processes has as many values of `pid`. */
const MAX_NAMES = 5000;

const matching = (selectors: string[]): string => [...selectors.map((selector) => `match[]=${encodeURIComponent(selector)}`), `limit=${MAX_NAMES}`].join("&");

/** Names of labels, of the series that match a selector; without selectors, of all. */
export const labelNames = async (selectors: string[], signal: AbortSignal): Promise<string[]> => (await request(`${PROMETHEUS}/labels?${matching(selectors)}`, names, signal)).data;

/** Values of a label, in the same way. */
export const labelValues = async (label: string, selectors: string[], signal: AbortSignal): Promise<string[]> =>
  (await request(`${PROMETHEUS}/label/${encodeURIComponent(label)}/values?${matching(selectors)}`, names, signal)).data;

/** Type, unit and help by the name of the metric. */
export async function metricMetadata(signal: AbortSignal): Promise<Record<string, { type: string; unit: string; help: string }>> {
  const { data } = await request(`${PROMETHEUS}/metadata`, metadata, signal);
  return Object.fromEntries(Object.entries(data).flatMap(([name, [first]]) => (first === undefined ? [] : [[name, first]])));
}

/** A text in quotes. */
export const quote = (value: string): string => `"${value.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n")}"`;

/** A regular expression (RE2) that matches just this text. */
export const literal = (value: string): string => value.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");

/** A matcher for any of these texts. */
export const anyOf = (label: string, values: readonly string[]): string => (values.length === 1 ? `${label}=${quote(values[0]!)}` : `${label}=~${quote(values.map(literal).join("|"))}`);

/** Tells the values of one query apart that has several expressions: `or` leaves out what has all the same labels, whatever its metric. */
const PART = "__part";

/** Several expressions in one query: their values come with the name under which they stand here. */
export function together(parts: Record<string, string>): string {
  return Object.entries(parts).map(([name, expression]) => `label_replace(${expression}, "${PART}", ${quote(name)}, "", "")`).join(" or ");
}

/** The name under which `together` asked for a value; nothing where it did not. */
export const partOf = ({ labels }: { labels: Record<string, string> }): string => labels[PART] ?? "";

/** The values that `together` named. */
export const named = <T extends { labels: Record<string, string> }>(all: T[], name: string): T[] => all.filter((item) => partOf(item) === name);
