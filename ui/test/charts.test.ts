// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import type { Series, SeriesType } from "../src/api";
import { fullDensity } from "../src/charts/density";
import { chartOf, programs } from "../src/charts/any";
import { assemble, extremes, fineness, nearest, ownValue, stands } from "../src/charts/frame";
import { held } from "../src/charts/gestures";
import { standard as bySection } from "../src/charts/standard";
import { chunks } from "../src/chunks";
import { ContractError, list, nullable, number, numbers, numbersOrNulls, object, optional, record, text } from "../src/check";
import { parse } from "../src/router";
import { NumberTrack, type Track, division } from "../src/series";

function series(name: string, labels: Record<string, string>, type: SeriesType = "gauge", rest: Partial<Series> = {}): Series {
  const inner = Object.entries(labels).map(([key, value]) => `${key}="${value}"`).join(",");
  return { series: inner === "" ? name : `${name}{${inner}}`, name, labels, type, unit: "", help: "", resolution_ms: 0.001, acquisition: "computed", region: "r", value: 1, ...rest };
}

const standard = (all: Series[]) => Object.values(bySection(all)).flat();

const cpus = (cores: number): Series[] =>
  Array.from({ length: cores }, (_, cpu) => ["user", "system", "idle", "iowait"].map((mode) => series("node_cpu_seconds_total", { cpu: String(cpu), mode }, "counter", { unit: "seconds" }))).flat();

describe("standard charts", () => {
  it("are those whose series there are", () => {
    expect(standard([]).map((spec) => spec.id)).toEqual([]);
    expect(standard([...cpus(2), series("node_load1", {})]).map((spec) => spec.id)).toEqual(["cpu-modes", "cpu-cores", "load"]);
  });

  it("show many cores as rows, and leave modes out where they are too many", () => {
    const few = standard(cpus(8));
    expect(few.map((spec) => [spec.id, spec.kind])).toEqual([["cpu-modes", "stack"], ["cpu-cores", "rows"]]);
    const many = standard(cpus(128));
    expect(many.map((spec) => spec.id)).toEqual(["cpu-cores"]);
    expect(many[0]!.note).toContain("Modes are left out");
  });

  it("name lines by the labels in which they differ", () => {
    const spec = chartOf([0, 1].map((shard) => series("depth", { pid: "1", shard: String(shard) })), "f");
    expect([spec.detail, ...spec.lines.map((line) => line.label)]).toEqual(["2 series · pid=1", "shard 0", "shard 1"]);
  });
});

describe("frames", () => {
  const build = (cut: boolean) => {
    const all = cpus(2);
    const tracks = new Map<string, Track>();
    for (const item of all) {
      const track = new NumberTrack("counter", division(10_000, 100, 100), 0.001);
      const rate = { user: 0.25, system: 0.125, idle: 0.5, iowait: 0.125 }[item.labels["mode"]!]!;
      // One series has a reading less: it comes from another region.
      for (let i = 0; i <= 5; i++) if (!(cut && i === 3 && item.labels["mode"] === "system")) track.add(i * 100, (rate * i) / 10);
      tracks.set(item.series, track);
    }
    return { tracks, specs: standard(all) };
  };

  it("stack shares of all cores", () => {
    const { tracks, specs } = build(false);
    const frame = assemble(specs[0]!, tracks, 0, 1000, () => false);
    expect(frame.lines.map((line) => line.values[2])).toEqual([0.25, 0.375, 0.5].map((value) => expect.closeTo(value) as number));
    expect(ownValue(specs[0]!, frame, 1, 2)).toBeCloseTo(0.125);
    expect(assemble(specs[1]!, tracks, 0, 1000, () => false).lines[0]!.values[2]).toBeCloseTo(0.375);
  });

  it("hold values of other times, but never across a break", () => {
    const { tracks, specs } = build(true);
    const held = assemble(specs[0]!, tracks, 0, 1000, () => false);
    expect(held.lines[2]!.values[2]).toBeCloseTo(0.5);
    const broken = assemble(specs[0]!, tracks, 0, 1000, (t0, t1) => t0 <= 250 && t1 >= 250);
    expect(broken.lines[2]!.values[2]).toBeNaN();
  });

  it("find the nearest point", () => {
    const times = Float64Array.from([10, 20, 40]);
    expect([0, 14, 16, 31, 99].map((t) => nearest(times, t))).toEqual([0, 0, 1, 2, 2]);
    expect(nearest(new Float64Array(0), 5)).toBe(-1);
  });

  it("say how fine values are", () => {
    const load = chartOf([series("node_load1", {}, "gauge", { resolution_ms: 5000 })], "l");
    expect(fineness(load, 10, 100)).toMatchObject({ stepped: true, resolutionMs: 5000, shownMs: 100, rateError: 0 });
    const ticks = chartOf([series("node_cpu_seconds_total", {}, "counter", { resolution_ms: 4, unit: "seconds" })], "c");
    expect(fineness(ticks, 10, 100)).toMatchObject({ stepped: false, rateError: 0.04 });
    expect(fineness(ticks, 1000, 5000).rateError).toBe(0);
  });
});

