// SPDX-License-Identifier: Apache-2.0
//! Grafana's names of units, as far as values can be shown in them here. Pure.

import type { Unit } from "../query/result";

export interface Scaled extends Unit {
  /** Values are multiplied by it. */
  scale: number;
}

const of = (unit: string, perSecond = false, scale = 1): Scaled => ({ unit, perSecond, scale });
const PER_SECOND = of("", true);

const UNITS: Readonly<Record<string, Scaled>> = {
  none: of(""), short: of(""), sishort: of(""), locale: of(""),
  percent: of("share", false, 0.01), percentunit: of("share"),
  bytes: of("bytes"), decbytes: of("bytes"), kbytes: of("bytes", false, 2 ** 10), mbytes: of("bytes", false, 2 ** 20), gbytes: of("bytes", false, 2 ** 30),
  bits: of("b"), decbits: of("b"), Bps: of("bytes", true), binBps: of("bytes", true), KBs: of("bytes", true, 1e3), MBs: of("bytes", true, 1e6), bps: of("b", true), binbps: of("b", true),
  ns: of("seconds", false, 1e-9), "µs": of("seconds", false, 1e-6), ms: of("seconds", false, 1e-3), s: of("seconds"), m: of("seconds", false, 60), h: of("seconds", false, 3600), d: of("seconds", false, 86_400),
  dtdurations: of("seconds"), dtdurationms: of("seconds", false, 1e-3), dtdhms: of("seconds"), clocks: of("seconds"), clockms: of("seconds", false, 1e-3),
  cps: PER_SECOND, ops: PER_SECOND, reqps: PER_SECOND, rps: PER_SECOND, wps: PER_SECOND, iops: PER_SECOND, pps: PER_SECOND, eps: PER_SECOND, mps: PER_SECOND,
  hertz: of("Hz"), volt: of("V"), amp: of("A"), watt: of("W"), joule: of("J"), celsius: of("°C"), rotrpm: of("rpm"),
};

/** Null: values are numbers without a unit; an absent name is no reason to say so. */
export function scaledOf(name: string): Scaled | null {
  return UNITS[name] ?? null;
}

/** The name that Grafana has for a unit of ours; empty where there is none. */
export function grafanaUnit({ unit, perSecond }: Unit): string {
  if (unit === "bytes") return perSecond ? "Bps" : "bytes";
  // Seconds each second are a share of the time.
  if (unit === "seconds") return perSecond ? "percentunit" : "s";
  if (unit === "share" || unit === "ratio") return "percentunit";
  return perSecond ? "cps" : "";
}
