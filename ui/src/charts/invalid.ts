// SPDX-License-Identifier: Apache-2.0
//! Samples that have failed a check, as crosses at the head of the chart of their series: the line has the last valid
//! value there.

import type uPlot from "uplot";
import { quantity } from "../format";
import type { InvalidSample } from "../invalid";
import { colour } from "../theme";
import type { ChartSpec, Scene } from "./frame";

const CROSS_PX = 3;
/** The pointer need not hit it. */
const NEAR_PX = 5;

/** Those of a chart, with the label of their line. */
function samplesOf(spec: ChartSpec, scene: Scene): { sample: InvalidSample; label: string }[] {
  const { invalid } = scene;
  if (invalid === undefined) return [];
  return spec.series.flatMap((series) => {
    const found = invalid.of(series).filter(({ t_ms }) => scene.from <= t_ms && t_ms <= scene.to);
    const label = spec.lines.length > 1 ? (spec.lines.find(({ inputs }) => inputs.includes(series.series))?.label ?? "") : "";
    return found.map((sample) => ({ sample, label }));
  });
}

export function drawInvalid(u: uPlot, spec: ChartSpec, scene: Scene): void {
  const { ctx, bbox } = u;
  const half = CROSS_PX * devicePixelRatio;
  const places = new Set(samplesOf(spec, scene).map(({ sample }) => Math.round(bbox.left + ((sample.t_ms - scene.from) / (scene.to - scene.from)) * bbox.width)));
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

/** The one nearest to `t` on a chart of this width, in words; null where there is none near. */
export function invalidAt(spec: ChartSpec, scene: Scene, t: number, widthPx: number): string | null {
  const reachMs = (NEAR_PX * (scene.to - scene.from)) / Math.max(1, widthPx);
  const away = ({ sample }: { sample: InvalidSample }): number => Math.abs(sample.t_ms - t);
  const near = samplesOf(spec, scene).filter((one) => away(one) <= reachMs);
  if (near.length === 0) return null;
  const { sample, label } = near.reduce((best, one) => (away(one) < away(best) ? one : best));
  const value = Number.isNaN(sample.value) ? "none" : quantity(sample.value, spec.unit);
  const more = near.length > 1 ? `, and ${near.length - 1} more` : "";
  return `invalid${label === "" ? "" : ` ${label}`}: ${value} (${sample.reason.replaceAll("_", " ")})${more}`;
}
