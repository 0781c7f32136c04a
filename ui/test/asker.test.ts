// SPDX-License-Identifier: Apache-2.0
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Asker } from "../src/host/asker";
import type { At } from "../src/host/subject";

let see: (element: HTMLElement, isIntersecting: boolean) => void;
const page = { hidden: false };

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", page);
  vi.stubGlobal("IntersectionObserver", class {
    constructor(callback: (entries: { target: unknown; isIntersecting: boolean }[]) => void) {
      see = (target, isIntersecting) => callback([{ target, isIntersecting }]);
    }
    observe(): void { /* Sight is told by the test. */ }
    disconnect(): void { /* Nothing is held. */ }
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A question whose answers the test gives. */
function question() {
  const element = {} as HTMLElement;
  const asked: { at: At; signal: AbortSignal; answer: () => void; fail: (why: string) => void }[] = [];
  const problems: (string | null)[] = [];
  return {
    element, asked, problems, everyMs: 2000, problem: (message: string | null) => problems.push(message),
    ask: (at: At, signal: AbortSignal) => new Promise<void>((answer, fail) => asked.push({ at, signal, answer, fail: (why) => fail(new Error(why)) })),
  };
}

it("asks what is in sight, two at once, and not more often than every two seconds", async () => {
  const asker = new Asker();
  const all = [question(), question(), question()];
  for (const item of all) asker.add(item);
  const counts = (): number[] => all.map(({ asked }) => asked.length);
  await vi.advanceTimersByTimeAsync(1000);
  expect(counts()).toEqual([0, 0, 0]);
  for (const { element } of all) see(element, true);
  expect(counts()).toEqual([1, 1, 0]);
  all[0]!.asked[0]!.answer();
  await vi.advanceTimersByTimeAsync(0);
  expect(counts()).toEqual([1, 1, 1]);
  await vi.advanceTimersByTimeAsync(1700);
  expect(counts()).toEqual([1, 1, 1]);
  all[1]!.asked[0]!.answer();
  await vi.advanceTimersByTimeAsync(600);
  expect(counts()).toEqual([2, 1, 1]);
  see(all[1]!.element, false);
  page.hidden = true;
  await vi.advanceTimersByTimeAsync(5000);
  page.hidden = false;
  await vi.advanceTimersByTimeAsync(200);
  expect(counts()).toEqual([2, 1, 1]);
  asker.end();
  expect(all[0]!.asked[1]!.signal.aborted).toBe(true);
  see(all[1]!.element, true);
  await vi.advanceTimersByTimeAsync(5000);
  expect(counts()).toEqual([2, 1, 1]);
});

it("asks once for a time in the past, and again for what else is wanted", async () => {
  const asker = new Asker();
  const item = question();
  asker.add(item);
  see(item.element, true);
  for (const timeMs of [3000, 4000]) {
    expect(asker.setTime(timeMs, 60_000)).toBe(true);
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(asker.setTime(5000, 60_000)).toBe(true);
  expect([item.asked[0]!.signal.aborted, item.asked.length]).toEqual([true, 1]);
  await vi.advanceTimersByTimeAsync(500);
  expect(item.asked[1]!.at).toEqual({ timeMs: 5000, windowMs: 60_000 });
  item.asked[1]!.answer();
  // What was aborted is no trouble.
  item.asked[0]!.fail("aborted");
  await vi.advanceTimersByTimeAsync(10_000);
  expect([item.asked.length, item.problems]).toEqual([2, [null]]);
  asker.soon(item.element);
  expect(item.asked.length).toBe(3);
  expect(asker.setTime(5000, 60_000)).toBe(false);
  expect(asker.setTime(null)).toBe(true);
  expect(item.asked[3]!.at.windowMs).toBe(null);
  asker.end();
});

it("tells a trouble, and waits longer after each", async () => {
  const asker = new Asker();
  const item = question();
  asker.add(item);
  see(item.element, true);
  item.asked[0]!.fail("too many series");
  await vi.advanceTimersByTimeAsync(3900);
  expect([item.asked.length, item.problems]).toEqual([1, ["too many series"]]);
  await vi.advanceTimersByTimeAsync(400);
  item.asked[1]!.answer();
  await vi.advanceTimersByTimeAsync(0);
  expect(item.problems).toEqual(["too many series", null]);
  asker.end();
});
