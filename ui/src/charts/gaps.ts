// SPDX-License-Identifier: Apache-2.0
//! Gaps as what they are: hatched, with their reason. So is the time since which a silent host gives nothing. Short ones are marks at the foot (marks.ts).

import type uPlot from "uplot";
import { clockTime, duration } from "../format";
import { colour } from "../theme";
import type { Scene } from "./frame";
import { type Mark, markAt, marks } from "./marks";

const TILE_PX = 8;
const MARK_PX = 5;
/** A pixel of which little was missed is faint, but seen. */
const FAINTEST = 0.3;
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

const marksOf = (scene: Scene, widthPx: number): Mark[] => marks(scene.gaps.all, (scene.to - scene.from) / Math.max(1, widthPx), scene.shownMs);

export function drawGaps(u: uPlot, scene: Scene): void {
  for (const mark of marksOf(scene, u.over.clientWidth)) {
    if (mark.isHole) stripe(u, scene, mark.from, mark.to, readable(mark.gaps[0]!.reason));
    else foot(u, scene, mark);
  }
  if (scene.silentSince !== null) stripe(u, scene, scene.silentSince, scene.to, `silent since ${clockTime(scene.silentSince)}`);
}

function foot(u: uPlot, scene: Scene, { from, to, share }: Mark): void {
  if (to < scene.from || from > scene.to) return;
  const { ctx, bbox } = u;
  const perMs = bbox.width / (scene.to - scene.from);
  const place = (t: number): number => bbox.left + Math.min(bbox.width, Math.max(0, (t - scene.from) * perMs));
  const height = MARK_PX * devicePixelRatio;
  ctx.save();
  ctx.globalAlpha = Math.max(FAINTEST, share);
  ctx.fillStyle = colour("--muted");
  ctx.fillRect(place(from), bbox.top + bbox.height - height, place(to) - place(from), height);
  ctx.restore();
}

function stripe(u: uPlot, scene: Scene, from: number, to: number, label: string): void {
  if (to < scene.from || from > scene.to) return;
  const { ctx, bbox } = u;
  const place = (t: number): number => bbox.left + ((Math.min(scene.to, Math.max(scene.from, t)) - scene.from) / (scene.to - scene.from)) * bbox.width;
  const x = place(from);
  const width = place(to) - x;
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

/** What is drawn at `t` on a chart of this width, and whether it is why there is no value. */
export function gapAt(scene: Scene, t: number, widthPx: number): { text: string; isHole: boolean } | null {
  const mark = markAt(marksOf(scene, widthPx), t);
  if (mark !== null) return { text: markText(mark), isHole: mark.isHole };
  if (scene.silentSince !== null && t > scene.silentSince) return { text: `silent since ${clockTime(scene.silentSince)}`, isHole: true };
  return null;
}

function markText({ gaps, from, to }: Mark): string {
  const length = duration(gaps.reduce((sum, gap) => sum + gap.to_ms - gap.from_ms, 0));
  const reasons = [...new Set(gaps.map((gap) => readable(gap.reason)))].join(", ");
  if (gaps.length === 1) return `gap: ${reasons}, ${length} from ${clockTime(gaps[0]!.from_ms, 100)}`;
  return `${gaps.length} gaps in ${duration(to - from)}: ${reasons}, ${length} in all`;
}
