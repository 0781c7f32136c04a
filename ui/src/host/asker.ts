// SPDX-License-Identifier: Apache-2.0
//! When a host's page asks what: only for what is on the screen, a few requests at once, again and again for now and once for a time in the past.

import { now } from "../clock";
import type { At } from "./subject";

/** Of the six connections that browsers allow, streams take up to three. */
const MAX_AT_ONCE = 2;
const TICK_MS = 200;
const MAX_BACKOFF = 8;
/** A time in the past that changes quickly is asked for once it rests. */
const SETTLE_MS = 300;

export interface Question {
  /** Not asked while this is out of sight. */
  element: HTMLElement;
  /** Between an answer and the next question, for now. */
  everyMs: number;
  ask: (at: At, signal: AbortSignal) => Promise<void>;
  /** Null: all is well again. */
  problem: (message: string | null) => void;
}

interface Entry extends Question {
  visible: boolean;
  busy: boolean;
  nextAt: number;
  failures: number;
}

export class Asker {
  private readonly entries: Entry[] = [];
  private readonly timer = setInterval(() => this.tick(), TICK_MS);
  private readonly sight = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) for (const entry of this.entries) if (entry.element === target) entry.visible = isIntersecting;
    this.tick();
  }, { rootMargin: "200px" });
  private abort = new AbortController();
  private timeMs: number | null = null;
  private windowMs: number | null = null;
  private ended = false;

  add(question: Question): void {
    this.entries.push({ ...question, visible: false, busy: false, nextAt: 0, failures: 0 });
    this.sight.observe(question.element);
  }

  /** Shows another time: ms UTC, or null for now; rates are taken over `windowMs` before it, or null for as short a time as values allow. Gives whether that is new. */
  setTime(timeMs: number | null, windowMs: number | null = null): boolean {
    if (timeMs === this.timeMs && windowMs === this.windowMs) return false;
    [this.timeMs, this.windowMs] = [timeMs, windowMs];
    this.abort.abort();
    this.abort = new AbortController();
    const nextAt = timeMs === null ? 0 : performance.now() + SETTLE_MS;
    for (const entry of this.entries) Object.assign(entry, { busy: false, nextAt, failures: 0 });
    this.tick();
    return true;
  }

  /** Asks what belongs to this element at once: something else is wanted there. */
  soon(element: HTMLElement): void {
    for (const entry of this.entries) if (entry.element === element) entry.nextAt = 0;
    this.tick();
  }

  end(): void {
    this.ended = true;
    clearInterval(this.timer);
    this.sight.disconnect();
    this.abort.abort();
  }

  private tick(): void {
    if (this.ended || document.hidden) return;
    const due = this.entries.filter((entry) => entry.visible && !entry.busy && performance.now() >= entry.nextAt).sort((a, b) => a.nextAt - b.nextAt);
    const free = MAX_AT_ONCE - this.entries.filter((entry) => entry.busy).length;
    for (const entry of due.slice(0, Math.max(0, free))) void this.run(entry);
  }

  private async run(entry: Entry): Promise<void> {
    const { signal } = this.abort;
    const at: At = { timeMs: this.timeMs ?? now(), windowMs: this.windowMs };
    entry.busy = true;
    // Whoever wants something else meanwhile sets it to 0.
    entry.nextAt = Infinity;
    try {
      await entry.ask(at, signal);
      if (signal.aborted) return;
      entry.failures = 0;
      entry.problem(null);
    } catch (error) {
      if (signal.aborted) return;
      entry.failures++;
      entry.problem(error instanceof Error ? error.message : String(error));
    }
    entry.busy = false;
    const again = entry.failures > 0 || this.timeMs === null;
    if (entry.nextAt === Infinity && again) entry.nextAt = performance.now() + entry.everyMs * Math.min(MAX_BACKOFF, 1 + entry.failures);
    this.tick();
  }
}
