// SPDX-License-Identifier: Apache-2.0
//! A small line without axes: how a value went, beside the number that it is now.

import { svg } from "../dom";

const WIDTH = 80;
const HEIGHT = 18;

/** What `from` becomes as rates: of a counter that is looked at now and then. Where it fell it began again. */
export function rates({ t_ms: t, values }: { t_ms: number[]; values: number[] }): { t_ms: number[]; values: number[] } {
  const ends = t.slice(1);
  return { t_ms: ends, values: ends.map((end, i) => (values[i + 1]! >= values[i]! ? ((values[i + 1]! - values[i]!) / (end - t[i]!)) * 1000 : NaN)) };
}

/** The outline of points between two times as a path: `M` begins anew where values are missing. */
export function outline(points: { t_ms: number[]; values: number[] }, fromMs: number, toMs: number, top: number): string {
  let isDown = false;
  return points.values.map((value, i) => {
    if (!Number.isFinite(value)) {
      isDown = false;
      return "";
    }
    const x = ((points.t_ms[i]! - fromMs) / (toMs - fromMs)) * WIDTH;
    const y = HEIGHT - 1 - Math.min(1, Math.max(0, value / top)) * (HEIGHT - 2);
    const move = isDown ? "L" : "M";
    isDown = true;
    return `${move}${x.toFixed(1)} ${y.toFixed(1)}`;
  }).join("");
}

/** `top`: the value at the upper edge; without it the greatest. Null: nothing is known. */
export function drawSpark(node: HTMLElement, points: { t_ms: number[]; values: number[] } | null, fromMs: number, toMs: number, top = 0): void {
  if (points === null) {
    delete node.dataset["path"];
    if (node.firstChild !== null) node.replaceChildren();
    return;
  }
  const greatest = Math.max(top, ...points.values.filter((value) => Number.isFinite(value)));
  const path = outline(points, fromMs, toMs, greatest > 0 ? greatest : 1);
  if (node.dataset["path"] === path) return;
  node.dataset["path"] = path;
  node.replaceChildren(svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { d: path })));
}
