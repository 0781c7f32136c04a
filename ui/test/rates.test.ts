// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import vectors from "../../crates/series/tests/rates/rates.json?raw";
import { NumberTrack, division } from "../src/series";

interface Case {
  what: string;
  /** Times of acquisition, ms, and values. */
  rows: [number, number][];
  /** From and to, ms. */
  gaps: [number, number][];
  /** That each row ends with. */
  rates: (number | null)[];
}

/** Gaps are told as they come, between the rows. */
function drawn({ rows, gaps }: Case): Map<number, number> {
  const track = new NumberTrack("counter", division(10_000, 100, 100), 0);
  const told = [...gaps];
  for (const [t, value] of rows) {
    while (told.length > 0 && told[0]![0] < t) track.miss(...told.shift()!);
    track.add(t, value);
  }
  return new Map(Array.from({ length: track.ring.length }, (_, i) => [track.ring.time(i), track.ring.value(i)]));
}

describe("rates are those that the controller and top make", () => {
  for (const item of JSON.parse(vectors) as Case[]) {
    it(item.what, () => {
      const rates = drawn(item);
      item.rows.forEach(([t], i) => {
        const rate = item.rates[i] ?? null;
        if (rate === null) expect(rates.has(t)).toBe(false);
        else expect(rates.get(t)).toBeCloseTo(rate, 6);
      });
    });
  }
});
