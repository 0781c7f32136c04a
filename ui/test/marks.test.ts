// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { markAt, marks } from "../src/charts/marks";

const gap = (from: number, length: number, reason = "late") => ({ from_ms: from, to_ms: from + length, reason });

describe("marks of gaps", () => {
  it("an hour's short gaps are found where they are drawn, not seconds beside", () => {
    // 1 h on 600 px: 6 s a pixel, 5 s a point.
    const all = marks([gap(12_500, 20), gap(13_000, 20), gap(60_000, 20, "timeout")], 6000, 5000);
    expect(all.map(({ from, to, gaps, isHole }) => [from, to, gaps.length, isHole])).toEqual([[12_000, 18_000, 2, false], [60_000, 66_000, 1, false]]);
    expect(all[0]!.share).toBeCloseTo(40 / 6000);
    expect([11_999, 12_000, 17_999, 18_000, 53_000, 66_001].map((t) => markAt(all, t)?.gaps.length ?? 0)).toEqual([0, 2, 2, 0, 0, 0]);
  });

  it("a hole is at least two pixels wide, and no wider than drawn to the pointer", () => {
    const all = marks([gap(10_000, 5000, "timeout")], 6000, 5000);
    expect(all[0]).toMatchObject({ isHole: true, from: 10_000, to: 22_000 });
    expect([9999, 10_000, 21_999, 22_000].map((t) => markAt(all, t) !== null)).toEqual([false, true, true, false]);
  });

  it("a gap wider than a pixel but shorter than a point is drawn as long as it was", () => {
    const all = marks([gap(1000, 50)], 20, 100);
    expect(all).toEqual([{ isHole: false, kind: "reader", from: 1000, to: 1050, gaps: [gap(1000, 50)], share: 1 }]);
  });

  it("marks of the host and of the reader in one pixel stay apart, the host's first", () => {
    const all = marks([gap(12_010, 20), gap(12_100, 30, "timeout"), gap(12_500, 20)], 6000, 5000);
    expect(all.map(({ kind, gaps }) => [kind, gaps.length])).toEqual([["reader", 2], ["host", 1]]);
    expect(markAt(all, 12_000)!.kind).toBe("host");
  });

  it("a hole comes before a mark at the same place", () => {
    const all = marks([gap(1000, 10), gap(1000, 500, "silent")], 100, 100);
    expect(markAt(all, 1005)!.gaps[0]!.reason).toBe("silent");
  });
});
