// SPDX-License-Identifier: Apache-2.0
//! Telemetry tables of a collector, typed and checked: docs/http.md, Telemetry.

import { boolean, list, nullable, number, object, oneOf, optional, text } from "../check";
import { BASE, query, request } from "../request";

export interface TelemetryTable {
  name: string;
  primitive: "key-write" | "append" | "key-increment";
  payload_bytes: number;
  places: number;
}

/** What a table has of a key. */
export interface KeyAnswer {
  key: string;
  outcome?: "value" | "empty" | "conflict" | undefined;
  value?: string | undefined;
  age_ms?: number | undefined;
  copies?: number | undefined;
  disputed?: boolean | undefined;
  count?: number | undefined;
  count_before?: number | null | undefined;
}

export interface Entry {
  number: number;
  age_ms: number;
  entry: string;
}

/** Entries since the last time, and where to ask on. */
export interface Entries {
  entries: Entry[];
  lost: number;
  next: string;
}

const tableCheck = object<TelemetryTable>({ name: text, primitive: oneOf("key-write", "append", "key-increment"), payload_bytes: number, places: number });
const answerCheck = object<KeyAnswer>({
  key: text, outcome: optional(oneOf("value", "empty", "conflict"), undefined), value: optional(text, undefined), age_ms: optional(number, undefined), copies: optional(number, undefined), disputed: optional(boolean, undefined),
  count: optional(number, undefined), count_before: optional(nullable(number), undefined),
});
const entriesCheck = object<Entries>({ entries: list(object<Entry>({ number, age_ms: number, entry: text })), lost: number, next: text });

const address = (host: string): string => `${BASE}/hosts/${encodeURIComponent(host)}/telemetry`;

export async function getTables(host: string, signal?: AbortSignal): Promise<TelemetryTable[]> {
  return (await request(address(host), object<{ tables: TelemetryTable[] }>({ tables: list(tableCheck) }), signal)).tables;
}

export async function getKey(host: string, table: TelemetryTable, key: string, signal?: AbortSignal): Promise<KeyAnswer> {
  const path = `${address(host)}/${encodeURIComponent(table.name)}?${query([["key", key], ["format", formatOf(table)]])}`;
  const [answer] = (await request(path, object<{ keys: KeyAnswer[] }>({ keys: list(answerCheck) }), signal)).keys;
  return answer ?? { key, outcome: "empty" };
}

export function getEntries(host: string, table: TelemetryTable, after: string | null, signal?: AbortSignal): Promise<Entries> {
  const parameters: [string, string][] = [["format", formatOf(table)]];
  if (after !== null) parameters.push(["after", after]);
  return request(`${address(host)}/${encodeURIComponent(table.name)}/entries?${query(parameters)}`, entriesCheck, signal);
}

/** What a payload most likely is, by its length: a flow, a flow with a switch and a reason, words; else digits. */
export function formatOf({ payload_bytes }: TelemetryTable): string {
  if (payload_bytes === 13 || payload_bytes === 37) return "flow";
  if (payload_bytes === 18 || payload_bytes === 42) return "flow,u32,u8";
  return payload_bytes % 4 === 0 ? "u32" : "hex";
}
