// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from "vitest";
import type { Host } from "../src/api";
import { filter, labelFilters } from "../src/fleet/filter";
import { pagesOf } from "../src/fleet/heatreader";
import { Matrix, hostsOf, rowOf } from "../src/fleet/matrix";
import { METRICS, SPANS, stepOf, worst } from "../src/fleet/metrics";
import { byHost } from "../src/fleet/vitals";
import { VIRTUAL, counted } from "../src/host/vitals";
import vectors from "../../crates/series/src/devices/devices.json?raw";

describe("hosts over time", () => {
  test("a column is a whole number of the controller's samples, and there are as many as a screen shows", () => {
    expect(SPANS.map(({ ms }) => stepOf(ms))).toEqual([5000, 15_000, 90_000, 360_000]);
    for (const { ms } of SPANS) expect(ms / stepOf(ms)).toBeLessThanOrEqual(240);
    expect([2500, 2501, 5001, 10_000, 10_001, 100_000].map((hosts) => 3_600_000 / stepOf(3_600_000, hosts))).toEqual([240, 120, 60, 60, 30, 30]);
  });

  test("a question asks for the most of each step, of hosts whose names are no patterns", () => {
    expect(worst(METRICS[0]!, ["a"], 15_000)).toBe('round(max_over_time(onlooker_host_cpu_ratio{instance="a"}[15s]), 0.0001)');
    expect(worst(METRICS.find(({ key }) => key === "in")!, ["a"], 15_000)).toBe('round(max_over_time(onlooker_host_receive_bytes_per_second{instance="a"}[15s]))');
    expect(worst(METRICS.find(({ key }) => key === "psi-io")!, ["a.b", "c"], 5000)).toBe('round(max_over_time(onlooker_host_pressure_ratio{resource="io",instance=~"a\\\\.b|c"}[5s]), 0.0001)');
  });

  test("answers are found by host", () => {
    const lines = byHost([{ labels: { instance: "a" }, t_ms: [1], values: [2] }]);
    expect(lines.get("a")).toEqual({ t_ms: [1], values: [2] });
    expect(lines.get("b")).toBeUndefined();
  });
});

test("hosts are asked for in pages that a request has room for, whatever their names are", () => {
  for (const name of ["node-", "a.b.c.d.e.f.g.h.i.j.", "מארח\"\\"]) {
    const hosts = Array.from({ length: 2500 }, (_, i) => `${name}${i}`);
    const pages = pagesOf(hosts);
    expect(pages.flat()).toEqual(hosts);
    for (const page of pages) {
      expect(page.length).toBeLessThanOrEqual(1000);
      expect(new URLSearchParams({ query: worst(METRICS[3]!, page, 60_000) }).toString().length).toBeLessThan(60_000);
    }
  }
});

describe("values of all hosts over time", () => {
  const of = (instance: string, values: [number, number][]): { labels: { instance: string }; t_ms: number[]; values: number[] } => ({ labels: { instance }, t_ms: values.map(([t]) => t), values: values.map(([, value]) => value) });
  const made = (): Matrix => {
    const matrix = new Matrix(10, 3, 30);
    matrix.fill(["a", "b", "c"], [of("a", [[10, 1], [20, 5], [30, 2]]), of("b", [[20, 7]])], 30);
    return matrix;
  };

  test("a row of pixels has the greatest of its hosts, and whose it is", () => {
    const matrix = made();
    const whole = matrix.pixels(["c", "a", "b"], 1);
    expect([...whole.values]).toEqual([1, 7, 2]);
    expect([...whole.hosts].map((at) => ["c", "a", "b"][at])).toEqual(["a", "b", "a"]);
    expect(whole.greatest).toBe(7);
    expect([...matrix.pixels(["b", "c", "a"], 3).values]).toEqual([NaN, 7, NaN, NaN, NaN, NaN, 1, 5, 2]);
  });

  test("every host is in one row, and rows have about as many", () => {
    for (const [hosts, rows] of [[10_000, 200], [250, 200], [24, 24], [7, 3], [1, 1]] as const) {
      const counts = new Array<number>(rows).fill(0);
      for (let place = 0; place < hosts; place++) counts[rowOf(place, hosts, rows)]!++;
      expect(counts).toEqual(counts.map((_, row) => hostsOf(row, hosts, rows)[1] - hostsOf(row, hosts, rows)[0]));
      expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1);
    }
  });

  test("as time goes on only what has come since is missing", () => {
    const matrix = made();
    expect(matrix.missing(["a", "b", "c"]).size).toBe(0);
    expect([...matrix.missing(["a", "new"])]).toEqual([[0, ["new"]]]);
    matrix.advance(50);
    expect([matrix.from, matrix.to, matrix.at("a", 0), matrix.at("a", 1)]).toEqual([20, 50, 2, NaN]);
    expect([...matrix.missing(["a", "new", "b"])]).toEqual([[30, ["a", "b"]], [20, ["new"]]]);
    matrix.fill(["a"], [of("a", [[50, 9]])], 50);
    expect([matrix.at("a", 1), matrix.at("a", 2)]).toEqual([NaN, 9]);
    expect([...matrix.missing(["a", "b"])]).toEqual([[30, ["b"]]]);
    matrix.advance(500);
    expect([...matrix.missing(["a"])]).toEqual([[470, ["a"]]]);
    expect(matrix.at("a", 2)).toBeNaN();
  });
});

describe("which hosts are shown", () => {
  const host = (name: string, labels: Record<string, string>, state: Host["state"] = "reading"): Host => ({ name, labels, state, address: `${name}:7177`, error: null, via: "kernel", requester: "soft" }) as Host;
  const hosts = [host("web-1", { dc: "a", role: "web" }), host("web-2", { dc: "b", role: "web" }, "failed"), host("db-1", { dc: "b", role: "db" })];
  const names = (search: string, states: Host["state"][] = [], labels: string[] = []): string[] => filter(hosts, search, new Set(states), new Set(labels)).map(({ name }) => name);

  test("by words, states and labels: values of one label are alternatives", () => {
    expect(names("")).toEqual(["web-1", "web-2", "db-1"]);
    expect(names(" WEB  dc=b ")).toEqual(["web-2"]);
    expect(names("", ["failed", "silent"])).toEqual(["web-2"]);
    expect(names("", [], ["dc=a", "dc=b", "role=web"])).toEqual(["web-1", "web-2"]);
    expect(names("nobody")).toEqual([]);
  });

  test("labels are offered that divide hosts, with few values", () => {
    expect(labelFilters(hosts)).toEqual([["dc=a", 1], ["dc=b", 2], ["role=db", 1], ["role=web", 2]]);
    expect(labelFilters(hosts.slice(0, 2))).toEqual([["dc=a", 1], ["dc=b", 1]]);
    expect(labelFilters(Array.from({ length: 13 }, (_, i) => host(`h${i}`, { id: String(i) })))).toEqual([]);
  });
});

test("traffic is counted once, as the controller counts it", () => {
  const { own, others } = JSON.parse(vectors) as { own: string[]; others: string[] };
  expect(counted([...others, ...own], VIRTUAL)).toEqual(own);
  expect(others.filter((device) => !VIRTUAL.test(device))).toEqual([]);
});
