// SPDX-License-Identifier: Apache-2.0
//! What part of time all charts of a page show: the last so much, live, or a fixed span. Zoom, pan, limits, the address. Pure.

import { type TimeWindow, WINDOWS } from "./ranges";

export interface Span {
  from: number;
  to: number;
}

export interface View {
  /** While live; and what Live returns to. */
  window: TimeWindow;
  /** Null: live. */
  span: Span | null;
}

export interface Limits {
  /** The store's oldest row; null where it has none. */
  oldest: number | null;
  now: number;
}

/** Five rows of the shortest interval. */
export const NARROWEST_MS = 50;
/** Of the span: one step of the keys. */
export const PAN_SHARE = 0.5;
export const ZOOM_FACTOR = 2;

/** What is on the screen. */
export function spanOf(view: View, now: number): Span {
  return view.span ?? { from: now - view.window.ms, to: now };
}

/** Keeps the width if it can: what goes beyond a limit is moved, what is too wide or too narrow changes around its middle. */
export function clamp({ from, to }: Span, { oldest, now }: Limits): Span {
  const first = Math.min(oldest ?? now - WINDOWS[0]!.ms, now - NARROWEST_MS);
  const width = Math.min(Math.max(to - from, NARROWEST_MS), now - first);
  const begin = Math.min(Math.max((from + to - width) / 2, first), now - width);
  return { from: begin, to: begin + width };
}

/** `factor` below 1 shows less; what is at `at` stays where it is. */
export function zoomed(span: Span, factor: number, at: number): Span {
  return { from: at - (at - span.from) * factor, to: at + (span.to - at) * factor };
}

export function panned(span: Span, byMs: number): Span {
  return { from: span.from + byMs, to: span.to + byMs };
}

/** One step of the zoom keys: a live view stays live as far as there are windows. */
export function stepped(view: View, limits: Limits, direction: "in" | "out"): View {
  if (view.span === null) {
    const next = WINDOWS[WINDOWS.indexOf(view.window) + (direction === "in" ? -1 : 1)];
    if (next !== undefined) return { window: next, span: null };
  }
  const span = spanOf(view, limits.now);
  const factor = direction === "in" ? 1 / ZOOM_FACTOR : ZOOM_FACTOR;
  // At the end of a live view is what people watch.
  const at = view.span === null ? span.to : (span.from + span.to) / 2;
  return { window: view.window, span: clamp(zoomed(span, factor, at), limits) };
}

/** As parameters of an address: `from` and `to` are ms since 1970 UTC. */
export function toParameters({ window, span }: View): [string, string][] {
  const live: [string, string][] = [["w", window.key]];
  return span === null ? live : [...live, ["from", String(Math.round(span.from))], ["to", String(Math.round(span.to))]];
}

/** What makes no sense is as if it were not there. */
export function fromParameters(parameters: URLSearchParams): View {
  const window = WINDOWS.find((item) => item.key === parameters.get("w")) ?? WINDOWS[1]!;
  const [from, to] = ["from", "to"].map((name) => Number(parameters.get(name) ?? NaN));
  return { window, span: from! > 0 && to! > from! ? { from: from!, to: to! } : null };
}

export const same = (a: View, b: View): boolean => a.window === b.window && a.span?.from === b.span?.from && a.span?.to === b.span?.to;

/** Where a page stands among its views in the browser's history; each entry there carries its place. */
export class Steps {
  private furthest: number;

  constructor(private at: number) {
    this.furthest = at;
  }

  get place(): number {
    return this.at;
  }
  get canBack(): boolean {
    return this.at > 0;
  }
  get canForward(): boolean {
    return this.at < this.furthest;
  }

  /** A new view; those that were ahead are gone. */
  push(): void {
    this.at++;
    this.furthest = this.at;
  }

  moved(to: number): void {
    this.at = to;
    this.furthest = Math.max(this.furthest, to);
  }
}
