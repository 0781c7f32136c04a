// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { WINDOWS } from "../src/ranges";
import { Steps, type View, clamp, fromParameters, panned, same, spanOf, stepped, toParameters, zoomed } from "../src/view";

const NOW = 1_800_000_000_000;
const limits = { oldest: NOW - 3_600_000, now: NOW };
const ago = (from: number, to: number) => ({ from: NOW - from, to: NOW - to });
const live = (key: string): View => ({ window: WINDOWS.find((item) => item.key === key)!, span: null });

describe("a view", () => {
  it("is moved, not cut, at the ends of what there is", () => {
    expect(clamp(ago(5000, -5000), limits)).toEqual(ago(10_000, 0));
    expect(clamp(ago(3_700_000, 3_690_000), limits)).toEqual(ago(3_600_000, 3_590_000));
    expect(clamp(ago(600_000, 500_000), limits)).toEqual(ago(600_000, 500_000));
  });

  it("is no wider than the store and no narrower than some rows", () => {
    expect(clamp(ago(9_000_000, -9_000_000), limits)).toEqual(ago(3_600_000, 0));
    expect(clamp(ago(100_010, 100_000), limits)).toEqual(ago(100_030, 99_980));
    expect(clamp(ago(5, 0), { oldest: null, now: NOW })).toEqual(ago(50, 0));
  });

  it("zooms around what the pointer holds", () => {
    expect(zoomed({ from: 0, to: 1000 }, 0.5, 250)).toEqual({ from: 125, to: 625 });
    const back = zoomed(zoomed({ from: 0, to: 1000 }, 0.5, 250), 2, 250);
    expect(back).toEqual({ from: 0, to: 1000 });
    expect(panned({ from: 0, to: 1000 }, -300)).toEqual({ from: -300, to: 700 });
  });

  it("steps through live windows, and is fixed beyond them", () => {
    expect(stepped(live("1m"), limits, "out")).toEqual(live("10m"));
    expect(stepped(live("1m"), limits, "in")).toEqual(live("10s"));
    expect(stepped(live("10s"), limits, "in").span).toEqual(ago(5000, 0));
    expect(stepped(live("24h"), { oldest: NOW - 1e9, now: NOW }, "out").span).toEqual(ago(172_800_000, 0));
    const fixed = { ...live("1m"), span: ago(400_000, 300_000) };
    expect(stepped(fixed, limits, "in").span).toEqual(ago(375_000, 325_000));
    expect(stepped(fixed, limits, "out").span).toEqual(ago(450_000, 250_000));
  });

  it("is told by an address", () => {
    for (const view of [live("1m"), live("24h"), { ...live("10s"), span: ago(60_000, 30_000) }]) {
      expect(same(fromParameters(new URLSearchParams(toParameters(view))), view)).toBe(true);
    }
    expect(toParameters({ ...live("10m"), span: { from: 1000.4, to: 2000.6 } })).toEqual([["w", "10m"], ["from", "1000"], ["to", "2001"]]);
    for (const text of ["from=5&to=5", "from=9&to=5", "from=x&to=5", "to=5", "from=5", ""]) expect(fromParameters(new URLSearchParams(text))).toEqual(live("1m"));
    expect(fromParameters(new URLSearchParams("w=nonsense")).window.key).toBe("1m");
    expect(spanOf(live("1m"), NOW)).toEqual(ago(60_000, 0));
  });
});

describe("steps", () => {
  it("go back to the first view and forward to the last", () => {
    const steps = new Steps(0);
    expect([steps.canBack, steps.canForward]).toEqual([false, false]);
    steps.push();
    steps.push();
    expect([steps.place, steps.canBack, steps.canForward]).toEqual([2, true, false]);
    steps.moved(1);
    expect([steps.canBack, steps.canForward]).toEqual([true, true]);
    steps.push();
    expect([steps.place, steps.canForward]).toEqual([2, false]);
  });

  it("of a page that was loaded anew know what lies behind", () => {
    const steps = new Steps(3);
    expect([steps.canBack, steps.canForward]).toEqual([true, false]);
    steps.moved(5);
    steps.moved(4);
    expect(steps.canForward).toBe(true);
  });
});
