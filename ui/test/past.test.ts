// SPDX-License-Identifier: Apache-2.0
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Series } from "../src/api";
import { Gaps } from "../src/gaps";
import { Past } from "../src/past";
import { NumberTrack, type Track, division } from "../src/series";

const NOW = 1_800_000_000_000;
const MINUTE = 60_000;
const series: Series[] = ["a", "b"].map((name) => ({ series: name, name, labels: {}, type: "gauge", unit: "", help: "", resolution_ms: 0, acquisition: "computed", region: "r", value: 1 }));

interface Asked {
  from: number;
  to: number;
  points: number;
  signal: AbortSignal;
  answer: (bucketMs: number) => Promise<void>;
  fail: () => Promise<void>;
}

let asked: Asked[] = [];
let problems: (string | null)[] = [];
let past: Past;

/** As the board does in each frame. */
const frame = (): void => past.need(series);
const settled = async (): Promise<void> => { for (let i = 0; i < 20; i++) await Promise.resolve(); };

beforeEach(() => {
  vi.useFakeTimers({ now: NOW });
  asked = [];
  problems = [];
  past = new Past("web-1", { changed: () => undefined, problem: (message) => problems.push(message) });
  vi.stubGlobal("fetch", (path: string, { signal }: { signal: AbortSignal }) => {
    const query = new URLSearchParams(path.split("?")[1]);
    const [from, to] = [Number(query.get("from_ms")), Number(query.get("to_ms"))];
    return new Promise((done, failed) => {
      const body = (bucketMs: number): string => JSON.stringify({
        bucket_ms: bucketMs, gaps: [{ from_ms: from, to_ms: from + 10, reason: "late" }],
        series: query.getAll("series").map((name) => ({ series: name, type: "gauge", t_ms: [from, from + (bucketMs || 10)], last: [1, 2], min: [0, 1], max: [3, 4] })),
      });
      asked.push({
        from, to, points: Number(query.get("points")), signal,
        answer: (bucketMs) => { done(new Response(body(bucketMs))); return settled(); },
        fail: () => { failed(new Error("no way")); return settled(); },
      });
      signal.addEventListener("abort", () => failed(signal.reason as Error));
    });
  });
});

afterEach(() => {
  past.stop();
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("the past", () => {
  it("is read once for a view, with points for its width and some beyond its edges", async () => {
    past.aim({ from: NOW - 20 * MINUTE, to: NOW - 10 * MINUTE }, 500);
    expect(past.isReading).toBe(true);
    frame();
    frame();
    expect(asked.map(({ from, to, points }) => [from, to, points])).toEqual([[NOW - 23 * MINUTE, NOW - 7 * MINUTE, 800]]);
    await asked[0]!.answer(1000);
    frame();
    expect(asked).toHaveLength(1);
    expect([past.tracks.size, past.distance("a"), past.gaps.all.length, past.isReading]).toEqual([2, 1000, 1, false]);
  });

  it("is not read again for a view that what was read suffices for", async () => {
    past.aim({ from: NOW - 20 * MINUTE, to: NOW - 10 * MINUTE }, 500);
    frame();
    await asked[0]!.answer(1000);
    past.aim({ from: NOW - 22 * MINUTE, to: NOW - 12 * MINUTE }, 500);
    vi.advanceTimersByTime(1000);
    frame();
    expect(asked).toHaveLength(1);
    // Half as wide wants finer points, but not where rows came as they are.
    past.aim({ from: NOW - 18 * MINUTE, to: NOW - 13 * MINUTE }, 500);
    vi.advanceTimersByTime(1000);
    frame();
    expect(asked).toHaveLength(2);
    await asked[1]!.answer(0);
    past.aim({ from: NOW - 16 * MINUTE, to: NOW - 15 * MINUTE }, 500);
    vi.advanceTimersByTime(1000);
    frame();
    expect(asked).toHaveLength(2);
  });

  it("is read once after many steps, and what is no longer wanted is aborted", async () => {
    past.aim({ from: NOW - 20 * MINUTE, to: NOW - 10 * MINUTE }, 500);
    frame();
    for (let i = 1; i <= 10; i++) {
      past.aim({ from: NOW - (20 + 5 * i) * MINUTE, to: NOW - (10 + 5 * i) * MINUTE }, 500);
      vi.advanceTimersByTime(50);
      frame();
    }
    expect(asked).toHaveLength(1);
    vi.advanceTimersByTime(200);
    frame();
    expect(asked.map(({ signal }) => signal.aborted)).toEqual([true, false]);
    expect(asked[1]!.from).toBe(NOW - 73 * MINUTE);
    await settled();
    expect(problems).toEqual([]);
    await asked[1]!.answer(1000);
    expect(past.tracks.size).toBe(2);
  });

  it("keeps what was shown until the new has come", async () => {
    const track = new NumberTrack("gauge", division(10_000, 100, 100), 0);
    past.begin(new Map<string, Track>([["a", track]]), new Gaps(), 100);
    past.aim({ from: NOW - 2 * MINUTE, to: NOW - MINUTE }, 500);
    frame();
    expect([past.tracks.get("a"), past.distance("a")]).toEqual([track, 100]);
    await asked[0]!.answer(200);
    expect(past.tracks.get("a")).not.toBe(track);
    expect(past.distance("a")).toBe(200);
  });

  it("that ends now is incomplete, and read once more when its last rows must have come", async () => {
    past.aim({ from: NOW - MINUTE, to: NOW }, 500);
    frame();
    await asked[0]!.answer(100);
    expect(past.isOpenEnded).toBe(true);
    for (let i = 0; i < 20; i++) {
      vi.advanceTimersByTime(1000);
      frame();
      for (const item of asked.slice(1)) await item.answer(100);
    }
    expect([asked.length, past.isOpenEnded]).toEqual([2, false]);
  });

  it("that cannot be read is said, and tried again after a while", async () => {
    past.aim({ from: NOW - 20 * MINUTE, to: NOW - 10 * MINUTE }, 500);
    frame();
    await asked[0]!.fail();
    frame();
    expect([asked.length, problems.length]).toEqual([1, 1]);
    expect(problems[0]).toContain("cannot be read");
    vi.advanceTimersByTime(4000);
    frame();
    await asked[1]!.answer(1000);
    expect(problems).toEqual([problems[0], null]);
  });
});
