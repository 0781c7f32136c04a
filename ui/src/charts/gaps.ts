// SPDX-License-Identifier: Apache-2.0
//! Gaps as what they are: hatched, with their reason. So is the time since which a silent host gives nothing. A gap shorter than a point (a reading that
//! was missed, where ten make a point) takes no value away that would be shown: a mark at the foot.

import type uPlot from "uplot";
import type { Gap } from "../api";
import { clockTime, duration } from "../format";
import { colour } from "../theme";
import type { Scene } from "./chart";

const TILE_PX = 8;
const MARK_PX = 5;
let pattern: { key: string; fill: CanvasPattern | string } | null = null;

function hatch(context: CanvasRenderingContext2D): CanvasPattern | string {
  const key = colour("--gap-line");
  if (pattern?.key === key) return pattern.fill;
  const size = TILE_PX * devicePixelRatio;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const draw = tile.getContext("2d")!;
  draw.strokeStyle = key;
  draw.lineWidth = devicePixelRatio;
  for (const shift of [-size, 0, size]) {
    draw.moveTo(shift, size);
    draw.lineTo(shift + size, 0);
  }
  draw.stroke();
  pattern = { key, fill: context.createPattern(tile, "repeat") ?? key };
  return pattern.fill;
}

/** Words of the wire as words of people. */
const readable = (reason: string): string => reason.replaceAll("_", " ");

export function drawGaps(u: uPlot, scene: Scene): void {
  for (const gap of scene.gaps.all) {
    if (isHole(scene, gap)) stripe(u, scene, gap.from_ms, gap.to_ms, readable(gap.reason));
    else mark(u, scene, gap);
  }
  if (scene.silentSince !== null) stripe(u, scene, scene.silentSince, scene.to, `silent since ${clockTime(scene.silentSince)}`);
}

const isHole = (scene: Scene, gap: Gap): boolean => gap.to_ms - gap.from_ms >= scene.shownMs;

function mark(u: uPlot, scene: Scene, gap: Gap): void {
  if (gap.from_ms < scene.from || gap.from_ms > scene.to) return;
  const { ctx, bbox } = u;
  const perMs = bbox.width / (scene.to - scene.from);
  ctx.fillStyle = colour("--muted");
  const height = MARK_PX * devicePixelRatio;
  ctx.fillRect(bbox.left + (gap.from_ms - scene.from) * perMs, bbox.top + bbox.height - height, Math.max(devicePixelRatio, (gap.to_ms - gap.from_ms) * perMs), height);
}

function stripe(u: uPlot, scene: Scene, from: number, to: number, label: string): void {
  if (to < scene.from || from > scene.to) return;
  const { ctx, bbox } = u;
  const place = (t: number): number => bbox.left + ((Math.min(scene.to, Math.max(scene.from, t)) - scene.from) / (scene.to - scene.from)) * bbox.width;
  const x = place(from);
  // However short, a gap is seen.
  const width = Math.max(2 * devicePixelRatio, place(to) - x);
  ctx.save();
  ctx.fillStyle = colour("--gap");
  ctx.fillRect(x, bbox.top, width, bbox.height);
  ctx.fillStyle = hatch(ctx);
  ctx.fillRect(x, bbox.top, width, bbox.height);
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const needed = ctx.measureText(label).width + 12 * devicePixelRatio;
  if (needed < width) {
    ctx.fillStyle = colour("--card");
    ctx.fillRect(x + (width - needed) / 2, bbox.top + 4 * devicePixelRatio, needed, 17 * devicePixelRatio);
    ctx.fillStyle = colour("--text");
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(label, x + width / 2, bbox.top + 13 * devicePixelRatio);
  }
  ctx.restore();
}

/** The gap at `t`, and whether it is why there is no value. */
export function gapAt(scene: Scene, t: number): { text: string; isHole: boolean } | null {
  const slack = ((scene.to - scene.from) / 1000) * 2; // A gap of a pixel or two must be hit by a pointer.
  const gap = scene.gaps.all.find((item) => item.from_ms - slack <= t && t <= item.to_ms + slack);
  if (gap !== undefined) return { text: `gap: ${readable(gap.reason)}, ${duration(gap.to_ms - gap.from_ms)} from ${clockTime(gap.from_ms, 100)}`, isHole: isHole(scene, gap) };
  if (scene.silentSince !== null && t > scene.silentSince) return { text: `silent since ${clockTime(scene.silentSince)}`, isHole: true };
  return null;
}
