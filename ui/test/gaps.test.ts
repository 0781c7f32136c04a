// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { Gaps, SKIPPED, kindOf } from "../src/gaps";

describe("Gaps", () => {
  it("forbid lines across, and give their reason", () => {
    const gaps = new Gaps();
    gaps.add({ from_ms: 300, to_ms: 600, reason: "timeout" });
    gaps.add({ from_ms: 500, to_ms: 900, reason: "timeout" });
    gaps.add({ from_ms: 100, to_ms: 100, reason: "empty" });
    expect(gaps.all).toEqual([{ from_ms: 300, to_ms: 900, reason: "timeout" }]);
    expect([gaps.between(0, 300), gaps.between(200, 1000), gaps.between(400, 500), gaps.between(900, 1000)]).toEqual([false, true, true, false]);
    expect([gaps.within(700, 701).map((gap) => gap.reason), gaps.within(1000, 1001)]).toEqual([["timeout"], []]);
    gaps.prune(901);
    expect(gaps.all).toEqual([]);
  });

  it("shorter than a point are none between points, though they are in the list", () => {
    const gaps = new Gaps();
    gaps.add({ from_ms: 1000, to_ms: 1030, reason: "late" });
    expect([gaps.between(900, 1100), gaps.between(900, 1100, 100), gaps.all.length]).toEqual([true, false, 1]);
    gaps.add({ from_ms: 1030, to_ms: 1100, reason: "late" });
    expect(gaps.between(900, 1100, 100)).toBe(true);
  });

  it("are found in others that are longer", () => {
    const gaps = new Gaps();
    gaps.addAll([{ from_ms: 0, to_ms: 1000, reason: "timeout" }, { from_ms: 100, to_ms: 200, reason: "late" }, { from_ms: 300, to_ms: 310, reason: "late" }]);
    expect(gaps.between(500, 600)).toBe(true);
    expect(gaps.within(150, 350).map((gap) => gap.from_ms)).toEqual([0, 100, 300]);
    expect(gaps.within(500, 600).map((gap) => gap.from_ms)).toEqual([0]);
  });

  it("of a day are asked for quickly", () => {
    const gaps = new Gaps();
    gaps.addAll(Array.from({ length: 4096 }, (_, i) => ({ from_ms: i * 20_000, to_ms: i * 20_000 + 20, reason: "late" })));
    const began = performance.now();
    let found = 0;
    for (let i = 0; i < 100_000; i++) if (gaps.between(i * 800, i * 800 + 800)) found++;
    expect(found).toBe(4000);
    // A walk through all of them would take some seconds.
    expect(performance.now() - began).toBeLessThan(1000);
  });
});

describe("kinds of gaps", () => {
  it("are the host's, but for what the reader says of itself", () => {
    expect(["timeout", "silent", "gone", "unreachable", "something new"].map(kindOf)).toEqual(new Array(5).fill("host"));
    expect(["late", "behind", "controller_down", "stopped", "over_quota", SKIPPED].map(kindOf)).toEqual(new Array(6).fill("reader"));
  });
});
