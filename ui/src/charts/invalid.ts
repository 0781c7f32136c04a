// SPDX-License-Identifier: Apache-2.0
//! Samples that have failed a check, as crosses at the head of the chart of their series: the line has the last valid
//! value there.

import type uPlot from "uplot";
import { invalidIn } from "../invalid";
import { colour } from "../theme";
import type { ChartSpec, Scene } from "./frame";

const CROSS_PX = 3;

export function drawInvalid(u: uPlot, spec: ChartSpec, scene: Scene): void {
  const { ctx, bbox } = u;
  const half = CROSS_PX * devicePixelRatio;
  const places = new Set(invalidIn(spec, scene).map(({ sample }) => Math.round(bbox.left + ((sample.t_ms - scene.from) / (scene.to - scene.from)) * bbox.width)));
  if (places.size === 0) return;
  const y = bbox.top + 2 * half;
  ctx.save();
  ctx.strokeStyle = colour("--bad");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.beginPath();
  for (const x of places) {
    ctx.moveTo(x - half, y - half);
    ctx.lineTo(x + half, y + half);
    ctx.moveTo(x - half, y + half);
    ctx.lineTo(x + half, y - half);
  }
  ctx.stroke();
  ctx.restore();
}
