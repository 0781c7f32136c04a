// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import type { Metric, Series, SeriesType } from "../src/api";
import { rows } from "../src/found";

const series = (text: string, type: SeriesType = "counter"): Series =>
  ({ series: text, name: text.split("{")[0]!, labels: {}, type, unit: "", help: "Help.", resolution_ms: 0, acquisition: "computed", region: "r", value: 3 });
const metric = (text: string, count: number, type: SeriesType = "counter"): Metric => ({ ...series(text, type), count });

describe("what a search found", () => {
  const cpu = metric('node_cpu_seconds_total{cpu="0"}', 16);

  it("is one row a metric, in the server's order, with the number of its series", () => {
    const shown = rows([cpu, metric("node_load1", 1, "gauge")], new Map(), false);
    expect(shown.map(({ title, detail }) => [title, detail])).toEqual([["node_cpu_seconds_total", "counter · 16 series"], ["node_load1", "gauge · 3"]]);
    expect(shown.map(({ action }) => action.do)).toEqual(["family", "series"]);
    expect(shown.map(({ opens }) => opens)).toEqual(["node_cpu_seconds_total", null]);
  });

  it("shows the series of a metric that is opened below it", () => {
    const members = [series('node_cpu_seconds_total{cpu="0"}'), series('node_cpu_seconds_total{cpu="1"}')];
    const shown = rows([cpu, metric("node_load1", 1)], new Map([[cpu.name, members]]), false);
    expect(shown.map(({ title, isChild }) => [title, isChild])).toEqual([["node_cpu_seconds_total", false], [members[0]!.series, true], [members[1]!.series, true], ["node_load1", false]]);
    expect(shown[0]!.isOpen).toBe(true);
  });

  it("can show more", () => {
    expect(rows([cpu], new Map(), true).at(-1)).toMatchObject({ title: "Show more", action: { do: "more" } });
    expect(rows([], new Map(), false)).toEqual([]);
  });

  it("draws no infos, and of many histograms one at a time", () => {
    expect(rows([metric("x_info", 1, "info"), metric("h", 3, "histogram")], new Map(), false).map(({ action }) => action.do)).toEqual(["nothing", "toggle"]);
  });
});
