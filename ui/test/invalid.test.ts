// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import type { ChartSpec, Scene } from "../src/charts/frame";
import { InvalidSamples, invalidAt } from "../src/invalid";

const series = (metric: string, reason: string, labels: Record<string, string>, samples: [number, number][]) => ({
  labels: { __name__: "onlooker_invalid_sample", instance: "web-3", dc: "a", metric, reason, ...labels },
  t_ms: samples.map(([t]) => t),
  values: samples.map(([, value]) => value),
});
const all = new InvalidSamples(
  [
    series("shop_queue_length", "range", { queue: "orders" }, [[1000, -1], [2000, 1e12]]),
    series("shop_queue_length", "outlier", { queue: "orders" }, [[5000, 700]]),
    series("shop_queue_length", "range", { queue: "mails" }, [[3000, -2]]),
    series("shop_queue_length", "range", {}, [[4000, -3]]),
  ],
  { dc: "a" },
);

describe("failed samples", () => {
  it("are those of their series, whatever the reason, and of no other", () => {
    const times = (name: string, labels: Record<string, string>): number[] => all.of({ name, labels }).map((sample) => sample.t_ms);
    expect(times("shop_queue_length", { queue: "orders" })).toEqual([1000, 2000, 5000]);
    expect(times("shop_queue_length", { queue: "mails" })).toEqual([3000]);
    expect(times("shop_queue_length", {})).toEqual([4000]);
    expect(times("shop_visits_total", { queue: "orders" })).toEqual([]);
  });

  it("are told where the pointer is near, with their line where there are several", () => {
    const input = (queue: string) => ({ series: queue, name: "shop_queue_length", labels: { queue }, unit: "" });
    const line = (queue: string) => ({ label: queue, inputs: [queue] });
    // The chart may show another unit: a rate, or a share.
    const spec = { unit: "share", series: [input("orders"), input("mails")], lines: [line("orders"), line("mails")] } as unknown as ChartSpec;
    const scene = { from: 0, to: 10_000, invalid: all } as unknown as Scene;
    // 10 ms a pixel.
    expect(invalidAt(spec, scene, 1040, 1000)).toBe("invalid orders: -1 (range)");
    expect(invalidAt(spec, scene, 1060, 1000)).toBeNull();
    expect(invalidAt(spec, { ...scene, from: 4500 }, 5000, 1000)).toBe("invalid orders: 700 (outlier)");
    expect(invalidAt({ ...spec, series: [spec.series[0]!], lines: [spec.lines[0]!] }, scene, 1500, 100)).toBe("invalid: -1 (range), and 1 more");
    expect(invalidAt(spec, { from: 0, to: 10_000 } as unknown as Scene, 1000, 1000)).toBeNull();
  });
});
