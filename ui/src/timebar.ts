// SPDX-License-Identifier: Apache-2.0
//! The part of a page that says and chooses what time its charts show: windows, Live, from and to, steps back and forward; keys; the address.

import type { Navigator } from "./charts/gestures";
import { now } from "./clock";
import { h, setHidden, setText } from "./dom";
import { clockTime, day, duration, moment } from "./format";
import type { Binding } from "./keys";
import { pick } from "./picker";
import { WINDOWS, type TimeWindow } from "./ranges";
import { depth, pushParameters } from "./router";
import { type Limits, PAN_SHARE, type Span, Steps, type View, ZOOM_FACTOR, clamp, panned, same, spanOf, stepped, zoomed } from "./view";
import * as zone from "./zone";

/** A movement that rests so long is a view to come back to. */
const SETTLE_MS = 400;

/** What shows the time that is chosen. */
export interface Timed {
  navigator: Navigator | null;
  readonly view: View;
  /** What is on the screen. */
  readonly span: Span;
  show(view: View): void;
  /** The zone has changed. */
  redraw(): void;
  showSelection(span: Span | null): void;
}

export class TimeBar implements Navigator {
  readonly element: HTMLElement;
  readonly bindings: Binding[];
  private readonly steps = new Steps(depth());
  private settling: number | undefined;
  private oldest: number | null = null;
  private isOver = false;
  private readonly windows = WINDOWS.map((item, i) => h("button", { type: "button", class: "chip", title: `Show the last ${item.label}, live (key ${i + 1})`, on: { click: () => this.live(item) } }, item.label));
  private readonly pause = h("button", { type: "button", class: "chip pause", on: { click: () => this.togglePause() } });
  private readonly range = h("button", { type: "button", class: "chip range num", title: "Choose from and to", on: { click: () => this.pick() } });
  private readonly earlier = arrow("‹", "Earlier, by what is shown", () => this.pan(-1, 1));
  private readonly later = arrow("›", "Later, by what is shown", () => this.pan(1, 1));
  private readonly narrower = arrow("+", "Zoom in (+)", () => this.zoom("in"), "spare");
  private readonly wider = arrow("−", "Zoom out (−)", () => this.zoom("out"), "spare");
  private readonly back = arrow("↶", "The view before ([)", () => this.step(-1), "spare");
  private readonly forward = arrow("↷", "The next view (])", () => this.step(1), "spare");
  private readonly zoneButton = h("button", { type: "button", class: "quiet zone spare", on: { click: () => zone.choose(zone.current() === "utc" ? "local" : "utc") } });
  private readonly stopZone = zone.onChange(() => {
    this.board.redraw();
    this.show();
    this.showZone();
  });

  /** `parameters`: those of the page without the view's. */
  constructor(
    private readonly board: Timed,
    private readonly parameters: (view: View) => URLSearchParams,
    private readonly changed: () => void,
  ) {
    board.navigator = this;
    this.element = h(
      "div",
      { class: "timebar" },
      h("div", { class: "chips", role: "group", "aria-label": "Time window" }, ...this.windows, this.pause),
      h("div", { class: "chips", role: "group", "aria-label": "Time shown" }, this.earlier, this.range, this.later, this.wider, this.narrower, this.back, this.forward, this.zoneButton),
    );
    this.bindings = this.keys();
    this.show();
    this.showZone();
  }

  /** How far back the store goes. Known once the clock is the controller's, too. */
  setOldest(oldest: number | null): void {
    this.oldest = oldest;
    const view = addressed(this.board.view);
    if (!same(view, this.board.view)) this.board.show(view);
    this.show();
  }

  /** Takes the view of an entry of the browser's history, or of an address that was typed. */
  follow(view: View): void {
    clearTimeout(this.settling);
    this.settling = undefined;
    this.steps.moved(depth());
    this.apply(addressed(view));
  }

  /** What is shown now, with the page's other parameters, is one more entry of the browser's history. */
  enter(): void {
    this.settle();
  }

  /** Nothing can be chosen any more. */
  end(): void {
    this.isOver = true;
    this.show();
  }

  destroy(): void {
    clearTimeout(this.settling);
    this.stopZone();
  }

  // --- what gestures do -------------------------------------------------------------------------------------------------------------------

  readonly span = (): Span => this.board.span;
  readonly mark = (span: Span | null): void => this.board.showSelection(span);
  readonly select = (span: Span): void => this.go({ ...this.board.view, span: clamp(span, this.limits) });
  readonly widen = (at: number): void => this.go({ ...this.board.view, span: clamp(zoomed(this.board.span, ZOOM_FACTOR, at), this.limits) });

  readonly move = (span: Span): void => {
    if (this.isOver) return;
    this.apply({ ...this.board.view, span: clamp(span, this.limits) });
    clearTimeout(this.settling);
    this.settling = setTimeout(() => this.settle(), SETTLE_MS);
  };

  // --- what buttons and keys do -----------------------------------------------------------------------------------------------------------

  private live(window: TimeWindow = this.board.view.window): void {
    this.go({ window, span: null });
  }

  private togglePause(): void {
    const { view, span } = this.board;
    if (view.span !== null) this.live();
    else this.go({ ...view, span: clamp(span, this.limits) });
  }

