// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import css from "../src/styles/base.css?raw";

/** Custom properties of one theme. */
function theme(name: string): Record<string, string> {
  const block = css.split(`:root[data-theme="${name}"] {`)[1]!.split("}")[0]!;
  return Object.fromEntries([...block.matchAll(/--([\w-]+):\s*(#[0-9a-f]{6})/g)].map(([, key, value]) => [key!, value!]));
}

/** WCAG 2.1, relative luminance and contrast ratio. */
function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const channel = parseInt(hex.slice(at, at + 2), 16) / 255;
    return channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b!;
}
function contrast(a: string, b: string): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high! + 0.05) / (low! + 0.05);
}

describe.each(["light", "dark"])("the %s theme", (name) => {
  const colours = theme(name);
  it.each(["text", "muted", "accent", "good", "warn", "bad"])("shows %s legibly", (text) => {
    for (const ground of ["page", "card", "raised", "accent-soft"]) expect(contrast(colours[text]!, colours[ground]!), ground).toBeGreaterThanOrEqual(4.5);
  });
  it.each([0, 1, 2, 3, 4, 5, 6])("shows line %i on the card", (line) => {
    expect(contrast(colours[`line-${line}`]!, colours["card"]!)).toBeGreaterThanOrEqual(3);
  });
  it("orders heat by luminance", () => {
    const steps = [0, 1, 2, 3, 4].map((stop) => luminance(colours[`heat-${stop}`]!));
    const sorted = steps.toSorted((a, b) => (name === "light" ? b - a : a - b));
    expect(steps).toEqual(sorted);
  });
});
