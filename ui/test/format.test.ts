// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { age, clockTime, count, duration, micros, quantity, reasons, sentence, tick } from "../src/format";
import { axisTop, roundUp } from "../src/ranges";

const plain = (shown: string): string => shown.replaceAll("\u202f", " ");

describe("quantity", () => {
  it.each([
    [0, "bytes", false, "0 B"],
    [1023, "bytes", false, "1023 B"],
    [1000, "bytes", false, "1000 B"],
    [1536, "bytes", false, "1.50 KiB"],
    [2 ** 33, "bytes", false, "8 GiB"],
    [1_250_000, "bytes", true, "1.25 MB/s"],
    [0.5, "bytes", true, "0.50 B/s"],
    [0.0412, "seconds", true, "4.12 %"],
    [1, "cores", false, "1 core"],
    [0.25, "cores", false, "0.25 cores"],
    [0.0007, "cores", false, "<0.001 cores"],
    [0.0000412, "seconds", false, "41.2 µs"],
    [12.5, "seconds", false, "12.5 s"],
    [0.25, "share", false, "25 %"],
    [1234567, "", false, "1.23 M"],
    [0.5, "", false, "0.50"],
    [300, "", true, "300 /s"],
    [0.02, "requests", true, "0.020 /s"],
    [48_000, "requests", true, "48 k/s"],
    [NaN, "bytes", false, "–"],
    [Infinity, "", false, "+∞"],
    [-2048, "bytes", false, "-2 KiB"],
    [999.96, "", false, "1.00 k"],
    [0.7712, "", false, "0.77"],
  ])("%s %s", (value, unit, perSecond, shown) => {
    expect(plain(quantity(value, unit, perSecond))).toBe(shown);
  });
});

it("ticks have no trailing zeros", () => {
  expect([0.5, 0.25, 1536, 0].map((v) => plain(tick(v, "bytes")))).toEqual(["0.5 B", "0.25 B", "1.5 KiB", "0 B"]);
  expect([0.1 + 0.2, 10, 2500].map((v) => plain(tick(v, "", true)))).toEqual(["0.3 /s", "10 /s", "2.5 k/s"]);
});

describe("durations", () => {
  it.each([[0, "0 s"], [0.0412, "41.2 µs"], [4.1, "4.10 ms"], [640, "640 ms"], [61_000, "1 min 1 s"], [3_600_000, "1 h"], [90_000_000, "1 d 1 h"], [59_999.9, "60.0 s"]])("%s ms", (ms, shown) => {
    expect(plain(duration(ms))).toBe(shown);
  });
  it("count up calmly", () => {
    expect([4.13, 148, 1234, 75_000, -3, null].map((ms) => plain(age(ms)))).toEqual(["4 ms", "150 ms", "1.2 s", "1 min 15 s", "0 ms", "–"]);
    expect(plain(micros(2100))).toBe("2.10 ms");
  });
});

describe("counts, reasons, times", () => {
  it("are grouped, ordered, as fine as the step", () => {
    expect(plain(count(1234567))).toBe("1 234 567");
    expect(plain(reasons({ timeout: 2, busy: 4100, torn: 0, no_route: 3 }))).toBe("busy 4 100, no route 3, timeout 2");
    const noon = new Date(2026, 0, 2, 12, 3, 4, 567).getTime();
    expect([60_000, 1000, 100, 1].map((step) => clockTime(noon, step))).toEqual(["12:03", "12:03:04", "12:03:04.5", "12:03:04.567"]);
  });
});

describe("the value axis", () => {
  it("ends at round numbers", () => {
    expect([0, 0.013, 1, 7, 23, 99].map((v) => roundUp(v, false))).toEqual([1, 0.02, 1, 10, 25, 100]);
    expect(roundUp(1500, true)).toBe(2048);
  });
  it("grows at once and shrinks late", () => {
    expect(axisTop(10, 12, false)).toBe(20);
    expect(axisTop(20, 12, false)).toBe(20);
    expect(axisTop(20, 9, false)).toBe(20);
    expect(axisTop(20, 4, false)).toBe(5);
  });
});

describe("sentences", () => {
  it("end before another one follows", () => {
    expect(["no host `a` is watched", "It cannot be reached. Is it running?", "wait …"].map(sentence)).toEqual(["No host `a` is watched.", "It cannot be reached. Is it running?", "Wait …"]);
  });
});