  private pan(direction: 1 | -1, share = PAN_SHARE): void {
    const { view, span } = this.board;
    if (view.span === null && direction > 0) return;
    this.go({ ...view, span: clamp(panned(span, direction * share * (span.to - span.from)), this.limits) });
  }

  private zoom(direction: "in" | "out"): void {
    this.go(stepped(this.board.view, this.limits, direction));
  }

  private step(direction: 1 | -1): void {
    if (this.isOver) return;
    if (this.settling !== undefined) this.settle();
    if (direction < 0 ? this.steps.canBack : this.steps.canForward) history.go(direction);
  }

  private pick(): void {
    pick(spanOf(this.board.view, now()), this.limits, (span) => this.select(span));
  }

  private get limits(): Limits {
    return { oldest: this.oldest, now: now() };
  }

  private go(view: View): void {
    if (this.isOver) return;
    if (this.settling !== undefined) this.settle();
    if (same(view, this.board.view)) return;
    this.apply(view);
    this.settle();
  }

  private apply(view: View): void {
    this.board.show(view);
    this.show();
    this.changed();
  }

  private settle(): void {
    clearTimeout(this.settling);
    this.settling = undefined;
    this.steps.push();
    pushParameters(this.parameters(this.board.view), this.steps.place);
    this.show();
  }

  private show(): void {
    const { view } = this.board;
    const isLive = view.span === null;
    WINDOWS.forEach((item, i) => this.windows[i]!.setAttribute("aria-pressed", String(isLive && item === view.window)));
    setText(this.pause, isLive ? "Pause" : "Live");
    this.pause.title = isLive ? "Stay at this time (space)" : `Back to the last ${view.window.label}, live (l or space)`;
    this.pause.classList.toggle("to-live", !isLive);
    setText(this.range, view.span === null ? `last ${view.window.label}` : spanText(view.span));
    this.later.disabled = isLive;
    this.back.disabled = !this.steps.canBack && this.settling === undefined;
    this.forward.disabled = !this.steps.canForward;
    setHidden(this.element, this.isOver);
  }

  private showZone(): void {
    setText(this.zoneButton, zone.offsetName(now()));
    this.zoneButton.title = `Times are those of ${zone.fullName(now(), zone.current())}. Click for ${zone.fullName(now(), zone.current() === "utc" ? "local" : "utc")}`;
  }

  private keys(): Binding[] {
    const key = (keys: string[], help: string, act: () => void, shown?: string): Binding => ({ keys, help, run: () => { act(); return undefined; }, ...(shown === undefined ? {} : { shown }) });
    /** Not a key of the page: only told. */
    const told = (shown: string, help: string): Binding => ({ keys: [], shown, help, run: () => false });
    return [
      key([" "], "Pause, or back to live", () => this.togglePause()),
      key(["l"], "Back to live", () => this.live()),
      { keys: WINDOWS.map((_, i) => String(i + 1)), help: `Live window: ${WINDOWS.map((item) => item.label).join(", ")}`, run: (event) => { this.live(WINDOWS[Number(event.key) - 1]); return undefined; } },
      { keys: ["ArrowLeft", "ArrowRight"], shown: "← →", help: "Earlier, later, by half of what is shown", run: (event) => { this.pan(event.key === "ArrowLeft" ? -1 : 1); return undefined; } },
      { keys: ["+", "=", "-", "_"], shown: "+ −", help: "Zoom in, zoom out", run: (event) => { this.zoom("+=".includes(event.key) ? "in" : "out"); return undefined; } },
      { keys: ["[", "Backspace", "]"], shown: "[ Backspace ]", help: "The view before, the next one", run: (event) => { this.step(event.key === "]" ? 1 : -1); return undefined; } },
      key(["g"], "Choose from and to", () => this.pick()),
      told("drag", "On a chart: zoom in. Double click: zoom out"),
      told("Shift+drag Shift+wheel", "On a chart: pan; so do a sideways wheel and a finger"),
      told("Ctrl+wheel", "On a chart: zoom; so do two fingers. The plain wheel scrolls the page"),
      told("← → Home End", "In a chart that Tab has reached: move the cursor (Shift+← and Shift+→ pan)"),
    ];
  }
}

/** What an address asks for is not moved to what the store still has: another time would be shown in silence. But it does not end in the future. */
const addressed = (view: View): View => (view.span === null ? view : { ...view, span: clamp(view.span, { oldest: 0, now: now() }) });

/** `spare`: left out on a phone, where fingers and the browser's own buttons do it. */
function arrow(text: string, title: string, act: () => void, more = ""): HTMLButtonElement {
  return h("button", { type: "button", class: `chip arrow ${more}`, title, "aria-label": title, on: { click: act } }, text);
}

/** From, to and how long; dates where they are not today's. */
function spanText({ from, to }: Span): string {
  const step = to - from < 10_000 ? 1 : to - from < 60_000 ? 100 : 1000;
  const end = day(from) === day(to) ? clockTime(to, step) : moment(to, now(), step);
  return `${moment(from, now(), step)} – ${end} (${duration(to - from)})`;
}
