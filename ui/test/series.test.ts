// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import type { RangeSeries } from "../src/api";
import { HistogramTrack, NumberTrack, Ring, align, division, quantile } from "../src/series";

const each = division(10_000, 100, 100);
const joined = division(600_000, 1000, 100);

function points(track: NumberTrack): [number, number][] {
  return Array.from({ length: track.ring.length }, (_, i) => [track.ring.time(i), track.ring.value(i)]);
}

function range(part: Partial<RangeSeries>): RangeSeries {
  return { series: "s", type: "gauge", t_ms: [], last: [], min: [], max: [], rate: [], rate_min: [], rate_max: [], bounds: [], counts: [], ...part };
}

describe("Ring", () => {
  it("drops the oldest and keeps order", () => {
    const ring = new Ring(3);
    for (let t = 1; t <= 5; t++) ring.push(t, t * 10, t, t);
    expect([0, 1, 2].map((i) => [ring.time(i), ring.value(i)])).toEqual([[3, 30], [4, 40], [5, 50]]);
    ring.amend(6, 60, 6, 6);
    expect([ring.length, ring.time(2), ring.value(2)]).toEqual([3, 6, 60]);
  });

  it("finds the first point at or after a time", () => {
    const ring = new Ring(4);
    for (const t of [1, 2, 10, 20, 30, 40]) ring.push(t, 0, 0, 0);
    expect([0, 10, 11, 40, 41].map((t) => ring.lowerBound(t))).toEqual([0, 0, 1, 3, 4]);
  });
});

describe("counters", () => {
  it("become rates per second", () => {
    const track = new NumberTrack("counter", each, 0.001);
    [100, 110, 130].forEach((value, i) => track.add(1000 + i * 100, value));
    expect(points(track)).toEqual([[1100, 100], [1200, 200]]);
  });

  it("that are reset have grown to what they show", () => {
    const track = new NumberTrack("counter", each, 0.001);
    [1000, 1010, 4].forEach((value, i) => track.add(i * 100, value));
    expect(points(track)).toEqual([[100, 100], [200, 40]]);
  });

  it("have no rate across a gap", () => {
    const track = new NumberTrack("counter", each, 0.001);
    track.add(0, 0);
    track.add(100, 10);
    track.cut();
    track.add(5000, 9999);
    track.add(5100, 10_009);
    expect(points(track)).toEqual([[100, 100], [5100, 100]]);
  });

  it("join rows into points of the window's width, over the true time between", () => {
    const track = new NumberTrack("counter", joined, 0.001);
    for (let i = 0; i <= 30; i++) track.add(i * 100, i);
    const got = points(track);
    expect(got.map(([t]) => t)).toEqual([1000, 2000, 3000]);
    got.forEach(([, rate]) => expect(rate).toBeCloseTo(10));
  });

  it("pretend to no more than their resolution", () => {
    const track = new NumberTrack("counter", each, 500);
    // Published every 500 ms, read every 100 ms: a naive rate would be 0, 0, 0, 0, 5 times the truth.
    for (let i = 0; i <= 20; i++) track.add(i * 100, Math.floor(i / 5) * 50);
    expect(points(track).map(([, rate]) => rate)).toEqual([100, 100, 100, 100]);
  });

  it("go on from what range gave", () => {
    const track = new NumberTrack("counter", each, 0.001);
    track.fill(range({ type: "counter", t_ms: [0, 100, 200, 900], last: [5, 10, 20, 50], rate: [null, 50, 100, null] }), 100);
    track.add(900, 50);
    track.add(1000, 80);
    expect(points(track)).toEqual([[100, 50], [200, 100], [1000, 300]]);
  });

  it("use rows of range, not its rates, where those are finer than the resolution", () => {
    const track = new NumberTrack("counter", each, 200);
    track.fill(range({ type: "counter", t_ms: [0, 100, 200, 300, 400, 900, 1000, 1100], last: [0, 0, 20, 20, 40, 90, 90, 110], rate: [null, 0, 200, 0, 200, null, 0, 200] }), 100);
    expect(points(track)).toEqual([[200, 100], [400, 100], [1100, 100]]);
  });
});

