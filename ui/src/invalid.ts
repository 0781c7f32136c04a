// SPDX-License-Identifier: Apache-2.0
//! Samples of one host that have failed a check (docs/checks.md), by series: in charts the last valid value stands in
//! their place.

import type { ChartSpec, Scene } from "./charts/frame";
import { quantity } from "./format";
import { type Points, quote, range } from "./promql";
import type { Span } from "./view";

export interface InvalidSample {
  t_ms: number;
  value: number;
  reason: string;
}

/** What a failed sample's series has beside the labels of the series that it failed in. */
const OWN = ["__name__", "instance", "metric", "reason"];

export class InvalidSamples {
  private readonly bySeries = new Map<string, InvalidSample[]>();
  /** Charts ask in each frame, mostly of the same series. */
  private readonly found = new WeakMap<object, readonly InvalidSample[]>();

  /** `hostLabels` are those that all series of the host have. */
  constructor(
    all: Points[],
    private readonly hostLabels: Record<string, string>,
  ) {
    for (const { labels, t_ms, values } of all) {
      const { metric = "", reason = "" } = labels;
      const key = this.keyOf(metric, labels);
      const samples = t_ms.map((t, i) => ({ t_ms: t, value: values[i]!, reason }));
      this.bySeries.set(key, [...(this.bySeries.get(key) ?? []), ...samples]);
    }
  }

  /** Those of a series, whatever the reason. */
  of(series: { name: string; labels: Record<string, string> }): readonly InvalidSample[] {
    if (this.bySeries.size === 0) return [];
    let found = this.found.get(series);
    if (found === undefined) {
      found = this.bySeries.get(this.keyOf(series.name, series.labels)) ?? [];
      this.found.set(series, found);
    }
    return found;
  }

  private keyOf(name: string, labels: Record<string, string>): string {
    const own = Object.entries(labels).filter(([label]) => !OWN.includes(label) && !(label in this.hostLabels));
    return JSON.stringify([name, ...own.sort(([a], [b]) => (a < b ? -1 : 1))]);
  }
}

/** Those of a chart in its time, with the label of their line and their own unit. */
export function invalidIn(spec: ChartSpec, scene: Scene): { sample: InvalidSample; label: string; unit: string }[] {
  const { invalid } = scene;
  if (invalid === undefined) return [];
  return spec.series.flatMap((series) => {
    const found = invalid.of(series).filter(({ t_ms }) => scene.from <= t_ms && t_ms <= scene.to);
    const label = spec.lines.length > 1 ? (spec.lines.find(({ inputs }) => inputs.includes(series.series))?.label ?? "") : "";
    return found.map((sample) => ({ sample, label, unit: series.unit }));
  });
}

/** The pointer need not hit one. */
const NEAR_PX = 5;

/** The one nearest to `t` on a chart of this width, in words; null where there is none near. */
export function invalidAt(spec: ChartSpec, scene: Scene, t: number, widthPx: number): string | null {
  const reachMs = (NEAR_PX * (scene.to - scene.from)) / Math.max(1, widthPx);
  const away = ({ sample }: { sample: InvalidSample }): number => Math.abs(sample.t_ms - t);
  const near = invalidIn(spec, scene).filter((one) => away(one) <= reachMs);
  if (near.length === 0) return null;
  const { sample, label, unit } = near.reduce((best, one) => (away(one) < away(best) ? one : best));
  const value = Number.isNaN(sample.value) ? "none" : quantity(sample.value, unit);
  const more = near.length > 1 ? `, and ${near.length - 1} more` : "";
  return `invalid${label === "" ? "" : ` ${label}`}: ${value} (${sample.reason.replaceAll("_", " ")})${more}`;
}

const NONE = new InvalidSamples([], {});
/** So many times of the span are told apart, no shorter than a row may be. */
const STEPS = 600;
const SHORTEST_MS = 100;
/** Of the span that is asked for more on both sides: the next look is often beside it. */
const BESIDE = 0.5;
const EVERY_MS = 2000;
const AFTER_FAILURE_MS = 30_000;

/** Reads those of what is looked at, once the host has any. */
export class InvalidReader {
  samples = NONE;
  private have: (Span & { count: number }) | null = null;
  private isBusy = false;
  private notBefore = -Infinity;

  constructor(
    private readonly host: string,
    private readonly signal: AbortSignal,
    private readonly changed: () => void,
  ) {}

  /** What is looked at, and how many failed samples the host has had so far. */
  need(span: Span, count: number, hostLabels: Record<string, string>): void {
    const { have } = this;
    const isThere = have !== null && have.count === count && have.from <= span.from && span.to <= have.to;
    if (count === 0 || isThere || this.isBusy || performance.now() < this.notBefore || this.signal.aborted) return;
    const beside = (span.to - span.from) * BESIDE;
    void this.read({ from: span.from - beside, to: span.to + beside }, count, hostLabels);
  }

  private async read({ from, to }: Span, count: number, hostLabels: Record<string, string>): Promise<void> {
    this.isBusy = true;
    const stepMs = Math.max(SHORTEST_MS, Math.ceil((to - from) / STEPS));
    const query = `last_over_time(onlooker_invalid_sample{instance=${quote(this.host)}}[${stepMs}ms])`;
    try {
      const all = await range(query, { fromMs: Math.floor(from / stepMs) * stepMs, toMs: Math.ceil(to / stepMs) * stepMs, stepMs }, this.signal);
      this.samples = new InvalidSamples(all, hostLabels);
      this.have = { from, to, count };
      this.notBefore = performance.now() + EVERY_MS;
      this.changed();
    } catch {
      // The page shows everything else without them.
      this.notBefore = performance.now() + AFTER_FAILURE_MS;
    }
    this.isBusy = false;
  }
}
