// SPDX-License-Identifier: Apache-2.0
//! What there is to query: metrics, labels and their values, asked for once they are needed and kept for a while.

import { labelNames, labelValues, metricMetadata } from "../promql";
import type { Metric } from "./complete";
import type { Place } from "./typed";

/** Programs and hosts come and go. */
const KEPT_MS = 60_000;

export class Known {
  private readonly abort = new AbortController();
  private readonly kept = new Map<string, { at: number; names: Promise<string[]> }>();
  private all: ReadonlyMap<string, Metric> = new Map();
  private at = -Infinity;
  private asking: Promise<ReadonlyMap<string, Metric>> | null = null;

  /** As far as they are known already. */
  get metrics(): ReadonlyMap<string, Metric> {
    return this.all;
  }

  readMetrics(): Promise<ReadonlyMap<string, Metric>> {
    if (performance.now() - this.at < KEPT_MS) return Promise.resolve(this.all);
    this.asking ??= this.askMetrics().finally(() => (this.asking = null));
    return this.asking;
  }

  /** Labels, or values of one, that may stand at a place. */
  names(place: Place): Promise<string[]> {
    if (place.kind === "label") return this.keep(`label ${place.selectors.join("\n")}`, (signal) => labelNames(place.selectors, signal));
    if (place.kind === "value") return this.keep(`${place.label} ${place.selectors.join("\n")}`, (signal) => labelValues(place.label, place.selectors, signal));
    return Promise.resolve([]);
  }

  destroy(): void {
    this.abort.abort();
  }

  /** Names are those of series: of a histogram also `..._bucket`, for which the metadata has no entry. */
  private async askMetrics(): Promise<ReadonlyMap<string, Metric>> {
    const { signal } = this.abort;
    const [names, metadata] = await Promise.all([labelValues("__name__", [], signal), metricMetadata(signal)]);
    const told = (name: string): Omit<Metric, "name"> => {
      const [, whole = "", part] = /^(.*)_(bucket|sum|count)$/.exec(name) ?? [];
      const histogram = metadata[whole];
      // Of these only the sum is of the histogram's unit.
      return metadata[name] ?? (histogram === undefined ? { type: "", unit: "", help: "" } : { ...histogram, type: "counter", unit: part === "sum" ? histogram.unit : "" });
    };
    this.all = new Map([...new Set([...names, ...Object.keys(metadata)])].sort().map((name) => [name, { name, ...told(name) }]));
    this.at = performance.now();
    return this.all;
  }

  private keep(key: string, ask: (signal: AbortSignal) => Promise<string[]>): Promise<string[]> {
    const before = this.kept.get(key);
    if (before !== undefined && performance.now() - before.at < KEPT_MS) return before.names;
    const names = ask(this.abort.signal);
    this.kept.set(key, { at: performance.now(), names });
    names.catch(() => this.kept.delete(key));
    return names;
  }
}
