// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from "vitest";
import { METRICS, SPANS, stepOf, worst } from "../src/fleet/metrics";
import { byHost } from "../src/fleet/vitals";
import { VIRTUAL, counted } from "../src/host/vitals";
import vectors from "../../crates/series/src/devices/devices.json?raw";

describe("hosts over time", () => {
  test("a column is a whole number of the controller's samples, and there are as many as a screen shows", () => {
    expect(SPANS.map(({ ms }) => stepOf(ms))).toEqual([5000, 15_000, 90_000, 360_000]);
    for (const { ms } of SPANS) expect(ms / stepOf(ms)).toBeLessThanOrEqual(240);
  });

  test("a question asks for the most of each step, of hosts whose names are no patterns", () => {
    expect(worst(METRICS[0]!, ["a"], 15_000)).toBe('max_over_time(onlooker_host_cpu_ratio{instance="a"}[15s])');
    expect(worst(METRICS.find(({ key }) => key === "psi-io")!, ["a.b", "c"], 5000)).toBe('max_over_time(onlooker_host_pressure_ratio{resource="io",instance=~"a\\\\.b|c"}[5s])');
  });

  test("answers are found by host", () => {
    const lines = byHost([{ labels: { instance: "a" }, t_ms: [1], values: [2] }]);
    expect(lines.get("a")).toEqual({ t_ms: [1], values: [2] });
    expect(lines.get("b")).toBeUndefined();
  });
});

test("traffic is counted once, as the controller counts it", () => {
  const { own, others } = JSON.parse(vectors) as { own: string[]; others: string[] };
  expect(counted([...others, ...own], VIRTUAL)).toEqual(own);
  expect(others.filter((device) => !VIRTUAL.test(device))).toEqual([]);
});
