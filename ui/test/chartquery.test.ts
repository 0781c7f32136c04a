// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import type { Series } from "../src/api";
import { chartOf } from "../src/charts/any";
import type { ChartSpec } from "../src/charts/frame";
import { queryOf } from "../src/charts/query";
import { type Standard, standard } from "../src/charts/standard";
import { MODELS } from "./fixtures/queries";

const series = (name: string, labels: Record<string, string> = {}, more: Partial<Series> = {}): Series => {
  const text = Object.entries(labels).map(([label, value]) => `${label}="${value}"`).join(",");
  return { series: text === "" ? name : `${name}{${text}}`, name, labels, type: name.endsWith("_total") ? "counter" : "gauge", unit: "", help: "", resolution_ms: 1, acquisition: "computed", region: "r", value: 1, ...more };
};
const query = (spec: ChartSpec): string => queryOf(spec, "web-1", 100, 1000);

describe("a chart's query", () => {
  it("asks for the series themselves, of the host", () => {
    expect(query(chartOf([series("node_load1")], "x"))).toBe('node_load1{instance="web-1"}');
    expect(query(chartOf([series("app_total", { program: "shop" })], "x"))).toBe('rate(app_total{instance="web-1",program="shop"}[5s])');
    expect(queryOf(chartOf([series("a_total")], "x"), 'we"b\\', 100, 60_000)).toBe('rate(a_total{instance="we\\"b\\\\"}[60s])');
    expect(query(chartOf([series("slow_total", {}, { resolution_ms: 5000 })], "x"))).toBe('rate(slow_total{instance="web-1"}[15s])');
    expect(query(chartOf([series("app_seconds", {}, { type: "histogram" })], "x"))).toBe('sum by (le) (increase(app_seconds_bucket{instance="web-1"}[5s]))');
  });

  it("finds just the series that are drawn", () => {
    expect(query(chartOf([series("q", { shard: "0" }), series("q", { shard: "1.5" })], "x"))).toBe('q{instance="web-1",shard=~"0|1\\\\.5"}');
    expect(query(chartOf([series("q", { a: "0", b: "0" }), series("q", { a: "1", b: "1" })], "x"))).toBe('q{instance="web-1",a="0",b="0"} or q{instance="web-1",a="1",b="1"}');
    expect(query(chartOf([series("q", { a: "0" }), series("q", { b: "1" })], "x"))).toBe('q{instance="web-1",a="0",b=""} or q{instance="web-1",a="",b="1"}');
  });

  it("names the lines of several metrics, and has no label of the page's own", () => {
    const charts = standard(MODELS.map(([name, labels]) => series(name, labels)));
    const all = Object.values<ChartSpec[]>(charts satisfies Standard).flat();
    expect(Object.fromEntries(all.map((spec) => [spec.id, query(spec)]))).toMatchSnapshot();
    expect(all.map(query).join("\n")).not.toContain("__part");
  });
});
