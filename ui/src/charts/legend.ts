// SPDX-License-Identifier: Apache-2.0
//! The legend: what each line is and its value at the cursor, or now. Text, so that it can be read aloud and copied.

import { h, setText } from "../dom";
import { lineColour, lineDash, onChange, colour } from "../theme";
import { quantity } from "../format";
import type { ChartSpec } from "./frame";

const MAX_SHOWN = 16;

export class Legend {
  readonly element: HTMLElement;
  private readonly values: HTMLElement[] = [];
  private readonly swatches: SVGElement[] = [];
  private readonly stopTheme: () => void;

  constructor(private readonly spec: ChartSpec) {
    this.element = h("ul", { class: "legend" });
    spec.lines.slice(0, MAX_SHOWN).forEach((line, i) => {
      const value = h("span", { class: "value num" });
      const swatch = this.swatch(i);
      this.values.push(value);
      this.swatches.push(swatch);
      this.element.append(h("li", {}, swatch, h("span", { class: "label", title: line.label }, line.label), value));
    });
    const more = spec.lines.length - MAX_SHOWN;
    if (more > 0) this.element.append(h("li", { class: "more" }, `and ${more} more`));
    this.stopTheme = onChange(() => this.paint());
    this.paint();
  }

  /** `values[i]` belongs to line i. */
  show(values: number[]): void {
    this.values.forEach((node, i) => setText(node, quantity(values[i] ?? NaN, this.spec.unit, this.spec.perSecond)));
  }

  destroy(): void {
    this.stopTheme();
  }

  private swatch(index: number): SVGElement {
    const ns = "http://www.w3.org/2000/svg";
    const node = document.createElementNS(ns, "svg");
    node.setAttribute("class", "swatch");
    node.setAttribute("viewBox", "0 0 16 8");
    node.setAttribute("aria-hidden", "true");
    const shape = document.createElementNS(ns, this.spec.kind === "stack" ? "rect" : "line");
    const at: Record<string, number> = this.spec.kind === "stack" ? { x: 2, y: 0, width: 12, height: 8 } : { x1: 0, y1: 4, x2: 16, y2: 4 };
    for (const [name, value] of Object.entries(at)) shape.setAttribute(name, String(value));
    if (this.spec.kind !== "stack") shape.setAttribute("stroke-dasharray", lineDash(index).join(" "));
    node.append(shape);
    return node;
  }

  private paint(): void {
    this.swatches.forEach((swatch, i) => {
      const paint = paintOf(this.spec, i);
      const shape = swatch.firstElementChild!;
      shape.setAttribute(this.spec.kind === "stack" ? "fill" : "stroke", paint);
    });
  }
}

export function paintOf(spec: ChartSpec, line: number): string {
  const own = spec.lines[line]?.colour;
  return own === undefined ? lineColour(line) : colour(own);
}