describe("bursts between two points", () => {
  /** Points of a second, of which one has a burst of 20 ms in one series. */
  const filled = (name: string, mean: number, burst: number): [string, Track] => {
    const track = new NumberTrack("counter", division(10_000, 100, 100), 0.001);
    const rate = [null, mean, mean, mean];
    track.fill({ series: name, type: "counter", t_ms: [0, 1000, 2000, 3000], last: [0, 1, 2, 3], min: [], max: [], rate, rate_min: rate, rate_max: [null, mean, burst, mean], bounds: [], counts: [] }, 1000);
    return [name, track];
  };
  const none = (): boolean => false;

  it("stand above a stack: the total and the greatest burst of one series", () => {
    const all = cpus(2);
    const tracks = new Map(all.map((item) => filled(item.series, 0.2, item.labels["mode"] === "system" && item.labels["cpu"] === "1" ? 1 : 0.2)));
    const [modes, cores] = standard(all);
    const frame = assemble(modes!, tracks, 0, 5000, none);
    // Two cores: user, system and iowait of 0.2 each; then half of 0.8 more.
    expect([...frame.peak!.tops]).toEqual([0.6, 1, 0.6].map((value) => expect.closeTo(value) as number));
    expect([0, 1, 2].map((at) => stands(frame, at))).toEqual([false, true, false]);
    const system = modes!.lines.findIndex((line) => line.label === "system");
    const { least, mean, greatest } = extremes(modes!, frame, system);
    expect([least, mean, greatest]).toEqual([0.2, 0.2, 0.6].map((value) => expect.closeTo(value) as number));
    // What bursts is not idle: no band of its own series, no peak.
    expect(assemble(cores!, tracks, 0, 5000, none).peak).toBeNull();
  });

  it("are a band where lines are few, and one peak of all where they are many", () => {
    const shards = (n: number): Series[] => Array.from({ length: n }, (_, i) => series("work", { shard: String(i) }, "counter"));
    const show = (n: number) => assemble(chartOf(shards(n), "w"), new Map(shards(n).map((item, i) => filled(item.series, 1, i === 1 ? 9 : 1))), 0, 5000, none);
    expect([show(3).peak, [...show(3).lines[1]!.highs!]]).toEqual([null, [1, 9, 1]]);
    expect([...show(6).peak!.tops]).toEqual([1, 9, 1]);
  });

  it("of an input that counts against the line raise it, too", () => {
    const idle = series("node_cpu_seconds_total", { cpu: "0", mode: "idle" }, "counter");
    const track = new NumberTrack("counter", division(10_000, 100, 100), 0.001);
    track.fill({ series: idle.series, type: "counter", t_ms: [0, 1000], last: [0, 1], min: [], max: [], rate: [null, 0.9], rate_min: [null, 0.1], rate_max: [null, 1], bounds: [], counts: [] }, 1000);
    const cores = standard([idle]).find((spec) => spec.id === "cpu-cores")!;
    const [line] = assemble(cores, new Map([[idle.series, track]]), 0, 2000, none).lines;
    expect([line!.lows![0], line!.values[0], line!.highs![0]]).toEqual([0, 0.1, 0.9].map((value) => expect.closeTo(value) as number));
  });

  it("are none where rows are shown as they are", () => {
    const tracks = new Map(cpus(2).map((item) => filled(item.series, 0.2, 0.2)));
    expect(assemble(standard(cpus(2))[0]!, tracks, 0, 5000, none).peak).toBeNull();
  });

  it("of lines that are hidden count for nothing, and others stand lower", () => {
    const tracks = new Map(cpus(2).map((item) => filled(item.series, 0.2, item.labels["mode"] === "user" ? 1 : 0.2)));
    const [modes] = standard(cpus(2));
    const frame = assemble(modes!, tracks, 0, 5000, none, new Set([0]));
    expect([frame.peak, frame.lines[0]!.values[1], frame.lines[1]!.values[1], ownValue(modes!, frame, 1, 1), frame.lines[2]!.values[1]]).toEqual([null, NaN, expect.closeTo(0.2), expect.closeTo(0.2), expect.closeTo(0.4)]);
  });
});

describe("fingers", () => {
  it("keep the times that they hold", () => {
    const span = { from: 0, to: 1000 };
    expect(held([{ x: 30, t: 200 }], span, 100)).toEqual({ from: -100, to: 900 });
    expect(held([{ x: 0, t: 250 }, { x: 100, t: 750 }], span, 100)).toEqual({ from: 250, to: 750 });
    expect([held([], span, 100), held([{ x: 50, t: 0 }, { x: 50, t: 10 }], span, 100), held([{ x: 60, t: 0 }, { x: 50, t: 10 }], span, 100)]).toEqual([null, null, null]);
  });
});

