// SPDX-License-Identifier: Apache-2.0
//! A picture of a chart that takes longer than a frame to draw: while another part of the time is looked for it is stretched, and the chart is drawn once that
//! rests.

import type uPlot from "uplot";
import type { Span } from "../view";

/** Points from which on a drawing takes longer than a frame; of the charts of a host's page several are drawn in one. */
const HEAVY_POINTS = 5000;
const HEAVY_POINTS_OF_MANY = 1000;
const REST_MS = 150;

export class Still {
  private readonly canvas = document.createElement("canvas");
  /** What is drawn in full, and how many points that has. */
  private drawn: (Span & { points: number }) | null = null;
  private isTaken = false;
  private resting: number | undefined;

  /** It stands for the chart, until that is drawn in full. */
  isShown = false;

  /** The chart was drawn in full. */
  was(span: Span, points: number): void {
    clearTimeout(this.resting);
    this.drawn = { from: span.from, to: span.to, points };
    this.isTaken = false;
  }

  /** Whether the picture does for now; `draw` is called once it does no more. `isOneOfMany`: others move with it. */
  does(u: uPlot, { from, to }: Span, isOneOfMany: boolean, draw: () => void): boolean {
    const { drawn, canvas } = this;
    const { width, height, left, top } = u.bbox;
    if (drawn === null || drawn.points < (isOneOfMany ? HEAVY_POINTS_OF_MANY : HEAVY_POINTS) || (drawn.from === from && drawn.to === to) || to <= drawn.from || from >= drawn.to || width === 0) return false;
    if (!this.isTaken) {
      [canvas.width, canvas.height] = [width, height];
      canvas.getContext("2d")!.drawImage(u.ctx.canvas, left, top, width, height, 0, 0, width, height);
      this.isTaken = true;
    }
    clearTimeout(this.resting);
    this.resting = setTimeout(draw, REST_MS);
    return true;
  }

  /** Stretches it over what of its time is shown. */
  paint(u: uPlot, { from, to }: Span): void {
    const { drawn, canvas } = this;
    if (drawn === null) return;
    const { left, top, width, height } = u.bbox;
    const x = (t: number): number => left + ((t - from) / (to - from)) * width;
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(left, top, width, height);
    u.ctx.clip();
    u.ctx.drawImage(canvas, x(drawn.from), top, x(drawn.to) - x(drawn.from), height);
    u.ctx.restore();
  }

  destroy(): void {
    clearTimeout(this.resting);
  }
}
