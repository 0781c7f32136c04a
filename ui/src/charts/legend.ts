// SPDX-License-Identifier: Apache-2.0
//! The legend: what each line is and its value at the cursor, or now; least, mean and greatest of what is shown. Text, so that it can be read aloud and copied. Its
//! entries are buttons: one shows its line alone, then all again.

import { h, setHidden, setText, svg } from "../dom";
import { quantity } from "../format";
import { colour, lineColour, lineDash, onChange } from "../theme";
import type { ChartSpec } from "./frame";

/** Further entries come with More. */
const MAX_SHOWN = 16;
/** So few entries have room for all columns. */
const MAX_FULL = 4;
const COLUMNS = ["min", "avg", "max"];
/** For what bursts between two points reached. */
export const PEAK_COLOUR = "--muted";

export interface LegendEvents {
  hidden: (lines: ReadonlySet<number>) => void;
  /** Null: none. */
  highlighted: (line: number | null) => void;
  /** There is now a place for least, mean and greatest. */
  full: () => void;
}

interface Entry {
  item: HTMLElement;
  button: HTMLButtonElement;
  swatch: SVGElement;
  value: HTMLElement;
  stats: HTMLElement[];
}

export class Legend {
  readonly element: HTMLElement;
  private readonly entries: Entry[];
  private readonly peak: { item: HTMLElement; swatch: SVGElement; value: HTMLElement };
  private readonly list = h("ul");
  private readonly heads = h("div", { class: "heads", "aria-hidden": "true" }, h("span"), h("span", {}, "value"), ...COLUMNS.map((name) => h("span", {}, name)));
  private readonly more = h("button", { type: "button", class: "quiet more", on: { click: () => this.toggleFull() } });
  private hidden = new Set<number>();
  private isFull: boolean;
  private readonly stopTheme: () => void;

  constructor(
    private readonly spec: ChartSpec,
    private readonly events: LegendEvents,
  ) {
    this.isFull = spec.lines.length <= MAX_FULL;
    this.entries = spec.lines.map((_, i) => this.entry(i));
    this.peak = this.peakEntry();
    this.list.append(...this.entries.map(({ item }) => item), h("li", {}, this.more), this.peak.item);
    this.element = h("div", { class: "legend" }, this.heads, this.list);
    this.setFull(this.isFull);
    this.stopTheme = onChange(() => this.paint());
    this.paint();
  }

  /** Whether `showExtremes` has a place. */
  get hasExtremes(): boolean {
    return this.isFull;
  }

  /** `values[i]` belongs to line i; NaN of `peak`: there is none. */
  show(values: number[], peak: number | null): void {
    this.entries.forEach(({ value }, i) => setText(value, this.quantity(values[i] ?? NaN)));
    setHidden(this.peak.item, peak === null);
    if (peak !== null) setText(this.peak.value, this.quantity(peak));
  }

  showExtremes(line: number, extremes: { least: number; mean: number; greatest: number }): void {
    [extremes.least, extremes.mean, extremes.greatest].forEach((value, k) => setText(this.entries[line]!.stats[k]!, this.quantity(value)));
  }

  destroy(): void {
    this.stopTheme();
  }

  private entry(i: number): Entry {
    const { label } = this.spec.lines[i]!;
    const swatch = this.swatch(lineDash(i, this.spec.lines.length));
    const value = h("span", { class: "value num" });
    const stats = COLUMNS.map(() => h("span", { class: "stat num" }));
    const button = h(
      "button",
      {
        type: "button", title: `${label}: click to show it alone, Shift and click to hide it`,
        on: {
          click: (event) => this.choose(i, event.shiftKey || event.ctrlKey || event.metaKey),
          pointerenter: () => this.events.highlighted(i), pointerleave: () => this.events.highlighted(null), focus: () => this.events.highlighted(i), blur: () => this.events.highlighted(null),
        },
      },
      swatch, h("span", { class: "label" }, label), value, ...stats,
    );
    return { item: h("li", {}, button), button, swatch, value, stats };
  }

  private peakEntry(): Legend["peak"] {
    const isStack = this.spec.kind === "stack";
    const [label, title] = isStack
      ? ["peak: total + greatest burst of one series", "The total, and on top how far the greatest rate of a single series within each point was above its mean. Zoom in to see the rows themselves"]
      : ["peak: greatest of any line", "The greatest value within each point, of whichever line. Zoom in to see the rows themselves"];
    const swatch = svg("svg", { class: "swatch", viewBox: "0 0 16 8", "aria-hidden": "true" }, svg("path", { d: "M4 8V3M8 8V0M12 8V5" }));
    const value = h("span", { class: "burst num" });
    return { item: h("li", { class: "peak", title, hidden: true }, swatch, h("span", { class: "label" }, label), value), swatch, value };
  }

  private quantity(value: number): string {
    return quantity(value, this.spec.unit, this.spec.perSecond);
  }

  /** Shows one line alone, or all if it is alone; with `toggles` hides or shows it beside the others. */
  private choose(line: number, toggles: boolean): void {
    const others = this.entries.map((_, i) => i).filter((i) => i !== line);
    const isAlone = !this.hidden.has(line) && others.every((i) => this.hidden.has(i));
    if (toggles && !isAlone) {
      if (!this.hidden.delete(line)) this.hidden.add(line);
    } else this.hidden = new Set(isAlone ? [] : others);
    this.entries.forEach(({ button }, i) => button.setAttribute("aria-pressed", String(!this.hidden.has(i))));
    this.events.hidden(this.hidden);
  }

  private toggleFull(): void {
    this.setFull(!this.isFull);
    if (this.isFull) this.events.full();
  }

  private setFull(full: boolean): void {
    this.isFull = full;
    this.element.classList.toggle("full", full);
    this.entries.forEach(({ item, button }, i) => {
      setHidden(item, !full && i >= MAX_SHOWN);
      button.setAttribute("aria-pressed", String(!this.hidden.has(i)));
    });
    const left = this.entries.length - MAX_SHOWN;
    setText(this.more, full ? "▾ less" : left > 0 ? `▸ all ${this.entries.length}, with min, avg, max` : "▸ min, avg, max");
    this.more.setAttribute("aria-expanded", String(full));
  }

  private swatch(dash: number[]): SVGElement {
    const shape = this.spec.kind === "stack" ? svg("rect", { x: 2, y: 0, width: 12, height: 8 }) : svg("line", { x1: 0, y1: 4, x2: 16, y2: 4, "stroke-dasharray": dash.join(" ") });
    return svg("svg", { class: "swatch", viewBox: "0 0 16 8", "aria-hidden": "true" }, shape);
  }

  private paint(): void {
    this.entries.forEach(({ swatch }, i) => swatch.firstElementChild!.setAttribute(this.spec.kind === "stack" ? "fill" : "stroke", paintOf(this.spec, i)));
    this.peak.swatch.firstElementChild!.setAttribute("stroke", colour(PEAK_COLOUR));
  }
}

export function paintOf(spec: ChartSpec, line: number): string {
  const own = spec.lines[line]?.colour;
  return own === undefined ? lineColour(line) : colour(own);
}
