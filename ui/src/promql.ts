// SPDX-License-Identifier: Apache-2.0
//! PromQL over the controller's own Prometheus API (docs/promql.md): queries as texts, answers typed and checked. A refused query is an ApiError with Prometheus' words.

import { PROMETHEUS, request } from "./api";
import { type Check, ContractError, list, object, oneOf, optional, record, text } from "./check";

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
const matrix = object({
  data: object({ resultType: oneOf("matrix"), result: list(object({ metric: record(text), values: optional(list(point), []) })) }),
});

/** The values of `query` at a time. */
export async function instant(query: string, timeMs: number, signal: AbortSignal): Promise<Sample[]> {
  const { data } = await request(`${PROMETHEUS}/query`, vector, signal, { query, time: String(timeMs / 1000) });
  return data.result.map(({ metric, value }) => ({ labels: metric, value: value[1] }));
}

/** The values of `query` at each step between two times, both included. */
export async function range(query: string, span: { fromMs: number; toMs: number; stepMs: number }, signal: AbortSignal): Promise<Points[]> {
  const form = { query, start: String(span.fromMs / 1000), end: String(span.toMs / 1000), step: String(span.stepMs / 1000) };
  const { data } = await request(`${PROMETHEUS}/query_range`, matrix, signal, form);
  return data.result.map(({ metric, values }) => ({ labels: metric, t_ms: values.map(([t]) => t), values: values.map(([, value]) => value) }));
}

/** A text in quotes. */
export const quote = (value: string): string => `"${value.replace(/[\\"]/g, "\\$&").replace(/\n/g, "\\n")}"`;

/** A regular expression (RE2) that matches just this text. */
export const literal = (value: string): string => value.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");

/** A matcher for any of these texts. */
export const anyOf = (label: string, values: string[]): string => (values.length === 1 ? `${label}=${quote(values[0]!)}` : `${label}=~${quote(values.map(literal).join("|"))}`);

/** A label of `together`'s own: `or` compares all labels but the name of the metric, and would take values of two metrics for the same. */
export const COLUMN = "column";

/** Several expressions in one query: their values come with the name under which they stand here as the label `COLUMN`. */
export function together(parts: Record<string, string>): string {
  return Object.entries(parts).map(([name, expression]) => `label_replace(${expression}, "${COLUMN}", ${quote(name)}, "", "")`).join(" or ");
}

/** The values that `together` named. */
export const named = <T extends { labels: Record<string, string> }>(all: T[], name: string): T[] => all.filter((item) => item.labels[COLUMN] === name);