describe("least and greatest rates", () => {
  const bands = (track: NumberTrack): number[][] => Array.from({ length: track.ring.length }, (_, i) => [track.ring.low(i), track.ring.value(i), track.ring.high(i)]);

  it("come from the rows of a point", () => {
    const track = new NumberTrack("counter", joined, 0.001);
    // 10 a second, but for one row: 20 ms of it are all that the second has.
    for (let i = 0; i <= 10; i++) track.add(i * 100, i < 5 ? i : i + 19);
    const [[low, value, high]] = bands(track) as [number[]];
    expect([low, high]).toEqual([expect.closeTo(10), expect.closeTo(200)]);
    expect(value).toBeCloseTo(29);
    expect(track.hasBand).toBe(true);
  });

  it("of rows nearer than the resolution say nothing", () => {
    const track = new NumberTrack("counter", joined, 500);
    for (let i = 0; i <= 10; i++) track.add(i * 100, Math.floor(i / 5) * 50);
    expect(bands(track)).toEqual([[100, 100, 100]]);
    expect(track.hasBand).toBe(false);
  });

  it("are taken from range where it gives them", () => {
    const track = new NumberTrack("counter", each, 0.001);
    track.fill(range({ type: "counter", t_ms: [0, 100, 200], last: [0, 10, 20], rate: [null, 100, 100], rate_min: [null, 0, 100], rate_max: [null, 500, 100] }), 100);
    expect(bands(track)).toEqual([[0, 100, 500], [100, 100, 100]]);
    track.fill(range({ type: "counter", t_ms: [0, 100], last: [0, 10], rate: [null, 100] }), 100);
    expect([bands(track), track.hasBand]).toEqual([[[100, 100, 100]], false]);
  });
});

describe("gauges", () => {
  it("keep least and greatest of a point", () => {
    const track = new NumberTrack("gauge", joined, 0);
    [5, 1, 9, 4].forEach((value, i) => track.add(i * 100, value));
    expect([track.ring.length, track.ring.value(0), track.ring.low(0), track.ring.high(0)]).toEqual([1, 4, 1, 9]);
  });

  it("drop rows that are not newer, and what is not a number", () => {
    const track = new NumberTrack("gauge", each, 0);
    track.fill(range({ t_ms: [100, 200], last: [1, 2], min: [0, 1], max: [3, 2] }), 100);
    track.add(200, 7);
    track.add(150, 7);
    track.add(300, NaN);
    track.add(400, 3);
    expect(points(track)).toEqual([[100, 1], [200, 2], [400, 3]]);
    expect([track.ring.low(0), track.ring.high(0)]).toEqual([0, 3]);
  });
});

describe("histograms", () => {
  const value = (...pairs: [number | null, number][]) => ({ bounds: pairs.map(([b]) => b), counts: pairs.map(([, c]) => c) });

  it("show what came new, by bucket", () => {
    const track = new HistogramTrack(each);
    track.add(0, value([1, 5], [4, 2]));
    track.add(100, value([1, 6], [4, 2], [8, 3], [null, 1]));
    expect(track.columns).toHaveLength(1);
    const [column] = track.columns;
    expect([...column!.highs]).toEqual([1, 4, 8, Infinity]);
    expect([...column!.lows]).toEqual([0.5, 2, 4, 8]);
    expect([...column!.counts]).toEqual([1, 0, 3, 1]);
    expect([quantile(column!, 0.5), quantile(column!, 0.99)]).toEqual([8, Infinity]);
  });

  it("start anew after a reset, and show nothing across a gap", () => {
    const track = new HistogramTrack(each);
    track.add(0, value([1, 50]));
    track.add(100, value([1, 2]));
    expect([...track.columns[0]!.counts]).toEqual([2]);
    track.cut();
    track.add(900, value([1, 40]));
    track.add(1000, value([1, 41]));
    expect(track.columns.map(({ t, counts }) => [t, counts[0]])).toEqual([[100, 2], [1000, 1]]);
  });

  it("join rows", () => {
    const track = new HistogramTrack(joined);
    for (let i = 0; i <= 10; i++) track.add(i * 100, value([1, i], [2, 2 * i]));
    expect(track.columns.map(({ counts }) => [...counts])).toEqual([[10, 20]]);
  });

  it("are filled from range", () => {
    const track = new HistogramTrack(each);
    track.fill(range({ type: "histogram", t_ms: [0, 100], bounds: [1, null], counts: [[1, 2], null] }));
    expect(track.columns.map(({ t }) => t)).toEqual([0]);
  });
});

