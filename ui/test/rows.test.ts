// SPDX-License-Identifier: Apache-2.0
import { describe, expect, test } from "vitest";
import { MOST_WHOLE, TextOrder, partInView, shared, sorted } from "../src/rows";

describe("which rows are laid out", () => {
  test("all of a short table, wherever it is", () => {
    expect(partInView(MOST_WHOLE, 35, -100_000, 800)).toEqual({ from: 0, to: MOST_WHOLE });
  });

  test("of a long one all that are on the screen, and few others", () => {
    for (const rowPx of [28.5, 35, 52]) {
      for (let top = 600; top > -10_000 * rowPx; top -= 977) {
        const { from, to } = partInView(10_000, rowPx, top, 800);
        const isSeen = (at: number): boolean => top + (at + 1) * rowPx > 0 && top + at * rowPx < 800;
        expect([top, from > 0 && isSeen(from - 1), to < 10_000 && isSeen(to)]).toEqual([top, false, false]);
        expect(to - from).toBeLessThan(1700 / rowPx + 8);
        expect(from).toBeGreaterThanOrEqual(0);
        expect(to).toBeLessThanOrEqual(10_000);
      }
    }
  });

  test("some even where none is on the screen, and none beyond its ends", () => {
    expect(partInView(10_001, 35, 5000, 800)).toEqual({ from: 0, to: 4 });
    expect(partInView(10_001, 35, -1e6, 800)).toEqual({ from: 9996, to: 10_001 });
  });
});

describe("the order of rows", () => {
  test("texts as people count, whatever comes later", () => {
    const order = new TextOrder();
    const inOrder = (texts: string[]): string[] => sorted([order.of(texts)], [1]).map((at) => texts[at]!);
    expect(inOrder(["web-10", "web-9", "db-2"])).toEqual(["db-2", "web-9", "web-10"]);
    expect(inOrder(["web-10", "cache-1", "web-9"])).toEqual(["cache-1", "web-9", "web-10"]);
    expect([...order.of(["web-9", "web-9"])].every((rank, _, [first]) => rank === first)).toBe(true);
  });

  test("by the first list, then by the next, each in its direction; what is not known is the least", () => {
    const values = Float64Array.of(2, NaN, 7, 2);
    const ranks = Float64Array.of(1, 0, 3, 0);
    expect(sorted([values, ranks], [1, 1])).toEqual([1, 3, 0, 2]);
    expect(sorted([values, ranks], [-1, 1])).toEqual([2, 3, 0, 1]);
    expect(sorted([values, ranks], [-1, -1])).toEqual([2, 0, 3, 1]);
    expect(sorted([new Float64Array(0)], [1])).toEqual([]);
  });

  test("the same from whatever order it begins with", () => {
    const values = Float64Array.from({ length: 500 }, (_, i) => (i * 7919) % 101);
    const order = sorted([values], [-1]);
    expect(sorted([values], [-1], order)).toEqual(order);
    expect(sorted([values], [-1], sorted([values], [1]))).toEqual(order);
    // Of another number of rows it is no order.
    expect(sorted([values], [-1], [1, 0])).toEqual(order);
  });
});

describe("room for columns", () => {
  test("what is left is shared, what is missing the widest give", () => {
    expect(shared([100, 50, 50], 400, 40)).toEqual([200, 100, 100]);
    expect(shared([280, 200, 60, 60], 500, 120)).toEqual([190, 190, 60, 60]);
    expect(shared([280, 100, 60], 400, 120)).toEqual([240, 100, 60]);
    expect(shared([280, 200, 130], 300, 120)).toEqual([120, 120, 120]);
    expect(shared([0, 0], 300, 120)).toEqual([0, 0]);
  });
});
