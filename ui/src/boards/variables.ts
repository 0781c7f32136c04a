// SPDX-License-Identifier: Apache-2.0
//! What stands in a query for a board's variables, and for those of the time shown. Pure.

import { literal } from "../promql";
import { ALL, type Variable } from "./dashboard";

/** By name: one value, several of which any counts, or `$__all`. What is no option is a regular expression. */
export type Values = ReadonlyMap<string, readonly string[]>;

export interface Times {
  fromMs: number;
  toMs: number;
  stepMs: number;
  /** Between two samples of a series at most. */
  sampledMs: number;
}

/** What is sampled most seldom of what agents publish by default. */
export const SAMPLED_MS = 5000;
/** A rate has so many samples at least, as in Grafana. */
const RATE_SAMPLES = 4;

/** `$name`, `${name}`, `${name:format}` and `[[name]]`. */
const REFERENCE = /\$(\w+)|\$\{(\w+)(?:\.\w+)?(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]/g;

const written = (ms: number): string => (ms % 1000 === 0 ? `${ms / 1000}s` : `${Math.max(1, Math.round(ms))}ms`);

function ofTime({ fromMs, toMs, stepMs, sampledMs }: Times): Readonly<Record<string, string>> {
  const rangeMs = Math.max(1, toMs - fromMs);
  return {
    __interval: written(stepMs), __interval_ms: String(stepMs), __rate_interval: written(Math.max(stepMs + sampledMs, RATE_SAMPLES * sampledMs)), __rate_interval_ms: String(Math.max(stepMs + sampledMs, RATE_SAMPLES * sampledMs)),
    __range: written(Math.ceil(rangeMs / 1000) * 1000), __range_s: String(Math.ceil(rangeMs / 1000)), __range_ms: String(Math.round(rangeMs)),
    __from: String(Math.round(fromMs)), __to: String(Math.round(toMs)), interval: written(stepMs),
  };
}

/** A text with its variables' values; what is no variable stays. `times`: null where none is known. */
export function filled(text: string, variables: readonly Variable[], values: Values, times: Times | null): string {
  const built = times === null ? {} : ofTime(times);
  return text.replace(REFERENCE, (whole, plain?: string, braced?: string, format = "", bracketed?: string, format2 = "") => {
    const name = plain ?? braced ?? bracketed ?? "";
    const variable = variables.find((item) => item.name === name);
    if (variable !== undefined) {
      // A value may be made of others, as a constant of Grafana's or the step that is chosen.
      const value = formatted(variable, values.get(name) ?? variable.current, String(format || format2));
      return value.includes("$__") && times !== null ? value.replace(/\$(__\w+)/g, (own: string, inner: string) => built[inner] ?? own) : value;
    }
    return built[name] ?? whole;
  });
}

/** The same for people, as in a title: values as they are chosen. */
export const titled = (text: string, variables: readonly Variable[], values: Values): string =>
  text.replace(REFERENCE, (whole, plain?: string, braced?: string, _?: string, bracketed?: string) => {
    const variable = variables.find(({ name }) => name === (plain ?? braced ?? bracketed));
    return variable === undefined ? whole : told(values.get(variable.name) ?? variable.current);
  });

function formatted(variable: Variable, chosen: readonly string[], format: string): string {
  if (chosen.includes(ALL)) return variable.allValue === "" ? ".+" : variable.allValue;
  if (format === "raw" || format === "pipe") return chosen.join("|");
  if (format === "csv") return chosen.join(",");
  // What comes from series, or is typed, stands between quotes; what the board says may be a part of the query.
  if (!variable.isMulti) return ["values", "text", "unknown"].includes(variable.kind) ? quoted(chosen.join("|")) : chosen.join("|");
  const patterns = chosen.map((value) => quoted(isPattern(value) && variable.options.every((option) => option.value !== value) ? value : literal(value)));
  return patterns.length === 1 ? patterns[0]! : `(${patterns.join("|")})`;
}

/** As it stands between double quotes. */
const quoted = (value: string): string => value.replace(/[\\"]/g, "\\$&").replaceAll("\n", "\\n");

/** Whether somebody has typed a regular expression: names of hosts and devices have dots, but hardly any of these. */
const isPattern = (value: string): boolean => /[*+?|()[\]^$]/.test(value);

/** What is typed: all, or values apart by commas. */
export function typed(text: string, hasAll: boolean): string[] {
  const parts = text.split(",").map((part) => part.trim()).filter((part) => part !== "");
  return parts.length === 0 || (hasAll && parts.some((part) => part.toLowerCase() === "all")) ? [ALL] : parts;
}

export const told = (values: readonly string[]): string => (values.includes(ALL) ? "All" : values.join(", "));

/** What `label_values` asks for; null for other calls. */
export function labelQuery(query: string): { selector: string; label: string } | null {
  const found = /^\s*label_values\(\s*(?:([^]*?)\s*,\s*)?(\w+)\s*\)\s*$/.exec(query);
  return found === null ? null : { selector: found[1] ?? "", label: found[2]! };
}

/** Values that its regular expression lets through, or the part of them that it names. */
export function narrowed(values: readonly string[], regex: string): string[] {
  const [, body = regex, flags = ""] = /^\/(.*)\/(\w*)$/s.exec(regex) ?? [];
  if (body === "") return [...values];
  let pattern: RegExp;
  try {
    pattern = new RegExp(body, flags.replace("g", ""));
  } catch {
    return [...values];
  }
  return [...new Set(values.flatMap((value) => {
    const found = pattern.exec(value);
    return found === null ? [] : [found.groups?.["value"] ?? found[1] ?? value];
  }))];
}

/** A length of time as Grafana writes one; null for anything else. */
export function lengthOf(text: string): number | null {
  const [, count, unit] = /^>?\s*(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text.trim()) ?? [];
  return unit === undefined ? null : Number(count) * { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[unit as "ms" | "s" | "m" | "h" | "d"];
}
