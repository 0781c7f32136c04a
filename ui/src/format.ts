// SPDX-License-Identifier: Apache-2.0
//! Numbers as people read them: SI prefixes, binary ones for bytes, durations. Pure, but for the zone of times.

import { wall } from "./zone";

/** Shown where there is no value. */
export const NONE = "–";

const SI: readonly [number, string][] = [
  [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""], [1e-3, "m"], [1e-6, "µ"], [1e-9, "n"],
];
const BINARY: readonly [number, string][] = [
  [2 ** 50, "Pi"], [2 ** 40, "Ti"], [2 ** 30, "Gi"], [2 ** 20, "Mi"], [2 ** 10, "Ki"], [1, ""],
];

/** Three significant digits, without an exponent where that is short; whole numbers whole. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return value.toString();
  if (size < 0.001 || size >= 1e6) return value.toPrecision(3);
  return size >= 99.95 ? value.toFixed(0) : size >= 9.995 ? value.toFixed(1) : size >= 0.9995 ? value.toFixed(2) : value.toPrecision(2);
}

function scaled(value: number, prefixes: readonly [number, string][], unit: string): string {
  const size = Math.abs(value);
  const fit = prefixes.find(([factor]) => size >= factor * 0.9995) ?? prefixes[prefixes.length - 1]!;
  const [factor, prefix] = size === 0 ? [1, ""] : fit;
  const shown = digits(value / factor);
  const suffix = prefix + unit;
  return suffix === "" ? shown : `${shown}\u202f${suffix}`;
}

/** Whether prefixes are powers of 1024: sizes are counted so, rates are not (MB/s as `ip`, `iostat` and Grafana have them). */
export const isBinary = (unit: string, perSecond: boolean): boolean => unit === "bytes" && !perSecond;

/** A value in a unit of the schema (`bytes`, `seconds`, `ratio`, or a word), `share` or `cores`; `perSecond` for the rate of a counter. */
export function quantity(value: number | null, unit: string, perSecond = false): string {
  if (value === null || Number.isNaN(value)) return NONE;
  if (!Number.isFinite(value)) return value > 0 ? "+∞" : "−∞";
  if (unit === "share" || unit === "ratio") return `${digits(value * 100)}\u202f%`;
  if (unit === "cores") return `${cores(value)}\u202f${value === 1 ? "core" : "cores"}`;
  if (unit === "bytes") return perSecond ? scaled(value, SI.slice(0, 5), "B/s") : scaled(value, BINARY, "B");
  // Seconds each second are a share of the time.
  if (unit === "seconds") return perSecond ? `${digits(value * 100)}\u202f%` : duration(value * 1000);
  const short = ["", "1", "count", "number"].includes(unit) ? "" : unit;
  // Only symbols take prefixes: there are no kilojobs. The word stands beside the name.
  const isWord = short === "" || short.length > 2;
  if (perSecond) return scaled(value, SI.slice(0, 5), isWord ? "/s" : `${short}/s`);
  // Below one a count is not "milli-things".
  if (isWord) return scaled(value, SI.slice(0, 5), "");
  return scaled(value, SI, short);
}

/** A number of cores, for a column that says so. Less than a thousandth is a tick of the clock now and then. */
export function cores(value: number | null): string {
  if (value === null || Number.isNaN(value)) return NONE;
  return value > 0 && value < 0.001 ? "<0.001" : digits(value);
}

/** A quantity on an axis, where values are round: without trailing zeros. */
export function tick(value: number, unit: string, perSecond = false): string {
  return quantity(Number(value.toPrecision(6)), unit, perSecond).replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/** A length of time, from nanoseconds to days. */
export function duration(ms: number | null): string {
  if (ms === null || Number.isNaN(ms)) return NONE;
  const size = Math.abs(ms);
  if (size === 0) return "0\u202fs";
  if (size < 60_000) return scaled(ms / 1000, SI, "s").replace(/^1000\u202fms$/, "1\u202fs");
  const seconds = Math.round(size / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"], [Math.floor(seconds / 3600) % 24, "h"], [Math.floor(seconds / 60) % 60, "min"], [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  const shown = parts.slice(first, first + 2).filter(([count], i) => i === 0 || count > 0);
  return (ms < 0 ? "−" : "") + shown.map(([count, name]) => `${count}\u202f${name}`).join(" ");
}

/** An age that counts up before the reader's eyes: steps no finer than 10 ms, no jumping digits. */
export function age(ms: number | null): string {
  if (ms === null || Number.isNaN(ms)) return NONE;
  if (ms < 0) return "0\u202fms";
  if (ms < 995) return `${Math.round(ms / (ms < 100 ? 1 : 10)) * (ms < 100 ? 1 : 10)}\u202fms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)}\u202fs`;
  return duration(ms);
}

export const micros = (us: number | null): string => duration(us === null ? null : us / 1000);

export const bytes = (value: number | null): string => quantity(value, "bytes");

/** Whole numbers with thin spaces between thousands. */
export function count(value: number | null): string {
  if (value === null || Number.isNaN(value)) return NONE;
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Words of an error as a sentence that another one may follow. */
export function sentence(words: string): string {
  const whole = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.?!…]$/.test(whole) ? whole : `${whole}.`;
}

const two = (value: number): string => value.toString().padStart(2, "0");

/** Time of day in the chosen zone; with as many digits as `stepMs` makes meaningful. */
export function clockTime(ms: number, stepMs = 1000): string {
  const date = wall(ms);
  const base = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
  if (stepMs >= 60_000) return base;
  const seconds = `${base}:${two(date.getUTCSeconds())}`;
  if (stepMs >= 1000) return seconds;
  const fraction = date.getUTCMilliseconds().toString().padStart(3, "0");
  return `${seconds}.${stepMs >= 100 ? fraction.slice(0, 1) : fraction}`;
}

/** The day in the chosen zone, as 2026-11-27. */
export const day = (ms: number): string => wall(ms).toISOString().slice(0, 10);

/** Time of day, and the date unless it is today's. */
export function moment(ms: number, now: number, stepMs = 1000): string {
  const time = clockTime(ms, stepMs);
  return day(ms) === day(now) ? time : `${day(ms)} ${time}`;
}

/** Counters by reason as one line: `timeout 2, busy 41`. */
export function reasons(counts: Record<string, number>): string {
  const seen = Object.entries(counts).filter(([, n]) => n > 0);
  seen.sort((a, b) => b[1] - a[1]);
  return seen.map(([reason, n]) => `${reason.replaceAll("_", " ")} ${count(n)}`).join(", ");
}

export const sum = (counts: Record<string, number>): number => Object.values(counts).reduce((total, n) => total + n, 0);