describe("align", () => {
  it("puts tracks of different times on one axis", () => {
    const a = new NumberTrack("gauge", each, 0);
    const b = new NumberTrack("gauge", each, 0);
    [100, 200, 300].forEach((t) => a.add(t, t));
    [150, 200, 400].forEach((t) => b.add(t, -t));
    const got = align([a, b], 0, 1000, true);
    expect([...got.t]).toEqual([100, 150, 200, 300, 400]);
    expect([...got.values[0]!]).toEqual([100, NaN, 200, 300, NaN]);
    expect([...got.values[1]!]).toEqual([NaN, -150, -200, NaN, -400]);
    expect([...got.highs[0]!]).toEqual([100, NaN, 200, 300, NaN]);
  });

  it("takes one point before the window, so that lines reach the edge", () => {
    const a = new NumberTrack("gauge", each, 0);
    [100, 200, 300, 400, 500].forEach((t) => a.add(t, t));
    expect([...align([a], 250, 350, false).t]).toEqual([200, 300, 400]);
    expect([...align([], 0, 1, true).t]).toEqual([]);
  });
});

describe("a gap shorter than a point", () => {
  it("takes no rate away from what is sampled seldom", () => {
    // Two seconds of CPU a second, sampled every second; readings every 10 ms are late now and then.
    const track = new NumberTrack("counter", each, 1000);
    for (let i = 0; i <= 5; i++) {
      track.add(i * 1000, i * 2);
      track.miss(i * 1000 + 300, i * 1000 + 310);
      track.miss(i * 1000 + 300, i * 1000 + 330);
    }
    expect(points(track).map(([t]) => t)).toEqual([1000, 2000, 3000, 4000, 5000]);
    points(track).forEach(([, rate]) => expect(rate).toBeCloseTo(2));
  });

  it("that is most of the time between two rows leaves no rate", () => {
    const track = new NumberTrack("counter", each, 0.001);
    track.add(0, 0);
    track.add(100, 10);
    track.miss(150, 900);
    track.add(1000, 500);
    track.add(1100, 510);
    expect(points(track)).toEqual([[100, 100], [1100, 100]]);
  });

  it("is the controller's to judge in what range gave", () => {
    const track = new NumberTrack("counter", each, 0.001);
    track.fill(range({ type: "counter", t_ms: [0, 100, 200, 5000], last: [0, 10, 30, 40], rate: [null, 100, 200, null] }), 100);
    expect(points(track)).toEqual([[100, 100], [200, 200]]);
  });
});

describe("a histogram after a gap", () => {
  it("does not show as new what was counted at an unknown time", () => {
    const track = new HistogramTrack(each);
    track.fill(range({ type: "histogram", bounds: [1, 2], t_ms: [0, 100, 5000, 5100], counts: [[1, 1], [2, 0], [90, 70], [1, 2]] }), (t0, t1) => t1 - t0 > 1000 && t0 >= 0);
    expect(track.columns.map((item) => item.t)).toEqual([0, 100, 5100]);
  });
});