describe("addresses", () => {
  it("name pages, hosts and parameters", () => {
    expect(parse("").page).toBe("fleet");
    expect(parse("#/reads")).toMatchObject({ page: "reads" });
    const host = parse('#/host/web%2F3?w=1m&c=a%7Bb%3D%22%3F%22%7D');
    expect([host.page, host.name, host.parameters.get("c")]).toEqual(["host", "web/3", 'a{b="?"}']);
    expect(parse("#/other").page).toBe("unknown");
  });

  it("spread series over URLs", () => {
    const names = Array.from({ length: 300 }, (_, i) => `node_cpu_seconds_total{cpu="${i}",mode="idle"}`);
    const parts = chunks(names);
    expect(parts.flat()).toEqual(names);
    expect(parts.length).toBeGreaterThan(1);
    for (const part of parts) expect(part.map((name) => `&series=${encodeURIComponent(name)}`).join("").length).toBeLessThanOrEqual(7000);
  });
});

describe("the contract's checks", () => {
  it("name the place of what does not fit", () => {
    const check = object({ hosts: list(object({ age: number })) });
    const newer = { hosts: [{ age: 1, newer: true }] };
    expect(check(newer, "")).toBe(newer);
    expect(() => check({ hosts: [{ age: 1 }, {}] }, "")).toThrow(ContractError);
    expect(() => check({ hosts: [{ age: 1 }, {}] }, "")).toThrow("hosts[1].age: expected a number, got nothing");
  });

  it("put in what is not there, whatever the field is called", () => {
    const check = record(object({ labels: optional(record(text), {}), age: nullable(number) }));
    const given: unknown = JSON.parse('{"a": {"age": null}, "__proto__": {"age": 1, "labels": {"__proto__": "x"}}}');
    const got = check(given, "");
    expect(Object.keys(got)).toEqual(["a", "__proto__"]);
    expect(got["a"]).toEqual({ labels: {}, age: null });
    expect(JSON.stringify(got)).toBe('{"a":{"age":null,"labels":{}},"__proto__":{"age":1,"labels":{"__proto__":"x"}}}');
    expect(() => check({ a: { age: "1" } }, "")).toThrow('a.age: expected a number, got "1"');
  });

  it("of long lists do, too", () => {
    const check = object({ last: numbersOrNulls, t_ms: numbers });
    expect(check({ last: [1, null], t_ms: [5] }, "")).toEqual({ last: [1, null], t_ms: [5] });
    expect(() => check({ last: [1, null, "2"], t_ms: [] }, "series[3]")).toThrow("series[3].last[2]: expected a number or null, got \"2\"");
    expect(() => check({ last: [], t_ms: [1, null] }, "")).toThrow("t_ms[1]: expected a number, got null");
    expect(() => check({ last: 7, t_ms: [] }, "")).toThrow("last: expected a list, got 7");
  });
});

describe("programs", () => {
  const of = (name: string, type: Series["type"], region: string, more: Record<string, string> = {}): Series =>
    ({ series: `${name}${JSON.stringify(more)}`, name, labels: { instance: "h", program: "shop", ...more }, type, unit: "", help: "", resolution_ms: 0, acquisition: "direct", region, value: 1 });

  it("show a metric once, histograms first, and each region before the second of another", () => {
    const counters = ["a", "b", "c", "d", "e", "f", "g"].map((name) => of(name, "counter", "first"));
    const { specs, left } = programs([...counters, of("z", "counter", "second", { result: "paid" }), of("z", "counter", "second", { result: "refused" }), of("level", "gauge", "second"), of("h", "histogram", "second")], new Set(["instance"]));
    expect(specs.map((spec) => spec.title)).toEqual(["h", "a", "z", "b", "c", "d"]);
    expect([left, specs[2]!.lines.length, specs[2]!.detail]).toEqual([4, 2, "2 series · program=shop"]);
  });

  it("are not the agent, and not infos", () => {
    expect(programs([of("x", "counter", "own", { program: "onlooker-agent" }), of("y", "info", "r")], new Set()).specs).toEqual([]);
  });
});

describe("network", () => {
  it("sums a device over its cores, or takes the sum that is given", () => {
    const of = (labels: Record<string, string>): Series =>
      ({ series: JSON.stringify(labels), name: "node_network_receive_bytes_total", labels, type: "counter", unit: "bytes", help: "", resolution_ms: 0, acquisition: "computed", region: "node_network", value: 1 });
    const [chart] = standard([of({ device: "lo", cpu: "0" }), of({ device: "lo", cpu: "1" }), of({ device: "eth0" }), of({ device: "eth0", cpu: "0" })]);
    expect(chart!.lines.map(({ label, inputs }) => [label, inputs.length])).toEqual([["eth0", 1], ["lo", 2]]);
    expect(chart!.lines[1]!.combine!([1, 2])).toBe(3);
  });
});

describe("heat", () => {
  it("has its strongest colour for what is usual, not for a column of all that came late", () => {
    const peaks = Float64Array.from({ length: 100 }, (_, k) => (k === 40 ? 5000 : 10 + (k % 5)));
    expect(fullDensity(peaks)).toBe(14);
    expect(fullDensity(Float64Array.of(0, 3, 0))).toBe(3);
    expect(fullDensity(new Float64Array(0))).toBe(1);
  });
});
