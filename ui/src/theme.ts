// SPDX-License-Identifier: Apache-2.0
//! Light or dark: what the system prefers, unless the switch was used, which is remembered. Colours live in styles/base.css; canvases read them here.

export type Theme = "light" | "dark";

const KEY = "onlooker.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function remembered(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // Storage may be forbidden; then the system's preference holds.
  }
}

export function current(): Theme {
  return remembered() ?? (system.matches ? "dark" : "light");
}

export function toggle(): void {
  const next: Theme = current() === "dark" ? "light" : "dark";
  try {
    // What the system prefers anyway is not remembered: then a later change of the system counts again.
    if (next === (system.matches ? "dark" : "light")) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    document.documentElement.dataset["theme"] = next;
  }
  apply();
}

export function start(): void {
  system.addEventListener("change", apply);
  apply();
}

function apply(): void {
  document.documentElement.dataset["theme"] = current();
  cache.clear();
  for (const listener of listeners) listener();
}

/** Calls `listener` when colours change; returns how to stop that. */
export function onChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const cache = new Map<string, string>();

/** The value of a custom property, such as `colour("--grid")`. */
export function colour(name: string): string {
  let value = cache.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    cache.set(name, value);
  }
  return value;
}

/** Colours for lines, told apart by colour-blind people too (after Okabe and Ito); beyond seven, dashes tell further. */
export const LINE_COLOURS = 7;
const DASHES: readonly number[][] = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

export const lineColour = (index: number): string => colour(`--line-${index % LINE_COLOURS}`);
/** Of more lines nobody tells dashes apart, and to draw them takes five times as long. */
export const MOST_DASHED = LINE_COLOURS * DASHES.length;
export const lineDash = (index: number, lines: number): number[] => (lines > MOST_DASHED ? [] : DASHES[Math.floor(index / LINE_COLOURS) % DASHES.length]!);

export const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
